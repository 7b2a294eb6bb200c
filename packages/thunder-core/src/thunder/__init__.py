"""Thunder: a source-to-source compiler for PyTorch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "available_executors": "thunder.api",
    "cache_hits": "thunder.api",
    "cache_miss_reasons": "thunder.api",
    "cache_misses": "thunder.api",
    "executor_state": "thunder.api",
    "explain": "thunder.observe.explain",
    "jit": "thunder.api",
    "last_backward_traces": "thunder.observe.history",
    "last_miss_reason": "thunder.api",
    "last_traces": "thunder.observe.history",
    "trace": "thunder.api",
}
"""Where each public name lives. They are imported when used, so that ``import thunder`` does not import torch."""

if TYPE_CHECKING:
    from thunder.api import (
        available_executors,
        cache_hits,
        cache_miss_reasons,
        cache_misses,
        executor_state,
        jit,
        last_miss_reason,
        trace,
    )
    from thunder.observe.explain import explain
    from thunder.observe.history import last_backward_traces, last_traces

__all__ = [
    *("available_executors", "cache_hits", "cache_miss_reasons", "cache_misses"),
    *("executor_state", "explain", "jit", "last_backward_traces", "last_miss_reason", "last_traces", "trace"),
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'thunder' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
