"""Benchmarks: thunder beside eager and ``torch.compile``. ``python -m benchmarks --help``."""
