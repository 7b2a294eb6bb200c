"""The ``python`` executor: what is neither a tensor operation nor anybody else's."""

from __future__ import annotations

from collections.abc import Iterable

from thunder.plugins.hookspecs import hookimpl
from thunder.plugins.spec import Executor

PYTHON = Executor(name="python", summary="Python itself: runs the structural operations", default=True)


@hookimpl
def thunder_executors() -> Iterable[Executor]:
    """The one executor."""
    return (PYTHON,)
