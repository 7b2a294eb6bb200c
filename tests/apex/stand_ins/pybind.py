"""What a compiled function looks like from Python: arguments by position only, a signature in its documentation."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

DEVICE_TYPES = ("cpu",)


def compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the documentation that pybind11 writes, and its refusal of other numbers of arguments."""
    parameters = list(inspect.signature(fn).parameters.values())
    types = {p.name: p.annotation for p in parameters}

    @functools.wraps(fn)
    def call(*args: Any) -> Any:
        if len(args) != len(parameters):
            raise TypeError(f"{fn.__name__}(): incompatible function arguments")
        for (name, type), value in zip(types.items(), args):
            _check(fn.__name__, name, type, value)
        with torch.no_grad():
            return fn(*args)

    signature = ", ".join(f"arg{n}: {p.annotation}" for n, p in enumerate(parameters))
    call.__doc__ = f"{fn.__name__}({signature}) -> object\n\n{fn.__doc__}"
    return call


def _check(fn: str, name: str, type: str, value: Any) -> None:
    kinds = {
        "torch.Tensor": lambda: isinstance(value, torch.Tensor),
        "torch.Tensor | None": lambda: value is None or isinstance(value, torch.Tensor),
        "float": lambda: isinstance(value, (int, float)) and not isinstance(value, bool),
        "bool": lambda: isinstance(value, bool),
        "list[int]": lambda: isinstance(value, (list, tuple)),
    }
    if not kinds[type]():
        raise TypeError(f"{fn}(): incompatible function arguments: {name} is {value!r}")


def check(condition: bool, message: str) -> None:
    if not condition:
        raise RuntimeError(message)


def check_input(name: str, t: torch.Tensor) -> None:
    check(t.device.type in DEVICE_TYPES, f"{name} must be a {DEVICE_TYPES[0]} tensor")
    check(t.is_contiguous(), f"{name} must be contiguous")
