"""The only place that orders: data dependencies, effects, phases, and the closers of the states that were touched."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType

from thunder.errors import VerifyError
from thunder.ir.deps import PHASE_RANK, deps
from thunder.ir.effects import Access, Effect, StateKind
from thunder.ir.symbol import BoundSymbol, Phase, Selection, Symbol
from thunder.ir.trace import Stage, Trace
from thunder.ir.types import Var

Handles = Set[Var | None]
NO_CALLS: Mapping[str, str] = MappingProxyType({})


def schedule(traces: Mapping[Phase, Trace], calls: Mapping[str, str] = NO_CALLS) -> dict[Phase, Trace]:
    """The lowered traces of one compilation, each scheduled beside the others; see ``schedule_phase``."""
    return {phase: schedule_phase(traces, phase, calls) for phase in traces}


def schedule_phase(traces: Mapping[Phase, Trace], phase: Phase, calls: Mapping[str, str] = NO_CALLS) -> Trace:
    """Orders one of the lowered traces of a compilation and adds the closers it owes; see ``effects.StateKind``.

    calls: ``"module:attribute"`` of each symbol that closes a state.
    The order of a trace is kept where it is legal. A closer takes the handles of all instances it closes, sorted by
    name, and follows the last access to them. Raises VerifyError if a trace is not at stage LOWERED, if an operation
    depends on itself, or if a closer has no callable.
    """
    for trace in traces.values():
        if trace.stage is not Stage.LOWERED:
            raise VerifyError(f"{trace.name} cannot be scheduled", why=f"it is {trace.stage.value}, not lowered")
    trace, owed = traces[phase], _owed(traces)[phase]
    return _scheduled(trace, [_closer(kind, phase, handles, trace, calls) for kind, handles in owed])


def topological(ops: Sequence[BoundSymbol]) -> list[BoundSymbol]:
    """The operations so that each follows what it depends on; by phase, then as listed, among those that may come next.

    Raises VerifyError if an operation depends on itself.
    """
    edges = deps(ops)
    missing = [len(before) for before in edges]
    followers: list[list[int]] = [[] for _ in ops]
    for index, before in enumerate(edges):
        for earlier in before:
            followers[earlier].append(index)
    ready = [(PHASE_RANK[op.phase], index) for index, op in enumerate(ops) if not missing[index]]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, index = heapq.heappop(ready)
        ordered.append(ops[index])
        for follower in followers[index]:
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, (PHASE_RANK[ops[follower].phase], follower))
    if len(ordered) < len(ops):
        stuck = next(op for op, count in zip(ops, missing, strict=True) if count)
        raise VerifyError(f"{stuck.sym} depends on itself", where=str(stuck.source or ""))
    return ordered


def _scheduled(trace: Trace, closers: Sequence[BoundSymbol]) -> Trace:
    ops = topological((*trace.ops, *closers))
    return trace.with_ops(ops, stage=Stage.SCHEDULED, made_by="schedule")


def _owed(traces: Mapping[Phase, Trace]) -> dict[Phase, list[tuple[StateKind, Handles]]]:
    """The closers owed by each trace, sorted by name of kind, with the handles (None: ambient state) each closes."""
    kinds: dict[str, StateKind] = {}
    touched: dict[str, dict[Phase, set[Var | None]]] = {}
    for phase in sorted(traces, key=PHASE_RANK.__getitem__):
        for op in traces[phase].ops:
            for effect in op.effects:
                if effect.state.close and effect.access is not Access.READ:
                    kinds[effect.state.name] = effect.state
                    touched.setdefault(effect.state.name, {}).setdefault(phase, set()).add(effect.handle)
    owed: dict[Phase, list[tuple[StateKind, Handles]]] = {phase: [] for phase in traces}
    for name in sorted(kinds):
        for phase, handles in _due(kinds[name], touched[name]).items():
            owed[phase].append((kinds[name], handles))
    return owed


def _due(kind: StateKind, touched: Mapping[Phase, Handles]) -> Mapping[Phase, Handles]:
    """The handles to close in each phase, from the handles touched in each phase, first phase to last."""
    if kind.closes == "each":
        return touched
    due: dict[Phase, Handles] = {}
    for phase in touched if kind.closes == "first" else reversed(list(touched)):
        new = touched[phase] - set().union(*due.values())
        if new:
            due[phase] = new
    return due


def _closer(kind: StateKind, phase: Phase, touched: Handles, trace: Trace, calls: Mapping[str, str]) -> BoundSymbol:
    assert kind.close is not None
    if kind.close not in calls:
        raise VerifyError(f"{kind.close} has no callable", why=f"it closes {kind.name}, which {trace.name} touches")
    handles = tuple(sorted((h for h in touched if h is not None), key=lambda h: h.name))
    executor = kind.name.partition(".")[0]
    return BoundSymbol(
        sym=Symbol(kind.close),
        args=handles,
        effects=tuple(Effect(kind, Access.WRITE, handle) for handle in handles or (None,)),
        phase=phase,
        selection=Selection(executor),
        call=calls[kind.close],
    )
