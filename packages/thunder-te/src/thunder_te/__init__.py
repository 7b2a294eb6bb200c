"""FP8 training for Thunder: ``thunder.jit(model, executors=["te", ...])`` inside ``thunder_te.autocast(recipe=…)``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "autocast": "thunder_te.context",
    "DelayedScaling": "thunder_te.recipes",
    "Float8CurrentScaling": "thunder_te.recipes",
    "Format": "thunder_te.recipes",
    "MXFP8BlockScaling": "thunder_te.recipes",
    "NVFP4BlockScaling": "thunder_te.recipes",
}
"""Where each public name lives. They are imported when used, so that listing the plugin does not import torch."""

if TYPE_CHECKING:
    from thunder_te.context import autocast
    from thunder_te.recipes import DelayedScaling, Float8CurrentScaling, Format, MXFP8BlockScaling, NVFP4BlockScaling

__all__ = [
    *("DelayedScaling", "Float8CurrentScaling", "Format", "MXFP8BlockScaling", "NVFP4BlockScaling", "autocast"),
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'thunder_te' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
