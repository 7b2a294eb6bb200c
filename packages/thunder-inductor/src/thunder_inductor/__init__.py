"""Fusion through PyTorch's Inductor: the executor ``inductor`` of Thunder, active by default where it is installed."""

__version__ = "0.1.0"
