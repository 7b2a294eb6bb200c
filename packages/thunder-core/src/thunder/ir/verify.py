"""The rules a trace obeys at each stage. Passes are checked against them in tests and under ``THUNDER_VERIFY=1``."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import NoReturn

from thunder.errors import VerifyError
from thunder.ir import tree
from thunder.ir.deps import PHASE_RANK
from thunder.ir.effects import MEMORY, Access, StateKind
from thunder.ir.spelling import NUMBER_MODULES, names_in
from thunder.ir.symbol import BoundSymbol, Phase
from thunder.ir.trace import Stage, Trace
from thunder.ir.types import Const, Number, NumberType, Ref, Var

Rule = Callable[[BoundSymbol], str | None]
"""What an operation breaks, if anything."""

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))
"""The Python values that may be leaves of arguments; everything else is a Const or a Ref."""


def verify(trace: Trace, stage: Stage | None = None) -> None:
    """Raises VerifyError, with the operation, the user's line and the rule, if the trace breaks a rule of its stage."""
    stage = stage or trace.stage
    _verify_names(trace)
    _verify_definitions(trace, in_place=stage is Stage.CAPTURED)
    for op in trace.ops:
        for rule in GRAMMAR[stage]:
            broken = rule(op)
            if broken:
                _reject(trace, op, broken)
    for earlier, op in pairwise(trace.ops):
        if PHASE_RANK[earlier.phase] > PHASE_RANK[op.phase]:
            _reject(trace, op, f"{op.phase.value} operations come before {earlier.phase.value} operations")


def verify_effects(before: Trace, after: Trace) -> None:
    """Raises VerifyError if an operation came through a pass without an effect it had.

    An operation came through if the same symbol still makes the same outputs or, if it makes none, has the same inputs.
    """
    had = {(op.sym, op.outputs or op.inputs): op for op in before.ops}
    for op in after.ops:
        old = had.get((op.sym, op.outputs or op.inputs))
        lost = set(old.effects).difference(op.effects) if old else ()
        for effect in lost:
            _reject(after, op, f"{after.made_by or 'a pass'} dropped its {effect.access.name} of {effect.state.name}")


def verify_schedule(traces: Mapping[Phase, Trace]) -> None:
    """Raises VerifyError unless exactly the closable states that were touched are closed, each where it is owed.

    A trace has at most one closer of each kind, after the last access to it.
    """
    phases = sorted(traces, key=PHASE_RANK.__getitem__)
    kinds = {e.state.name: e.state for trace in traces.values() for op in trace.ops for e in op.effects}
    for kind in filter(lambda kind: kind.close, kinds.values()):
        histories = {phase: _History(traces[phase], kind) for phase in phases}
        for history in histories.values():
            history.verify_order()
        for handle in {handle: None for h in histories.values() for handle in (*h.touched, *h.closed)}:
            touched = [phase for phase in phases if handle in histories[phase].touched]
            due = {"first": touched[:1], "last": touched[-1:], "each": touched}[kind.closes]
            closed = [phase for phase in phases if handle in histories[phase].closed]
            if closed != due:
                raise VerifyError(
                    f"{kind.name} ({handle or 'ambient'}) is closed in {_listed(closed)}, owed in {_listed(due)}",
                    why=f"{kind.close} is owed by the {kind.closes} phase that touches the state; "
                    f"{_listed(touched)} touched it",
                )


class _History:
    """Where one trace touches, reads and closes the states of one kind, by handle."""

    def __init__(self, trace: Trace, kind: StateKind) -> None:
        self.trace, self.kind = trace, kind
        self.accessed: dict[Var | None, int] = {}
        self.touched: set[Var | None] = set()
        self.closed: set[Var | None] = set()
        self.closers: list[int] = []
        for index, op in enumerate(trace.ops):
            effects = [e for e in op.effects if e.state.name == kind.name]
            if effects and op.sym.name == kind.close:
                self.closers.append(index)
                self.closed.update(e.handle for e in effects)
                continue
            self.accessed.update((e.handle, index) for e in effects)
            self.touched.update(e.handle for e in effects if e.access is not Access.READ)

    def verify_order(self) -> None:
        """At most one closer, and after every access."""
        for index in self.closers[1:]:
            _reject(self.trace, self.trace.ops[index], f"{self.kind.name} is already closed")
        last = max(self.accessed.values(), default=-1)
        if self.closers and last > self.closers[0]:
            _reject(self.trace, self.trace.ops[last], f"it touches {self.kind.name} after {self.kind.close}")


def _verify_names(trace: Trace) -> None:
    seen: dict[str, Var] = {}
    for name in (trace.name, *(var.name for var in trace.variables())):
        if not name.isidentifier() or keyword.iskeyword(name) or name == "_":
            raise VerifyError(f"{name!r} in {trace.name} is not a name that Python accepts for a variable")
    for var in trace.variables():
        if seen.setdefault(var.name, var) != var:
            raise VerifyError(f"{trace.name} has two variables named {var.name}", why="names are unique in a trace")
    if len(set(trace.params)) < len(trace.params):
        raise VerifyError(f"{trace.name} has a parameter twice", why=", ".join(var.name for var in trace.params))


def _verify_definitions(trace: Trace, *, in_place: bool) -> None:
    defined = set(trace.params)
    for op in trace.ops:
        for var in op.inputs:
            if var not in defined:
                _reject(trace, op, f"{var.name} is used before it is defined")
        for effect in op.effects:
            if effect.handle is not None and effect.handle not in op.inputs:
                _reject(trace, op, f"{effect.handle.name}, the handle of {effect.state.name}, is not an argument")
        for var in op.outputs:
            if var in defined and not (in_place and var in op.inputs):
                _reject(trace, op, f"{var.name} is defined twice")
        defined.update(op.outputs)
    for var in trace.results:
        if var not in defined:
            raise VerifyError(f"{trace.name} returns {var.name}, which is not defined")
    numbers = {leaf for leaf in tree.leaves([(op.args, op.kwargs) for op in trace.ops]) if isinstance(leaf, Number)}
    taken = {param.name for param in trace.params if isinstance(param.type, NumberType)}
    for number in numbers:
        if unknown := names_in(number.text) - taken - NUMBER_MODULES:
            raise VerifyError(f"{trace.name} reads {', '.join(sorted(unknown))} in {number}, and does not take it")


def _leaves_are_values(op: BoundSymbol) -> str | None:
    for leaf in tree.leaves((op.args, op.kwargs)):
        if not isinstance(leaf, (Var, Const, Number, Ref, *PLAIN)):
            return f"an argument of type {type(leaf).__name__} must be a Const or a Ref"
    return None


def _outs_are_variables(op: BoundSymbol) -> str | None:
    if any(isinstance(node, dict) for node in _nodes(op.outs)):
        return "outs are tuples and lists, not dicts"
    if any(not (leaf is None or isinstance(leaf, Var)) for leaf in tree.leaves(op.outs)):
        return "the leaves of outs are variables or None"
    return None


def _closes_nothing(op: BoundSymbol) -> str | None:
    closes = any(effect.state.close == op.sym.name for effect in op.effects)
    return "closers are derived by schedule" if closes else None


def _epilogue_owes_nothing(op: BoundSymbol) -> str | None:
    owing = op.phase is Phase.EPILOGUE and any(e.state.close for e in op.effects)
    return "the epilogue may not touch a state that must be closed" if owing else None


def _memory_is_written_last(op: BoundSymbol) -> str | None:
    writes = any(e.state.name == MEMORY.name and e.access is Access.WRITE for e in op.effects)
    return "only the epilogue writes memory" if writes and op.phase is not Phase.EPILOGUE else None


def _is_selected(op: BoundSymbol) -> str | None:
    return None if op.selection else "no executor is selected"


def _is_lowered(op: BoundSymbol) -> str | None:
    return None if op.call or op.fused else "it has no call"


_VALUES = (_leaves_are_values, _outs_are_variables)
_SCHEDULED = (*_VALUES, _epilogue_owes_nothing, _memory_is_written_last, _is_lowered)
_FUNCTIONAL = (*_VALUES, _epilogue_owes_nothing, _memory_is_written_last, _closes_nothing)
GRAMMAR: dict[Stage, tuple[Rule, ...]] = {
    Stage.CAPTURED: (*_VALUES, _closes_nothing),
    Stage.FUNCTIONAL: _FUNCTIONAL,
    Stage.SELECTED: (*_FUNCTIONAL, _is_selected),
    Stage.JOINT: _FUNCTIONAL,
    Stage.LOWERED: (*_FUNCTIONAL, _is_lowered),
    Stage.SCHEDULED: _SCHEDULED,
}
"""What each operation must satisfy at each stage."""


def _nodes(value: object) -> Iterator[object]:
    yield value
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _nodes(item)


def _listed(phases: list[Phase]) -> str:
    return " and ".join(phase.value for phase in phases) or "no phase"


def _reject(trace: Trace, op: BoundSymbol, rule: str) -> NoReturn:
    raise VerifyError(f"{op.sym} in {trace.name} ({trace.stage.value}): {rule}", where=str(op.source or ""))
