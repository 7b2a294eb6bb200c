"""Calling an executor's own symbols from its rules."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from thunder.plugins.manager import registry
from thunder.plugins.spec import Op, resolve


class Recorder(Protocol):
    """Who records the calls that a rule makes."""

    def call_symbol(self, op: Op, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Record one call of an executor's symbol and return its results on fake tensors."""


RECORDER: ContextVar[Recorder | None] = ContextVar("thunder_recorder", default=None)
"""The active recorder. Whoever records sets it for as long as it does."""


@dataclass(frozen=True)
class ExecutorSymbol:
    """A callable symbol of an executor: recorded where a recorder is active, else run as it is."""

    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        op, recorder = registry().op(self.name), RECORDER.get()
        if recorder is not None:
            return recorder.call_symbol(op, args, kwargs)
        return resolve(op.impl)(*args, **kwargs)


def recording() -> bool:
    """True while a program or a rule is being recorded."""
    return RECORDER.get() is not None


def symbol(name: str) -> ExecutorSymbol:
    """The callable for a symbol, such as ``symbol("example.gelu")(x)``. It is looked up when it is called."""
    return ExecutorSymbol(name)
