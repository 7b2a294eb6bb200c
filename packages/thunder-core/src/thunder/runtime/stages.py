"""The last stages of a program: lowered, scheduled, with the handles of the states it touches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from thunder.ir.symbol import Phase
from thunder.ir.trace import Names, Trace
from thunder.ir.types import OpaqueType, Var
from thunder.passes.lower import Lowering
from thunder.passes.schedule import schedule
from thunder.plugins.spec import Executor, resolve


def leaving(trace: Trace) -> tuple[Var, ...]:
    """The variables made by forward operations that the epilogue or the result reads, in order."""
    made = {v for op in trace.ops if op.phase is Phase.FORWARD for v in op.outputs}
    read = [v for op in trace.ops if op.phase is Phase.EPILOGUE for v in op.inputs]
    return tuple(dict.fromkeys(v for v in (*read, *trace.results) if v in made))


class Backend:
    """Lowers and schedules the traces of one compilation, and makes the states they touch."""

    def __init__(self, lowering: Lowering, executors: Sequence[Executor], names: Names) -> None:
        self._lowering = lowering
        self._names = names
        self._calls = {op.name: op.impl for executor in executors for op in executor.symbols}
        self._kinds = {kind.name: kind for executor in executors for kind in executor.states}
        self._instances: dict[Var, Any] = {}

    def lower(self, trace: Trace) -> Trace:
        """The lowered trace; handles of the states it touches become its last parameters."""
        lowered = self._lowering.lower(trace, self._names)
        known = set(lowered.params)
        handles = dict.fromkeys(
            e.handle for op in lowered.ops for e in op.effects if isinstance(getattr(e.handle, "type", None), OpaqueType)
        )
        new = [handle for handle in handles if handle is not None and handle not in known]
        return replace(lowered, params=(*lowered.params, *new)) if new else lowered

    def lower_natively(self, trace: Trace) -> Trace:
        """The trace with every operation run by torch itself."""
        return self._lowering.lower_natively(trace)

    def schedule(self, traces: Mapping[Phase, Trace]) -> dict[Phase, Trace]:
        """The traces in their final order, with the closers they owe."""
        shared = dict.fromkeys(p for trace in traces.values() for p in trace.params if isinstance(p.type, OpaqueType))
        ready = {
            phase: replace(trace, params=(*trace.params, *(p for p in shared if p not in trace.params)))
            for phase, trace in traces.items()
        }
        return schedule(ready, self._calls)

    def handles(self, trace: Trace, first: int) -> tuple[Any, ...]:
        """The state instances for the trace's parameters from position ``first`` on."""
        return tuple(self._instance(handle) for handle in trace.params[first:] if isinstance(handle.type, OpaqueType))

    def _instance(self, handle: Var) -> Any:
        if handle not in self._instances:
            kind = self._kinds[handle.type.name]  # type: ignore[union-attr]
            self._instances[handle] = resolve(kind.init)() if kind.init else None
        return self._instances[handle]
