"""Values that backward makes again instead of saving them: views always, which costs nothing, and what it is told to.

For views this is, besides memory, a matter of life and death: a saved view of a result would keep the result alive,
whose history keeps what was saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from thunder.grad.recompute import remaking
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


def make_again(backward: Trace, makers: Mapping[Var, BoundSymbol], names: Names) -> Trace:
    """The backward program over what saved values are made of; each is made again just before its first use.

    makers: the forward operations to run again, by result.
    """
    if makers.keys().isdisjoint(backward.params):
        return backward
    ops: list[BoundSymbol] = []
    again: dict[Var, Var] = {}

    def make(var: Var) -> Var:
        if var not in makers or var in again:
            return again.get(var, var)
        op = makers[var]
        made = {v: make(v) for v in op.inputs}
        outs = {v: names.var(v.name, v.type) for v in op.outputs}
        ops.append(replace(op.with_inputs(made), outs=tree.substitute(op.outs, outs), phase=Phase.BACKWARD))
        again.update(outs)
        return again[var]

    for op in backward.ops:
        made = {v: make(v) for v in op.inputs if v in makers}
        ops.append(op.with_inputs(made))
    result = tree.map_tree(lambda leaf: make(leaf) if isinstance(leaf, Var) else leaf, backward.result)
    return remaking(backward, ops, result, makers)
