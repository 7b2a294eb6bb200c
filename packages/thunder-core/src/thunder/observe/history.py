"""What a jitted function has compiled so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from thunder.errors import ThunderError
from thunder.ir.symbol import Source
from thunder.ir.trace import Trace

if TYPE_CHECKING:
    from thunder.runtime.program import CompilationRecord


@dataclass(frozen=True)
class Note:
    """Something that costs time: a recompilation, or what runs outside the compiler.

    source: where in the user's program; None if that is nowhere in particular, or unknown.
    """

    kind: Literal["graph break", "eager", "recompile", "by size"]
    source: Source | None
    reason: str

    def __str__(self) -> str:
        where = f" at {self.source}" if self.source else ""
        return f"{self.kind}{where}: {self.reason}"


@dataclass
class History:
    """Everything one jitted function has compiled, in order. Both lists only grow."""

    records: list[CompilationRecord] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def history_of(f: Callable[..., Any]) -> History:
    """The history of a jitted function or module. Raises ThunderError if ``f`` is not jitted."""
    records = getattr(f, "_thunder_records", None)
    if records is None:
        raise ThunderError(
            f"{getattr(f, '__name__', f)!s} is not jitted",
            why="only what thunder.jit returns has traces",
            fix="jitted = thunder.jit(f); call it once; then ask for the traces of jitted",
        )
    return History(records, getattr(f, "_thunder_notes", []))


class Traces(list[Trace]):
    """Traces of one compilation, first to last. Its repr lists them; asking for one of none is a ThunderError."""

    def __init__(self, traces: Iterable[Trace], advice: str) -> None:
        super().__init__(traces)
        self._advice = advice

    def __getitem__(self, index: Any) -> Any:
        if not self and not isinstance(index, slice):
            raise ThunderError("there are no traces", why="no such program has been compiled yet", fix=self._advice)
        return super().__getitem__(index)

    def __repr__(self) -> str:
        if not self:
            return "[]"
        rows = [f"  {place}: {trace.stage.value}, operations: {len(trace.ops)}" for place, trace in enumerate(self)]
        return "\n".join([f"traces of {self[0].name}; print one to read it, the last is what runs", *rows])


def last_traces(f: Callable[..., Any]) -> list[Trace]:
    """The forward traces of the last compilation of a jitted function, one per stage, first to last.

    Empty if it has compiled nothing yet. Raises ThunderError if ``f`` is not jitted.
    """
    records = history_of(f).records
    return Traces(records[-1].traces if records else (), "call the jitted function once")


def last_backward_traces(f: Callable[..., Any]) -> list[Trace]:
    """As ``last_traces``, of the backward program; empty if nothing was differentiated."""
    records = history_of(f).records
    advice = "call the jitted function once, in grad mode and with inputs or parameters that require grad"
    return Traces(records[-1].backward_traces if records else (), advice)
