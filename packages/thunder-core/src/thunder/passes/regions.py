"""Regions: several operations as one program with canonical names, so that equal ones are equal wherever they stand."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol, Phase
from thunder.ir.trace import Stage, Trace
from thunder.ir.types import TensorType, Type, Var


def region_of(
    members: Iterable[BoundSymbol], views: Mapping[Var, BoundSymbol], results: Iterable[Var]
) -> tuple[Trace, tuple[Var, ...]]:
    """The region of some lowered operations, and what it reads: the variable for each of its parameters.

    Its parameters are ``p0, p1, …`` and its values ``v0, v1, …``, in the order of the operations, which is kept; its
    result is a tuple. views: operations that make a variable by viewing another; the region takes its own views.
    """
    builder = _Builder(views)
    for op in members:
        builder.add(op)
    result = tuple(builder.names[v] for v in results)
    trace = Trace("region", tuple(builder.params.values()), tuple(builder.ops), result, Stage.LOWERED, made_by="fuse")
    return trace, tuple(builder.params)


def region_key(region: Trace) -> Hashable:
    """Equal for equal regions only: constants of different types are different."""
    ops = tuple((op.sym.name, tree.freeze((op.args, op.kwargs, op.outs)), op.effects) for op in region.ops)
    return (tuple((p.name, p.type) for p in region.params), ops, tree.freeze(region.result), region.spent)


class _Builder:
    def __init__(self, views: Mapping[Var, BoundSymbol]) -> None:
        self.params: dict[Var, Var] = {}
        self.ops: list[BoundSymbol] = []
        self.names: dict[Var, Var] = {}
        self._views = views
        self._values = 0

    def add(self, op: BoundSymbol) -> None:
        """Add an operation, after the views that it reads."""
        for var in op.inputs:
            self._read(var)
        args, kwargs = (tree.substitute(part, self.names) for part in (op.args, op.kwargs))
        outs = tree.map_tree(self._made, op.outs)
        effects = tuple(replace(e, handle=self.names[e.handle]) if e.handle else e for e in op.effects)
        self.ops.append(BoundSymbol(op.sym, args, kwargs, outs, effects, Phase.FORWARD, call=op.call))

    def _read(self, var: Var) -> None:
        if var in self.names:
            return
        if var in self._views:
            self.add(self._views[var])
            return
        self.params[var] = self.names[var] = Var(f"p{len(self.params)}", _plain(var.type))

    def _made(self, leaf: Any) -> Any:
        if not isinstance(leaf, Var):
            return leaf
        self.names[leaf] = Var(f"v{self._values}", _plain(leaf.type))
        self._values += 1
        return self.names[leaf]


def _plain(type: Type) -> Type:
    return replace(type, requires_grad=False) if isinstance(type, TensorType) and type.requires_grad else type
