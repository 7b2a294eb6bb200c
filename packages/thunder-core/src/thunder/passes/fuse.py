"""Fusing: groups of operations that a fuser runs as one call each.

Views are no part of the graph that is partitioned: a region takes its own of what it reads, and what reads a view
outside takes it of a region's result. So results of regions never share memory with anything, aliases outside are what
they were, and a view costs nothing inside, nor does a copy to another memory format (see ``layouts``). A composite is
opened where a part of it that computes is in a region; otherwise it stays as it is, and the rest is partitioned with it
as one operation: else a group could come to depend on itself through it.

One operation is a region where the fuser says that it is faster. Where regions are timed any may be one, and others
(matrix products) join the region that is all they lead to if it is faster for that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

from thunder.ir import tree
from thunder.ir.deps import deps
from thunder.ir.symbol import BoundSymbol, Phase, Selection, Symbol
from thunder.ir.trace import Names, Trace
from thunder.ir.types import TensorType, Var
from thunder.passes.bodies import Bodies
from thunder.passes.costs import multiplies, size, views
from thunder.passes.dce import live
from thunder.passes.fusers import ActiveFuser
from thunder.passes.layouts import relaid
from thunder.passes.lower import native_call
from thunder.passes.partition import Graph, Node, joined, partition
from thunder.passes.regions import is_symbolic, region_of
from thunder.passes.schedule import topological

Members = tuple[int, ...]
"""The positions of the parts that make up a group."""

Faster = Callable[[Sequence[tuple[Trace, Trace]]], Sequence[bool]]
"""Whether regions are faster than the programs beside them: the same, with what joined the region outside."""


@dataclass(frozen=True)
class Part:
    """An operation of the trace, or one that a composite is made of.

    whole: the position of the operation in the trace. computes, view: the fuser supports it, and it computes or it only
    views memory. joins: the fuser supports it in a region that is timed.
    """

    op: BoundSymbol
    whole: int
    computes: bool = False
    view: bool = False
    joins: bool = False


class Fusion:
    """Fuses the traces of one compilation for one fuser.

    names: of the compilation. wanted: whether a region is to be fused; it is the same for equal regions.
    faster: which regions gain by what joins them; None: nothing is timed, and nothing joins.
    """

    def __init__(
        self,
        fuser: ActiveFuser,
        bodies: Bodies,
        names: Names,
        wanted: Callable[[Trace], bool],
        faster: Faster | None = None,
    ) -> None:
        self._fuser = fuser
        self._bodies = bodies
        self._names = names
        self._wanted = wanted
        self._faster = faster
        self._fuel = fuser.fuel
        self._supported: dict[Hashable, bool] = {}

    def fuse(self, trace: Trace) -> Trace:
        """The lowered trace with each of its regions as one operation; the identical trace if there are none."""
        trace, free = relaid(trace, self.is_cheap, self._is_view, self._names)
        read = {v for op in trace.ops for v in op.inputs}.union(trace.results)
        parts = [part for index, op in enumerate(trace.ops) for part in self._parts(index, op, read, free)]
        while groups := self._wanted_groups(parts, trace):
            opened = {parts[place].whole for members in groups for place in members}
            idle = {part.whole for part in parts if part.computes and part.op is not trace.ops[part.whole]} - opened
            if not idle:
                fueled = groups[: self._fuel]
                self._fuel = None if self._fuel is None else self._fuel - len(fueled)
                return _Draft(trace, parts, fueled, opened, self._fuser.name).trace()
            parts = list(_closed(parts, idle, trace))
        return trace

    def _wanted_groups(self, parts: Sequence[Part], trace: Trace) -> list[Members]:
        """The groups that are worth a call, of what is worth it beside them."""
        found = _groups(parts, trace)
        smaller = {members: alone for members, alone in found.items() if members != alone}
        groups = [members for members in found if len(members) > 1 or self._may_be_alone(parts, members)]
        while groups:
            opened = {parts[place].whole for members in groups for place in members}
            fused = _Draft(trace, parts, groups, opened, self._fuser.name).fused
            regions = {members: op.fused for members, op in fused.items() if op.fused}
            losing = self._losing({m: region for m, region in regions.items() if m in smaller})
            wanted = [m for m, region in regions.items() if m in smaller or self._wanted(region)]
            if len(wanted) == len(groups) and not losing:
                break
            groups = [smaller[m] if m in losing else m for m in wanted]
        return groups

    def _may_be_alone(self, parts: Sequence[Part], members: Members) -> bool:
        """True for one operation that is timed as a region, or that the fuser says it is faster for."""
        return self._faster is not None or any(self._fuser.is_faster_alone(parts[place].op) for place in members)

    def _losing(self, larger: Mapping[Members, Trace]) -> list[Members]:
        """The groups, of some with what joined them, that are not faster for it, or cannot be timed for all sizes."""
        timed = {members: region for members, region in larger.items() if not is_symbolic(region)}
        if self._faster is None or not timed:
            return [*larger]
        faster = self._faster([(region, self._apart(region)) for region in timed.values()])
        gaining = {members for members, gains in zip(timed, faster, strict=True) if gains}
        return [members for members in larger if members not in gaining]

    def _apart(self, region: Trace) -> Trace:
        """A region as what joined it, and a region of the rest."""
        read = set(region.variables())
        parts = [self._part(op, index, read, free=frozenset()) for index, op in enumerate(region.ops)]
        members = tuple(place for place, part in enumerate(parts) if part.computes)
        return _Draft(region, parts, [members], set(range(len(parts))), self._fuser.name).trace()

    def is_cheap(self, op: BoundSymbol) -> bool:
        """True if the fuser can run all that an operation computes beyond views, and none of it is a matrix product."""
        parts = [part for part in self._parts(0, op, set(op.outputs)) if not part.view]
        return bool(parts) and all(part.computes and not multiplies(part.op) for part in parts)

    def _is_view(self, op: BoundSymbol) -> bool:
        """True if an operation does nothing but view memory."""
        return all(part.view for part in self._parts(0, op, set(op.outputs)))

    def _parts(self, index: int, op: BoundSymbol, read: Set[Var], free: Set[Var] = frozenset()) -> list[Part]:
        """The operation, or what it is made of if some of that can be fused, or if all is views of one argument.

        read: what others read of the variables of the trace. free: copies that are as good as views.
        """
        if op.phase is Phase.EPILOGUE or op.fused or op.is_claimed:
            return [Part(op, index)]
        if self._fuser.is_asked_for(op):
            return [self._part(op, index, read, free)]
        body = None if op.effects else self._bodies.prims(op, self._names)
        if body is None:
            return [Part(op, index)]
        lowered = (part.with_facts(call=native_call(part), selection=op.selection) for part in body)
        inside = {*read, *(v for part in body for v in part.inputs)}
        parts = [self._part(part, index, inside, free) for part in lowered]
        is_view = len(op.inputs) == 1 and all(part.view for part in parts)
        opens = is_view or any(part.computes for part in parts) or _joins_as_one(op, parts)
        return parts if opens else [Part(op, index)]

    def _part(self, op: BoundSymbol, index: int, read: Set[Var], free: Set[Var]) -> Part:
        op = _without_empty(op, read)
        supported = self._supports(op)
        view = supported and not op.effects and len(op.inputs) == 1 and (views(op) or not free.isdisjoint(op.outputs))
        timed = self._faster is not None and not op.is_symbolic
        joins = timed and not supported and self._supports(op, measured=True)
        return Part(op, index, computes=supported and not view, view=view, joins=joins)

    def _supports(self, op: BoundSymbol, measured: bool = False) -> bool:
        """The fuser's answer, asked for once for equal calls."""
        key = (op.sym.name, op.effects, tree.freeze(tree.map_tree(_type, (op.args, op.kwargs, op.outs))), measured)
        if key not in self._supported:
            self._supported[key] = self._fuser.supports(op, measured)
        return self._supported[key]


def _type(leaf: Any) -> Any:
    return leaf.type if isinstance(leaf, Var) else leaf


def _joins_as_one(op: BoundSymbol, parts: Sequence[Part]) -> bool:
    """True if a composite is views around one operation that may join a region, and returns what that makes."""
    work = [part for part in parts if not part.view]
    return len(work) == len(op.outputs) == 1 and work[0].joins


def _without_empty(op: BoundSymbol, read: Set[Var]) -> BoundSymbol:
    """The operation without the results that have no elements and no reader: they are no work for anybody."""

    def kept(leaf: Any) -> Any:
        empty = isinstance(leaf, Var) and isinstance(leaf.type, TensorType) and 0 in leaf.type.shape
        return None if empty and leaf not in read else leaf

    outs = tree.map_tree(kept, op.outs)
    return op if outs == op.outs else replace(op, outs=outs)


def _closed(parts: Iterable[Part], wholes: Set[int], trace: Trace) -> Iterator[Part]:
    """The parts, those of some operations of the trace put together again: nothing of them is fused."""
    for whole, group in groupby(parts, lambda part: part.whole):
        yield from [Part(trace.ops[whole], whole)] if whole in wholes else group


def _groups(parts: Sequence[Part], trace: Trace) -> dict[Members, Members]:
    """What the fuser could run as one call each: with what may join it, and without."""
    base = _bases([part.op for part in parts if part.view])
    before = deps([part.op for part in parts])
    nodes: list[Node] = []
    places: list[int] = []  # of each node, among the parts
    until: list[frozenset[int]] = []  # of each part, the nodes that it waits for, seen through views
    for place, part in enumerate(parts):
        earlier = frozenset(node for p in before[place] for node in until[p])
        until.append(earlier if part.view else frozenset({len(nodes)}))
        if not part.view:
            reads = tuple(dict.fromkeys(base.get(v, v) for v in part.op.inputs))
            kind, joins = (_device(part.op) if able else None for able in (part.computes, part.joins))
            nodes.append(Node(kind, earlier, reads, part.op.outputs, joins))
            places.append(place)
    sizes: dict[Hashable, int] = {v: size(v.type) for part in parts for v in (*part.op.inputs, *part.op.outputs)}
    kept = frozenset(base.get(v, v) for v in trace.results)
    graph = Graph(nodes, sizes, kept)
    groups = partition(graph)
    with_joined, alone = ([tuple(places[n] for n in group) for group in of] for of in (joined(graph, groups), groups))
    return dict(zip(with_joined, alone, strict=True))


def _device(op: BoundSymbol) -> str | None:
    """Where it runs: a group is on one device."""
    devices = {v.type.device for v in op.outputs if isinstance(v.type, TensorType)}
    return devices.pop() if len(devices) == 1 else None


def _bases(views: Sequence[BoundSymbol]) -> dict[Var, Var]:
    """What each view is, in the end, a view of."""
    base: dict[Var, Var] = {}
    for op in views:
        base.update((out, base.get(op.inputs[0], op.inputs[0])) for out in op.outputs)
    return base


class _Draft:
    """The trace with some groups as fused operations.

    opened: the operations of the trace that are replaced by their parts; of the others, only views are seen through.
    """

    def __init__(
        self, trace: Trace, parts: Sequence[Part], groups: Sequence[Members], opened: Set[int], name: str
    ) -> None:
        self._trace = trace
        self._parts = parts
        self._name = name
        self._groups = groups
        self._group = {place: members for members in groups for place in members}
        self._opened = opened
        closed = {part.whole for part in parts if not part.view} - opened
        transparent = [part.op for part in parts if part.view and part.whole not in closed]
        self._views = {v: op for op in transparent for v in op.outputs}
        self._base = _bases(transparent)

    @cached_property
    def fused(self) -> dict[Members, BoundSymbol]:
        """The fused operation of each group, with the results that somebody reads."""
        kept = live(self._around({members: self._outline(members) for members in self._groups}), self._trace.results)
        read = {v for op in kept for v in op.inputs}.union(self._trace.results)
        return {members: self._op(members, [v for v in self._made(members) if v in read]) for members in self._groups}

    def _outline(self, members: Members) -> BoundSymbol:
        """What a group reads and makes."""
        made = self._made(members)
        read = dict.fromkeys(self._base.get(v, v) for place in members for v in self._parts[place].op.inputs)
        return BoundSymbol(Symbol(self._name), tuple(v for v in read if v not in made), outs=tuple(made))

    def trace(self) -> Trace:
        """The whole, in an order that runs."""
        ops = live(self._around(self.fused), self._trace.results)
        return self._trace.with_ops(topological(ops), made_by="fuse")

    def _made(self, members: Members) -> list[Var]:
        return [v for place in members for v in self._parts[place].op.outputs]

    def _op(self, members: Members, results: Sequence[Var]) -> BoundSymbol:
        ops = [self._parts[place].op for place in members]
        region, inputs = region_of(ops, self._views, results)
        return BoundSymbol(
            Symbol(f"{self._name}.region"),
            inputs,
            outs=tuple(results),
            effects=tuple(dict.fromkeys(effect for op in ops for effect in op.effects)),
            phase=ops[0].phase,
            selection=Selection(self._name),
            source=ops[0].source,
            fused=region,
        )

    def _around(self, fused: Mapping[Members, BoundSymbol]) -> list[BoundSymbol]:
        """The fused operations, each in the place of its last member, and all that is not in them."""
        ops: list[BoundSymbol] = []
        whole = -1
        for place, part in enumerate(self._parts):
            members = self._group.get(place)
            if members is not None and place == members[-1]:
                ops.append(fused[members])
            elif members is None and part.whole in self._opened:
                ops.append(part.op)
            elif members is None and part.whole != whole:
                ops.append(self._trace.ops[part.whole])
            whole = part.whole
        return ops
