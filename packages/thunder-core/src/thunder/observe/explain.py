"""What was compiled and who runs it: the answers that executors gave, read off the traces."""

from __future__ import annotations

import functools
import io
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import thunder
from thunder.ir.effects import Access, StateKind
from thunder.ir.symbol import BoundSymbol, Phase, Refusal, Source
from thunder.ir.trace import Stage, Trace
from thunder.ir.types import TensorType, Var
from thunder.observe.history import Note, history_of
from thunder.observe.measured import measured_table
from thunder.observe.regions import fused_results, regions_table
from thunder.passes.chains import title

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from thunder.runtime.program import CompilationRecord


@dataclass(frozen=True)
class Row:
    """An operation of the program, or several that are equal in all of this.

    types: text of the types of its tensors, ``"cpu f32[4, 8], cpu f32[8, 8] -> cpu f32[4, 8]"``.
    executor: who runs it, and with what if that varies; empty before anyone was asked.
    """

    source: Source | None
    symbol: str
    types: str
    executor: str
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True)
class StateUse:
    """How a program touches one kind of state: which operations, how often, and in which phases its closer runs."""

    state: StateKind
    symbols: tuple[tuple[str, int], ...]
    closed_in: tuple[Phase, ...]


@dataclass(frozen=True)
class Explanation:
    """What a jitted function compiled. ``print`` it, or read the parts: one record for each graph.

    notes: recompilations, graph breaks, and graphs that run eagerly, with the reason.
    """

    records: tuple[CompilationRecord, ...]
    notes: tuple[Note, ...] = ()

    def __str__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        width = shutil.get_terminal_size((120, 24)).columns
        console = Console(file=text, width=width, color_system=None, highlight=False, markup=False, emoji=False)
        for part in self._parts():
            console.print(part)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def _parts(self) -> Iterable[RenderableType]:
        breaks = sum(note.kind == "graph break" for note in self.notes)
        eager = sum(note.kind == "eager" for note in self.notes)
        yield f"graphs compiled: {len(self.records)}, run eagerly: {eager}, graph breaks: {breaks}"
        yield from map(str, self.notes)
        for record in self.records:
            yield ""
            yield _operations_table(record)
            if record.decisions:
                yield measured_table(record.decisions)
            if record.regions:
                yield regions_table(record.regions)
            yield from (_state_line(use) for use in state_uses(record))
            yield _time_line(record)


def explain(f: Callable[..., Any]) -> Callable[..., Explanation]:
    """``explain(f)(*args, **kwargs)`` runs ``f`` once and says what was compiled for it.

    f: a jitted function or module, or one that is not jitted yet. If this run compiles nothing new, the answer covers
    all that ``f`` has compiled before.
    """

    @functools.wraps(f, updated=())
    def run(*args: Any, **kwargs: Any) -> Explanation:
        jitted = f if hasattr(f, "_thunder_records") else thunder.jit(f)
        history = history_of(jitted)
        records, notes, breaks = len(history.records), len(history.notes), _dynamo_breaks()
        jitted(*args, **kwargs)
        new = Explanation(tuple(history.records[records:]), tuple(history.notes[notes:]))
        skipped = _dynamo_breaks() - breaks
        if new.records or new.notes:
            return new
        if skipped:  # no graph reached the compiler, so nobody but Dynamo knows why
            return Explanation((), tuple([Note("graph break", None, reason.split("\n")[0]) for reason in skipped]))
        return Explanation(tuple(history.records), tuple(history.notes))

    return run


def _dynamo_breaks() -> Counter[str]:
    """How often Dynamo has broken off, by reason, in this process so far."""
    from torch._dynamo.utils import counters

    return Counter(counters["graph_break"])


def rows(record: CompilationRecord) -> Counter[Row]:
    """The operations of a compiled program in order, equal ones (of repeated layers) counted."""
    fused = fused_results(record)
    return Counter(_row(op, fused) for op in _selected(record).ops)


def state_uses(record: CompilationRecord) -> list[StateUse]:
    """The closable states that a compiled program updates, with their closers, in order of the states' names."""
    ops = [op for traces in (record.traces, record.backward_traces) if traces for op in traces[-1].ops]
    touched = [(effect.state, op) for op in ops for effect in op.effects if effect.access is not Access.READ]
    states = sorted({state for state, _ in touched if state.close}, key=lambda state: state.name)
    return [_state_use(state, [op for kind, op in touched if kind == state]) for state in states]


def _state_use(state: StateKind, ops: Sequence[BoundSymbol]) -> StateUse:
    symbols = Counter(op.sym.name for op in ops if op.sym.name != state.close)
    closers = dict.fromkeys(op.phase for op in ops if op.sym.name == state.close)
    return StateUse(state, tuple(symbols.items()), tuple(closers))


def _selected(record: CompilationRecord) -> Trace:
    """The trace in which executors were asked; before that has happened, the latest one."""
    selected = [trace for trace in record.traces if trace.stage is Stage.SELECTED]
    return (selected or record.traces)[-1]


def _row(op: BoundSymbol, fused: Mapping[Var, str]) -> Row:
    inputs, outputs = ([str(var.type) for var in variables] for variables in (op.inputs, op.outputs))
    types = f"{', '.join(inputs)} -> {', '.join(outputs)}"
    chosen = op.selection
    if chosen is None:
        return Row(op.source, title(op), types, "", ())
    executor = f"{chosen.executor} ({chosen.detail})" if chosen.detail else chosen.executor
    if op.outputs and all(v in fused for v in op.outputs):
        executor = f"{fused[op.outputs[0]]} region"
    return Row(op.source, title(op), types, executor, chosen.refusals)


def _operations_table(record: CompilationRecord) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    trace = _selected(record)
    devices = {var.type.device for var in trace.variables() if isinstance(var.type, TensorType)}
    device = devices.pop() if len(devices) == 1 else ""
    title = f"{trace.name}, on {device}" if device else trace.name
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("line", overflow="ellipsis", no_wrap=True, max_width=36)
    for heading in ("operation", "types", "runs on", "refused"):
        table.add_column(heading, overflow="fold")
    above: Source | None = None
    for row, count in rows(record).items():
        times = f"{count}x" if count > 1 else ""
        line = "" if row.source == above else _line(row.source)
        table.add_row(times, line, *_cells(row, device))
        above = row.source
    return table


def _cells(row: Row, device: str) -> tuple[str, str, str, str]:
    """Operation, types, executor and refusals, without what all rows share or what makes types long."""
    types = row.types.replace(" grad", "")
    if device:
        types = types.replace(f"{device} ", "")
    refused = "\n".join(f"{refusal.executor}: {refusal.reason}" for refusal in row.refusals)
    return row.symbol.replace("torch.nn.functional.", "F."), types, row.executor, refused


def _line(source: Source | None) -> str:
    return f"{PurePath(source.file).name}:{source.line}  {source.text}" if source else ""


def _state_line(use: StateUse) -> str:
    users = ", ".join(f"{count}x {symbol}" for symbol, count in use.symbols)
    phases = " and ".join(phase.value for phase in use.closed_in) or "no phase"
    return f"state {use.state.name}: updated by {users}; closed by {use.state.close} in {phases}"


def _time_line(record: CompilationRecord) -> str:
    passes = ", ".join(f"{name} {seconds * 1e3:.1f}" for name, seconds in record.times.items())
    return f"compiled in {sum(record.times.values()) * 1e3:.1f} ms: {passes}"
