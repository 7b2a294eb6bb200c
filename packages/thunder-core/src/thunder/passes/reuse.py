"""Memory of dead values is written again: by regions into what they read last, by matrix products as ``out=``.

What is written again is still in the cache, and asks nothing of the allocator, which would have to ask the operating
system. Only memory that the program made is reused, none that it is given, returns or saves, and only if every
operation on it is known not to keep it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from thunder.ir import tree
from thunder.ir.effects import RANDOM
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Names, Trace
from thunder.ir.types import TensorType, Type, Var
from thunder.lang.names import resolve_symbol
from thunder.lang.values import is_dense
from thunder.passes.bodies import Bodies
from thunder.prims.facts import has_flops, is_view, makes_new_tensors, takes_out


def reuse(trace: Trace, bodies: Bodies, given: Collection[Var] = ()) -> Trace:
    """The scheduled trace, with regions that say what they may overwrite and products that say where to write.

    given: parameters whose memory it may take; those that it does take are its ``spent``.
    """
    memory = _Memory(trace, bodies, given)
    free: dict[TensorType, list[Var]] = {}
    ops = []
    for index, op in enumerate(trace.ops):
        dying = memory.dying(index)
        if op.fused is not None:
            op = _overwriting(op, op.fused, dying, memory)
        elif _writes_out(op) and (found := _taken(op.outputs[0], free, memory)) is not None:
            op = replace(op, kwargs={**op.kwargs, "out": found})
        for var in dying:
            free.setdefault(_layout(var), []).append(var)
        ops.append(op)
    spent = tuple(v for v in trace.params if v in memory.taken)
    return trace.with_ops(ops, made_by="reuse", spent=spent)


def owned(trace: Trace, bodies: Bodies) -> set[Var]:
    """The results of a scheduled trace whose memory nothing else refers to, once it has run."""
    memory = _Memory(trace, bodies)
    returned = [leaf for leaf in tree.leaves(trace.result) if isinstance(leaf, Var)]  # some of them twice
    owners = [memory.owner[v] for v in returned]
    return {v for v in returned if owners.count(v) == 1 and v not in memory.kept}


def _overwriting(op: BoundSymbol, region: Trace, dying: Sequence[Var], memory: _Memory) -> BoundSymbol:
    """The call of a region that knows which dead arguments have room for its results; it takes their memory."""
    owners = [memory.owner[v] for v in op.inputs]
    spent = []
    for param, v in zip(region.params, op.args, strict=True):
        outs = [out for out in op.outputs if v in dying and _is_full(out.type) and _room(out) == _room(v)]
        if outs and owners.count(memory.owner[v]) == 1 and all(memory.has_room(v, out) for out in outs):
            memory.take(v, outs)
            spent.append(param)
    return replace(op, fused=replace(region, spent=tuple(spent))) if spent else op


def _taken(out: Var, free: dict[TensorType, list[Var]], memory: _Memory) -> Var | None:
    """A dead variable of the same type, the one that died last; its memory is taken."""
    candidates = free.get(_layout(out), [])
    found = next((v for v in reversed(candidates) if memory.has_room(v, out)), None)
    if found is not None:
        candidates.remove(found)
        memory.take(found, [out])
    return found


def _writes_out(op: BoundSymbol) -> bool:
    """True for a matrix product that runs as a function of torch with an ``out=``."""
    if not op.sym.name.startswith("aten.") or op.is_claimed or not (op.call or "").startswith("torch:"):
        return False
    overload = resolve_symbol(op.sym.name)
    plain = len(op.outputs) == 1 and "." not in (op.call or "")
    return plain and has_flops(overload) and takes_out(overload)


def _room(var: Var) -> tuple[str, str, Any]:
    assert isinstance(var.type, TensorType)
    return var.type.device, var.type.dtype, var.type.numel


def _layout(var: Var) -> TensorType:
    assert isinstance(var.type, TensorType)
    return var.type.detached


def _is_full(type: Type) -> bool:
    """True for a tensor of sizes known now whose elements fill its memory."""
    return isinstance(type, TensorType) and not type.is_symbolic and is_dense(type) and type.numel > 0


def _fills(var: Var, owner: Var) -> bool:
    """True if a variable is all of its owner's memory. Views of complex numbers may be conjugates, and are not."""
    if not _is_full(var.type) or not _is_full(owner.type):
        return False
    return var is owner or (_room(var) == _room(owner) and not _room(var)[1].startswith("complex"))


class _Memory:
    """Which variables of a trace share memory, and when the memory that it owns is dead.

    owner: for each variable, the one that stands for its memory; it is a view of any other. kept: the owners that
    others may refer to. taken: the owners whose memory is used again. views: what is a view for autograd.
    """

    def __init__(self, trace: Trace, bodies: Bodies, given: Collection[Var] = ()) -> None:
        self.owner = {v: v for v in trace.params}
        self.taken: set[Var] = set()
        self._names = Names.of(trace)
        self._bodies = bodies
        self.kept = set(trace.params).difference(given)
        last: dict[Var, int] = {}
        for index, op in enumerate(trace.ops):
            shared = self._shared(op)
            self.owner.update({v: v for v in op.outputs} if shared is None else shared)
            touched = {self.owner[v] for v in (*op.inputs, *op.outputs)}
            last.update(dict.fromkeys(touched, index))
            if shared is None:
                self.kept |= touched
        self._held = self.kept.union(self.owner[v] for v in trace.results)
        self.views = {var for var, owner in self.owner.items() if var is not owner}
        self._dying: dict[int, list[Var]] = {}
        for var, owner in self.owner.items():
            if owner not in self._held and owner in last and _fills(var, owner):
                self._dying.setdefault(last[owner], []).append(var)

    def dying(self, index: int) -> list[Var]:
        """The variables whose memory nobody reads after an operation. Those that leave gaps in it are left out."""
        return self._dying.get(index, [])

    def has_room(self, var: Var, out: Var) -> bool:
        """True if a result may be written into a dead variable: what leaves the trace may be no view for autograd."""
        return self.owner[var] not in self.taken and not (var in self.views and out in self._held)

    def take(self, var: Var, outs: Collection[Var]) -> None:
        """One of these results is written into a dead variable: it may be the same tensor."""
        self.taken.add(self.owner[var])
        if var in self.views:
            self.views.update(outs)

    def _shared(self, op: BoundSymbol) -> dict[Var, Var] | None:
        """The owner of each result; None if the operation may keep what it is given or share it otherwise."""
        if any(effect.state is not RANDOM for effect in op.effects):
            return None
        if op.fused is not None:
            return {v: v for v in op.outputs}
        if op.is_claimed:
            return None
        if op.sym.name.startswith("aten."):
            return self._shared_by_operator(op, self.owner)
        return self._shared_by_parts(op)

    def _shared_by_operator(self, op: BoundSymbol, owner: Mapping[Var, Var]) -> dict[Var, Var] | None:
        overload = resolve_symbol(op.sym.name)
        if is_view(overload):
            base = op.args[0] if op.args else None
            return dict.fromkeys(op.outputs, owner[base]) if isinstance(base, Var) else None
        return {v: v for v in op.outputs} if makes_new_tensors(overload) else None

    def _shared_by_parts(self, op: BoundSymbol) -> dict[Var, Var] | None:
        """The same for a composite, from what it is made of."""
        parts = self._bodies.prims(op, self._names)
        owner = ChainMap[Var, Var]({}, self.owner)
        for part in parts or ():
            shared = self._shared_by_operator(part, owner) if part.sym.name.startswith("aten.") else None
            if shared is None:
                return None
            owner.update(shared)
        if not parts or any(v not in owner for v in op.outputs):
            return None
        first: dict[Var, Var] = {}  # of the results in memory that the call makes
        return {v: owner[v] if owner[v] in self.owner else first.setdefault(owner[v], v) for v in op.outputs}
