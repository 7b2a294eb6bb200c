"""A derivative rule: what a call does forward and backward, over formal variables, so that equal calls share it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from thunder.errors import PluginError
from thunder.ir import tree
from thunder.ir.effects import Scope, StateKind
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.trace import Names
from thunder.ir.types import OpaqueType, TensorType, Var


@dataclass(frozen=True)
class Rule:
    """One call's forward and backward over formal variables.

    inputs: one for each different variable the call reads. outs: one for each leaf it returns, None if not a tensor.
    forward: operations that compute ``outs`` and what backward reads; None keeps the call itself, since backward reads
    nothing but its arguments and results.
    cotangents: for each of ``outs``, the gradient that ``backward`` starts from, None where the result needs none.
    gradients: for each of ``inputs``, what ``backward`` computed, None where there is no gradient.
    """

    inputs: tuple[Var, ...]
    outs: tuple[Var | None, ...]
    forward: tuple[BoundSymbol, ...] | None
    cotangents: tuple[Var | None, ...] = ()
    backward: tuple[BoundSymbol, ...] = ()
    gradients: tuple[Var | None, ...] = ()


Layouts = tuple[TensorType | None, ...]
"""Types of the gradients that arrive at each leaf a call returns; None where none arrives."""


def formal_call(op: BoundSymbol, needs: tuple[bool, ...]) -> tuple[BoundSymbol, tuple[Var, ...]]:
    """The call over formal inputs ``i0, i1, …``; their types say whether a gradient is needed."""
    formal = {
        var: Var(f"i{k}", replace(var.type, requires_grad=need) if isinstance(var.type, TensorType) else var.type)
        for k, (var, need) in enumerate(zip(op.inputs, needs))
    }
    args, kwargs = tree.substitute(op.args, formal), tree.substitute(op.kwargs, formal)
    return BoundSymbol(op.sym, args, kwargs, effects=op.effects, selection=op.selection), tuple(formal.values())


class Instance:
    """A rule at one call site: formal variables become those of the program, or fresh ones."""

    def __init__(self, names: Names, variables: dict[Var, Var]) -> None:
        self._names = names
        self.variables = variables

    def __call__(self, var: Var) -> Var:
        known = self.variables.get(var)
        if known is None:
            known = self.variables[var] = Var(self._names.numbered("a"), var.type)
        return known

    @classmethod
    def of(cls, rule: Rule, op: BoundSymbol, names: Names) -> Instance:
        """The rule at a call."""
        variables = dict(zip(rule.inputs, op.inputs))
        for formal, out in zip(rule.outs, tree.leaves(op.outs), strict=True):
            if formal is not None and isinstance(out, Var):
                variables.setdefault(formal, out)
        return cls(names, variables)

    def aliases(self, rule: Rule, op: BoundSymbol) -> list[BoundSymbol]:
        """Operations that make the results which the rule makes of nothing new: an input, or another result."""
        pairs = ((formal, out) for formal, out in zip(rule.outs, tree.leaves(op.outs)) if formal is not None)
        alias = Symbol("aten.alias")
        return [
            BoundSymbol(alias, (self(formal),), outs=out, source=op.source)
            for formal, out in pairs
            if isinstance(out, Var) and self(formal) is not out
        ]

    def bind(self, var: Var, actual: Var) -> None:
        """Let a formal variable be ``actual`` from now on."""
        self.variables[var] = actual

    def op(self, op: BoundSymbol, like: BoundSymbol, **changes: Any) -> BoundSymbol:
        """The operation over the program's variables, with the source and region of the call it belongs to."""
        for effect in op.effects:
            if effect.handle is not None and isinstance(effect.handle.type, OpaqueType) and like.selection is not None:
                self.variables.setdefault(effect.handle, handle(effect.state, like.selection.site))

        def leaf(value: object) -> object:
            return self(value) if isinstance(value, Var) else value

        effects = tuple(replace(e, handle=self(e.handle)) if e.handle is not None else e for e in op.effects)
        return replace(
            op,
            args=tree.map_tree(leaf, op.args),
            kwargs=tree.map_tree(leaf, op.kwargs),
            outs=tree.map_tree(leaf, op.outs),
            effects=effects,
            source=like.source,
            region=like.region,
            **changes,
        )


def handle(kind: StateKind, site: str) -> Var:
    """The variable that holds the instance of a state that a call touches; calls that share the instance share it.

    Raises PluginError if the instance belongs to a call that has no name.
    """
    if kind.scope is Scope.CALLSITE and not site:
        raise PluginError(
            f"{kind.name} belongs to a call of the program, and what touches it is none",
            why="a derivative or a decomposition made the operator, so it has no name that outlives this compilation",
            fix="claim the call that it is part of, or give the state another scope",
        )
    of = site if kind.scope is Scope.CALLSITE else ""
    name = "_".join(filter(None, ("state", kind.name.replace(".", "_"), of)))
    return Var(name, OpaqueType(kind.name, of))
