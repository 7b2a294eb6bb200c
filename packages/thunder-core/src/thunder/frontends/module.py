"""Jitted modules: one module with two faces. The jitted one shares all state and has a compiled ``forward``."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.nn.modules.lazy import LazyModuleMixin

from thunder.errors import ThunderError
from thunder.frontends.executor_states import executor_state_dict, load_executor_state_dict

Jit = Callable[[Any], Any]
"""``thunder.jit`` with its options; picklable."""

M = TypeVar("M", bound=torch.nn.Module)


def jit_module(module: M, compiled: Callable[..., Any], again: Jit) -> M:
    """A module of a subclass of ``type(module)`` that shares its state and runs ``compiled`` as its ``forward``.

    again: jits a copy of the module in the same way; used by ``copy`` and ``pickle``.
    Raises ThunderError for a lazy module that has not run yet.
    """
    if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
        raise ThunderError(
            f"{type(module).__name__} has parameters without a shape",
            why="a lazy module becomes one of another class in its first call",
            fix="run the module once before it is jitted",
        )
    base: Any = type(module)
    jitted: Any = object.__new__(_jitted_class(base))
    object.__setattr__(jitted, "__dict__", vars(module))
    object.__setattr__(jitted, "_thunder_state", (module, compiled, again, vars(module).get("forward")))
    return jitted


def original(module: torch.nn.Module) -> torch.nn.Module:
    """The module that a jitted one was made from; any other module itself."""
    state: Any = module._thunder_state if is_jitted(module) else None
    return state[0] if state else module


def is_jitted(module: object) -> bool:
    """True for what ``jit_module`` returns."""
    return "_thunder_state" in vars(type(module))


@functools.cache
def _jitted_class(base: Any) -> Any:
    """A subclass of ``base`` with the name of ``base``, whose compiled state is outside of ``__dict__``."""
    namespace = {
        "__slots__": ("_thunder_state",),
        "__doc__": base.__doc__,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__deepcopy__": _deepcopy,
        "__copy__": lambda self: self._thunder_state[2](copy.copy(original(self))),
        "__reduce_ex__": lambda self, protocol: (self._thunder_state[2], (original(self),)),
        "_thunder_records": property(lambda self: self._thunder_state[1]._thunder_records),
        "_thunder_states": property(lambda self: self._thunder_state[1]._thunder_states),
        "executor_state_dict": executor_state_dict,
        "load_executor_state_dict": load_executor_state_dict,
        "_thunder_notes": property(lambda self: getattr(self._thunder_state[1], "_thunder_notes", [])),
        # A data descriptor: a forward in the shared __dict__ must not shadow the compiled one.
        "forward": property(_forward, _set_forward),
    }
    return type(base)(base.__name__, (base,), namespace)


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    return self._thunder_state[2](copy.deepcopy(original(self), memo))


def _forward(self: Any) -> Callable[..., Any]:
    """The compiled forward; compiled anew if the module was given another one, or lost its own."""
    module, compiled, again, given = self._thunder_state
    if vars(module).get("forward") is given:
        return compiled
    object.__setattr__(self, "_thunder_state", again(module)._thunder_state)
    return self._thunder_state[1]


def _set_forward(self: Any, forward: Callable[..., Any]) -> None:
    """``jitted.forward = f`` replaces the forward of the module, and compiles that."""
    vars(self)["forward"] = forward
