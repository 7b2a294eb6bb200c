"""Common-subexpression elimination."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Trace
from thunder.ir.types import Var


def cse(trace: Trace, escaping: frozenset[Var] = frozenset()) -> Trace:
    """Merges equal operations that have no effects; the identical trace if there are none.

    Operations that make a result or a variable of ``escaping`` are left alone: what two of them return are two tensors,
    and the caller may write into one. Operations of different phases or checkpointing regions are never equal, so
    that recomputation is not undone.
    """
    apart = escaping.union(trace.results)
    first: dict[Hashable, BoundSymbol] = {}
    merged: dict[Var, Var] = {}
    ops = []
    for op in trace.ops:
        op = renamed(op, merged)
        if op.effects or not apart.isdisjoint(op.outputs):
            ops.append(op)
            continue
        equal = first.setdefault(equality_key(op), op)
        if equal is op:
            ops.append(op)
        else:
            merged.update(zip(tree.leaves(op.outs), tree.leaves(equal.outs), strict=True))
    return trace.with_ops(ops)


def equality_key(op: BoundSymbol) -> Hashable:
    """Equal for operations that compute the same. Result types count: under ``no_grad`` the same call differs."""
    types = tree.map_tree(lambda leaf: leaf.type if isinstance(leaf, Var) else leaf, op.outs)
    trees = tree.freeze((op.args, op.kwargs, types))
    return (op.sym, op.call, trees, op.phase, op.region)


def renamed(op: BoundSymbol, names: dict[Var, Var]) -> BoundSymbol:
    """The operation over other variables."""
    if names.keys().isdisjoint(op.inputs):
        return op
    effects = tuple(replace(e, handle=names.get(e.handle, e.handle)) if e.handle else e for e in op.effects)
    return replace(op, args=tree.substitute(op.args, names), kwargs=tree.substitute(op.kwargs, names), effects=effects)
