"""What backward saves at the least: the cheapest set of forward values from which it can make all others again.

A value is made again inside a fused region of backward, where that costs arithmetic but no memory traffic. So nothing
is made again that is expensive to compute, that draws random numbers or touches a state, that backward would have to
write to memory for an operation outside of any region, or that is far from what it is made of: an operation which reads
what an earlier region made (a residual connection) would drag a chain of regions along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from thunder.grad.maxflow import Network
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Trace
from thunder.ir.types import Var
from thunder.passes import borders
from thunder.passes.borders import read_from_afar
from thunder.passes.costs import size, views
from thunder.passes.layouts import is_relayout, undone

_SHRINKS = 4
"""An operation that reads so many times more than it makes (a reduction) is not run again: its results are small."""


@dataclass(frozen=True)
class Facts:
    """What the choice depends on besides the programs.

    is_cheap: whether an operation runs inside a region and costs little there.
    views: forward operations that only view memory, by result. free: values that are kept anyway, at no cost.
    visible: values of the program itself, and not of the rule of a call.
    """

    is_cheap: Callable[[BoundSymbol], bool]
    views: Mapping[Var, BoundSymbol]
    free: Set[Var]
    visible: Set[Var]


def remade(forward: Sequence[BoundSymbol], programs: Sequence[Trace], facts: Facts) -> dict[Var, BoundSymbol]:
    """The forward operations that backward runs again, by result; of several choices, the one that runs the fewest.

    programs: the backward programs, whose parameters are what they need of forward. The bytes of what they need then
    are never more than before.
    """
    made = {v for op in forward for v in op.outputs}
    needed = [v for v in dict.fromkeys(v for p in programs for v in p.params) if v in made and v not in facts.free]
    outside = read_outside(programs, facts)
    facts = replace(facts, views={**facts.views, **_relaid(forward, facts, made, set(needed), outside)})
    makers = _recomputable(forward, facts, outside)
    network = Network()
    for v in needed:
        network.join((v, "out"), "sink", math.inf)
    pending, seen = list(needed), set(needed)
    while pending:
        v = pending.pop()
        network.join((v, "in"), (v, "out"), math.inf if v in facts.views else size(v.type))
        if v not in makers:
            network.join("source", (v, "in"), math.inf)
            continue
        inputs = [u for u in makers[v].inputs if u not in facts.free]
        for u in inputs:
            network.join((u, "out"), (v, "in"), math.inf)
        pending += (u for u in inputs if u not in seen)
        seen.update(inputs)
    behind = network.behind_cut("source", "sink")
    return {v: makers[v] for v in seen if (v, "in") in behind}


def _relaid(
    forward: Iterable[BoundSymbol], facts: Facts, made: Set[Var], needed: Set[Var], outside: Set[Var]
) -> dict[Var, BoundSymbol]:
    """The copies to other memory formats that backward makes, by result, so that a value is saved in one of them.

    That is the one which an operation outside reads, unless the other is kept anyway.
    """
    copies: dict[Var, BoundSymbol] = {}
    for op in forward:
        if not is_relayout(op) or not facts.is_cheap(op):
            continue
        (source,) = op.inputs
        is_kept = source not in made or source in facts.free
        if is_kept and op.outs in facts.visible:
            continue  # the program copies it because it may be written to
        if is_kept or op.outs not in outside:
            copies[op.outs] = op
        elif op.outs in needed and source not in outside:
            copies.setdefault(source, undone(op, source))
    return copies


def _recomputable(forward: Sequence[BoundSymbol], facts: Facts, outside: Set[Var]) -> dict[Var, BoundSymbol]:
    """The operations that may run again, by result. outside: values that would have to be written to memory."""
    makers = dict(facts.views)
    for op, afar in zip(forward, read_from_afar(forward, facts.is_cheap, facts.views)):
        again = [v for v in op.outputs if v not in outside]
        shrinks = _SHRINKS * _bytes(again) < _bytes(op.inputs)
        if afar == [] and not (shrinks or op.effects or op.region):
            makers.update(dict.fromkeys(again, op))
    return makers


def read_outside(programs: Iterable[Trace], facts: Facts) -> set[Var]:
    """What operations outside of any region read, seen through views, and what is itself a gradient."""
    outside = set[Var]().union(*(borders.read_outside(program, facts.is_cheap, views) for program in programs))
    for v in tuple(outside):
        while v in facts.views:
            (v,) = facts.views[v].inputs
            outside.add(v)
    return outside


def _bytes(variables: Iterable[Var]) -> int:
    return sum(size(v.type) for v in variables)
