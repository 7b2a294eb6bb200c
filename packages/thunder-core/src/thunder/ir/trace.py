"""A trace: a straight-line program. The result is a field, so nothing can be placed after the return."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol
from thunder.ir.types import Type, Var


class Stage(Enum):
    """What has been done to a trace; ``ir.verify`` holds the grammar of each stage."""

    CAPTURED = "captured"
    FUNCTIONAL = "functional"
    SELECTED = "selected"
    JOINT = "joint"
    LOWERED = "lowered"
    SCHEDULED = "scheduled"


@dataclass(frozen=True)
class Trace:
    """``def name(*params): ops; return result``. ``made_by`` names the pass that made it.

    boxed: the parameters come in one list, which the program empties: nothing else keeps them alive, so that each is
    freed after its last use.
    spent: the parameters that it may overwrite: of a region those that are dead after it, of a backward program some of
    what forward saved for it.
    """

    name: str
    params: tuple[Var, ...]
    ops: tuple[BoundSymbol, ...]
    result: Any
    stage: Stage
    made_by: str = ""
    boxed: bool = False
    spent: tuple[Var, ...] = ()

    def with_ops(self, ops: Iterable[BoundSymbol], **changes: Any) -> Trace:
        """This trace with other operations; the identical object if they are the same."""
        ops = tuple(ops)
        if not changes and len(ops) == len(self.ops) and all(a is b for a, b in zip(ops, self.ops)):
            return self
        return replace(self, ops=ops, **changes)

    @property
    def bound_symbols(self) -> tuple[BoundSymbol, ...]:
        """The operations, under their customary name."""
        return self.ops

    @property
    def results(self) -> tuple[Var, ...]:
        """The different variables of the result."""
        return tree.variables(self.result)

    def variables(self) -> Iterator[Var]:
        """Every variable that the trace defines: parameters, then results of operations."""
        yield from self.params
        for op in self.ops:
            yield from op.outputs

    def __str__(self) -> str:
        from thunder.ir.printer import program_text

        return program_text(self)


class Names:
    """Fresh variable names within one trace."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    @classmethod
    def of(cls, trace: Trace) -> Names:
        """Names that clash with nothing in ``trace``."""
        return cls(v.name for v in trace.variables())

    def fresh(self, stem: str) -> str:
        """``stem`` itself if it is free, else ``stem_1``, ``stem_2``, …"""
        if stem not in self._taken:
            self._taken.add(stem)
            return stem
        n = self._next.get(stem, 1)
        while f"{stem}_{n}" in self._taken:
            n += 1
        self._next[stem] = n + 1
        name = f"{stem}_{n}"
        self._taken.add(name)
        return name

    def numbered(self, stem: str) -> str:
        """``stem0``, ``stem1``, …: the next free one."""
        n = self._next.get(stem + "#", 0)
        while f"{stem}{n}" in self._taken:
            n += 1
        self._next[stem + "#"] = n + 1
        name = f"{stem}{n}"
        self._taken.add(name)
        return name

    def var(self, stem: str, type: Type) -> Var:
        """A new variable named after ``stem``."""
        return Var(self.fresh(stem), type)
