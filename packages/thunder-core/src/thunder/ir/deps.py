"""What must run before what. Everything that orders or reorders operations asks this module, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from thunder.errors import VerifyError
from thunder.ir.effects import MEMORY, Access
from thunder.ir.symbol import BoundSymbol, Phase
from thunder.ir.trace import Trace
from thunder.ir.types import Var

Resource = tuple[str, Var | None]

PHASE_RANK = {phase: rank for rank, phase in enumerate(Phase)}
"""The operations of a trace are sorted by phase; this is the rank of each."""


def producers(trace: Trace) -> dict[Var, int]:
    """The index of the operation that makes each variable; parameters are absent."""
    return _producers(trace.ops)


def consumers(trace: Trace) -> dict[Var, list[int]]:
    """The indices of the operations that read each variable, ascending; variables nobody reads are absent."""
    readers: dict[Var, list[int]] = {}
    for index, op in enumerate(trace.ops):
        for var in op.inputs:
            readers.setdefault(var, []).append(index)
    return readers


def last_uses(trace: Trace) -> dict[Var, int]:
    """The index of the last operation that reads (or, if nobody reads it, makes) each variable.

    Absent are the variables of the result, which outlive every operation, and parameters that no operation reads.
    """
    last = {var: index for index, op in enumerate(trace.ops) for var in (*op.inputs, *op.outputs)}
    for var in trace.results:
        last.pop(var, None)
    return last


def deps(ops: Sequence[BoundSymbol]) -> tuple[frozenset[int], ...]:
    """For each operation, the indices of those that must run before it: makers of its inputs, and effect conflicts.

    Effects that conflict keep the order in which they are listed; a producer may be listed after its readers.
    Expects each variable to be made once (true from stage FUNCTIONAL on). Transitive edges are left out, so the work is
    linear, except that every read between two groups of updates is joined to each of these updates.
    """
    producer = _producers(ops)
    written = {e.handle for op in ops for e in op.effects if e.state.name == MEMORY.name}
    timelines: dict[Resource, _Timeline] = {}
    edges = []
    for index, op in enumerate(ops):
        before = {producer[var] for var in op.inputs if var in producer}
        for resource, access in _accesses(op, written).items():
            timeline = timelines.setdefault(resource, _Timeline())
            before.update(timeline.enter(index, access))
        edges.append(frozenset(before))
    return tuple(edges)


def reorder(trace: Trace, order: Iterable[int]) -> Trace:
    """The trace with its operations in the order of these indices.

    Raises VerifyError if ``order`` is not a permutation, breaks a dependency, or lets a phase start before an earlier
    one has ended.
    """
    order = tuple(order)
    if sorted(order) != list(range(len(trace.ops))):
        raise VerifyError(f"order for {trace.name} is not a permutation of its {len(trace.ops)} operations")
    position = {index: place for place, index in enumerate(order)}
    for index, before in enumerate(deps(trace.ops)):
        for earlier in before:
            if position[earlier] > position[index]:
                raise _misplaced(trace.ops[index], trace.ops[earlier], "it depends on it, by data or by an effect")
    for earlier, later in pairwise(order):
        first, second = trace.ops[earlier], trace.ops[later]
        if PHASE_RANK[first.phase] > PHASE_RANK[second.phase]:
            raise _misplaced(first, second, f"{second.phase.value} ends before {first.phase.value} starts")
    return trace.with_ops(trace.ops[index] for index in order)


@dataclass
class _Timeline:
    """The accesses to one resource so far: the latest group that commutes, and the group before it."""

    access: Access | None = None
    group: list[int] = field(default_factory=list)
    previous: list[int] = field(default_factory=list)

    def enter(self, index: int, access: Access) -> list[int]:
        """Adds an access; returns those it must follow."""
        if access is not self.access or access is Access.WRITE:
            self.access, self.group, self.previous = access, [], self.group
        self.group.append(index)
        return self.previous


def _producers(ops: Sequence[BoundSymbol]) -> dict[Var, int]:
    return {var: index for index, op in enumerate(ops) for var in op.outputs}


def _accesses(op: BoundSymbol, written: set[Var | None]) -> dict[Resource, Access]:
    """How it touches each resource. Reading a variable is reading its memory; touching in two ways is exclusive."""
    found: dict[Resource, Access] = {(MEMORY.name, var): Access.READ for var in op.inputs if var in written}
    for effect in op.effects:
        known = found.setdefault(effect.resource, effect.access)
        if known is not effect.access:
            found[effect.resource] = Access.WRITE
    return found


def _misplaced(op: BoundSymbol, earlier: BoundSymbol, why: str) -> VerifyError:
    return VerifyError(f"{op.sym} may not run before {earlier.sym}", where=str(op.source or ""), why=why)
