"""What a composite written in Python is made of: its body, recorded one level deeper."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any


def is_python(fn: Callable[..., Any]) -> bool:
    """True if the callable has a Python body that can be recorded call by call."""
    return inspect.isfunction(fn)


def opened(fn: Any) -> Callable[..., Any]:
    """A Python function of torch that runs its body even where a torch function mode would take the whole call.

    Torch's functions begin by asking ``has_torch_function``, which is answered "no" for this function alone.
    """
    answers = {name: _no for name in fn.__globals__ if name.startswith("has_torch_function")}
    copy = types.FunctionType(fn.__code__, {**fn.__globals__, **answers}, fn.__name__, fn.__defaults__, fn.__closure__)
    copy.__kwdefaults__ = fn.__kwdefaults__
    return copy


def _no(*_: Any) -> bool:
    return False
