"""nvFuser for Thunder: ``thunder.jit(model, executors=["nvfuser", ...])`` on CUDA."""

__version__ = "0.1.0"
