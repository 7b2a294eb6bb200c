"""Derivatives: rules of single calls, recorded from PyTorch or from executors, and programs put together from them."""
