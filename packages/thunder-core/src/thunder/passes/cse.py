"""Common-subexpression elimination."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

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
    return trace.with_ops(merged(trace.ops, lambda op: not op.effects and apart.isdisjoint(op.outputs))[0])


def merged(
    ops: Iterable[BoundSymbol], mergeable: Callable[[BoundSymbol], bool]
) -> tuple[list[BoundSymbol], dict[Var, Var]]:
    """The operations without those that equal an earlier one; the variables of that for theirs."""
    first: dict[Hashable, BoundSymbol] = {}
    same: dict[Var, Var] = {}
    kept = []
    for op in ops:
        op = op.with_inputs(same)
        known = first.setdefault(_key(op), op) if mergeable(op) else op
        if known is op:
            kept.append(op)
        else:
            same.update(zip(tree.leaves(op.outs), tree.leaves(known.outs), strict=True))
    return kept, same


def _key(op: BoundSymbol) -> Hashable:
    """Equal for operations that compute the same. Result types count: under ``no_grad`` the same call differs."""
    types = tree.map_tree(lambda leaf: leaf.type if isinstance(leaf, Var) else leaf, op.outs)
    trees = tree.freeze((op.args, op.kwargs, types))
    return (op.sym, op.call, trees, op.phase, op.region)
