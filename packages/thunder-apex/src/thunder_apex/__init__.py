"""Apex's fused kernels: ``thunder.jit(model, executors=["apex", ...])``."""

__version__ = "0.1.0"
