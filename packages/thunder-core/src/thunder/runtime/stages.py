"""The last stages of a program: lowered, scheduled, with the handles of the states it touches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from thunder.ir.symbol import BoundSymbol, Phase
from thunder.ir.trace import Names, Trace
from thunder.ir.types import OpaqueType, Var
from thunder.passes.lower import Lowering
from thunder.passes.schedule import schedule_phase
from thunder.plugins.spec import Executor
from thunder.runtime.codegen import compile_trace
from thunder.runtime.fusing import Regions
from thunder.runtime.states import States


def leaving(trace: Trace) -> tuple[Var, ...]:
    """The variables made by forward operations that the epilogue or the result reads, in order."""
    made = {v for op in trace.ops if op.phase is Phase.FORWARD for v in op.outputs}
    read = [v for op in trace.ops if op.phase is Phase.EPILOGUE for v in op.inputs]
    return tuple(dict.fromkeys(v for v in (*read, *trace.results) if v in made))


class Backend:
    """Lowers, fuses and schedules the traces of one compilation, and finds the states they touch."""

    def __init__(
        self, lowering: Lowering, executors: Sequence[Executor], names: Names, states: States, regions: Regions
    ) -> None:
        self.regions = regions
        self._lowering = lowering
        self._names = names
        self._calls = {op.name: op.impl for executor in executors for op in executor.symbols}
        self._kinds = {kind.name: kind for executor in executors for kind in executor.states}
        self._states = states

    def lower(self, trace: Trace) -> Trace:
        """The lowered trace; handles of the states it touches become its last parameters."""
        lowered = self._lowering.lower(trace, self._names)
        known = set(lowered.params)
        handles = dict.fromkeys(
            e.handle
            for op in lowered.ops
            for e in op.effects
            if isinstance(getattr(e.handle, "type", None), OpaqueType)
        )
        new = [handle for handle in handles if handle is not None and handle not in known]
        return replace(lowered, params=(*lowered.params, *new)) if new else lowered

    def lower_natively(self, trace: Trace) -> Trace:
        """The trace as eager mode would run it, with the numbers that its draws have."""
        return self._lowering.lower_natively(trace, self._names)

    def is_cheap(self, op: BoundSymbol) -> bool:
        """True if an operation runs inside a region, where it costs little. It need not be lowered."""
        return self._lowering.is_native(op) and self.regions.is_cheap(op)

    def function(self, trace: Trace) -> Callable[..., Any]:
        """What runs a scheduled trace."""
        return compile_trace(trace, self.regions.function)

    def schedule(self, traces: Mapping[Phase, Trace], phase: Phase) -> Trace:
        """One of the traces in its final order, with the closers that it owes beside the others."""
        return schedule_phase(traces, phase, self._calls)

    def handles(self, trace: Trace, first: int) -> tuple[Any, ...]:
        """The state instances for the trace's parameters from position ``first`` on."""
        types = (v.type for v in trace.params[first:])
        return tuple(self._states.find(self._kinds[t.name], t.of) for t in types if isinstance(t, OpaqueType))
