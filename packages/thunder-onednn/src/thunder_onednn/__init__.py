"""Matrix multiplication and attention on CPUs through oneDNN: ``thunder.jit(model, executors=["onednn", ...])``."""

__version__ = "0.1.0"
