"""Independent pieces of a backward program: unrelated results back-propagate on their own, as in eager."""

from __future__ import annotations

from thunder.grad.differentiate import Tape
from thunder.ir.types import Var


def pieces(tape: Tape) -> list[tuple[Var, ...]]:
    """The tape's roots, grouped: two roots are together iff their histories meet in a differentiated call."""
    parent: dict[Var, Var] = {}

    def find(var: Var) -> Var:
        while (up := parent.setdefault(var, var)) is not var:
            parent[var] = parent[up]
            var = up
        return var

    inputs = set(tape.inputs)
    for entry in tape.entries:
        joined = [v for v, need in zip(entry.call.inputs, entry.needs) if need and v not in inputs]
        joined += [v for v, want in zip(entry.outs, entry.rule.cotangents) if v is not None and want is not None]
        for var in joined:
            parent[find(var)] = find(joined[0])
    groups: dict[Var, list[Var]] = {}
    for root in tape.roots:
        groups.setdefault(find(root), []).append(root)
    return [tuple(group) for group in groups.values()]
