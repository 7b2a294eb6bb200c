"""Views of saved values: backward takes them again from what they view, which costs nothing.

Besides memory this is a matter of life and death: a saved view of a result would keep the result alive, whose history
keeps what was saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol, Phase
from thunder.ir.trace import Names, Trace
from thunder.ir.types import Var


def view_makers(ops: Iterable[BoundSymbol], storages: Mapping[Var, int]) -> dict[Var, BoundSymbol]:
    """The operations that do nothing but view the memory of their one argument, by result."""
    return {
        out: op
        for op in ops
        if len(op.inputs) == 1 and not op.effects and op.inputs[0] in storages
        for out in op.outputs
        if storages.get(out) == storages[op.inputs[0]]
    }


def retake_views(backward: Trace, makers: Mapping[Var, BoundSymbol], names: Names) -> Trace:
    """The backward program over what the saved views view, each view taken just before its first use."""
    if makers.keys().isdisjoint(backward.params):
        return backward
    ops: list[BoundSymbol] = []
    taken: dict[Var, Var] = {}

    def take(var: Var) -> Var:
        if var not in makers or var in taken:
            return taken.get(var, var)
        op = makers[var]
        base = take(op.inputs[0])
        outs = {v: names.var(v.name, v.type) for v in op.outputs}
        args, kwargs = (tree.substitute(part, {op.inputs[0]: base}) for part in (op.args, op.kwargs))
        ops.append(replace(op, args=args, kwargs=kwargs, outs=tree.substitute(op.outs, outs), phase=Phase.BACKWARD))
        taken.update(outs)
        return taken[var]

    for op in backward.ops:
        views = {v: take(v) for v in op.inputs if v in makers}
        args, kwargs = (
            (tree.substitute(part, views) for part in (op.args, op.kwargs)) if views else (op.args, op.kwargs)
        )
        ops.append(replace(op, args=args, kwargs=kwargs) if views else op)
    result = tree.map_tree(lambda leaf: take(leaf) if isinstance(leaf, Var) else leaf, backward.result)
    made = {v for op in ops for v in op.outputs}
    read = dict.fromkeys(v for op in ops for v in op.inputs if v not in made)
    kept = [v for v in backward.params if v not in makers]
    return replace(backward, params=(*(v for v in read if v not in kept), *kept), ops=tuple(ops), result=result)
