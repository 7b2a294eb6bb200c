"""Recomputation: values of activation-checkpointing regions are made again in backward instead of being saved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from thunder.grad.rule import Instance
from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol, Phase
from thunder.ir.trace import Names, Trace
from thunder.ir.types import Var
from thunder.passes.dce import live_in


def recompute(backward: Trace, forward: Sequence[BoundSymbol], names: Names) -> Trace:
    """The backward program with what each checkpointed region needs of itself, run again just before its first use.

    What a region reads from outside is saved instead, and what it may not run again: random draws, and operations on
    states that forbid it.
    """
    makers = {v: op for op in forward if may_recompute(op) for v in op.outputs}
    wanted: dict[str | None, set[Var]] = {}
    for op in backward.ops:
        own = {v for v in op.inputs if v in makers and makers[v].region == op.region}
        if own:
            wanted.setdefault(op.region, set()).update(own)
    if not wanted:
        return backward
    again = {region: _again(values, makers, forward, names) for region, values in wanted.items()}
    ops: list[BoundSymbol] = []
    for op in backward.ops:
        copies, renamed = again.get(op.region, ([], {}))
        if not renamed.keys().isdisjoint(op.inputs):
            ops += copies
            copies.clear()
        ops.append(op.with_inputs(renamed))
    return remaking(backward, ops, backward.result, makers)


def remaking(backward: Trace, ops: Sequence[BoundSymbol], result: Any, makers: Collection[Var]) -> Trace:
    """The backward program with other operations. What they read and it does not take yet is saved, too.

    makers: saved values that need not be, if nothing reads them any more.
    """
    known, read = set(backward.params), dict.fromkeys(live_in(ops, tree.variables(result)))
    new = [v for v in read if v not in known]
    kept = [v for v in backward.params if v in read or v not in makers]
    return replace(backward, params=(*new, *kept), ops=tuple(ops), result=result)


def may_recompute(op: BoundSymbol) -> bool:
    """True if the operation belongs to a region and none of the states it touches forbids running it again."""
    return op.region is not None and all(effect.state.recompute != "forbid" for effect in op.effects)


def _again(
    values: Iterable[Var], makers: dict[Var, BoundSymbol], forward: Sequence[BoundSymbol], names: Names
) -> tuple[list[BoundSymbol], dict[Var, Var]]:
    """Copies of the operations of one region that make the values, and the copies' names for all they make."""
    needed: set[Var] = set()
    pending = list(values)
    while pending:
        op = makers[pending.pop()]
        needed.update(op.outputs)
        inside = (v for v in op.inputs if v in makers and makers[v].region == op.region)
        pending.extend(v for v in inside if v not in needed)
    chosen = [op for op in forward if not needed.isdisjoint(op.outputs)]
    instance = Instance(names, {v: v for op in chosen for v in op.inputs if v not in needed})
    return [instance.op(op, op, phase=Phase.BACKWARD) for op in chosen], {v: instance(v) for v in needed}
