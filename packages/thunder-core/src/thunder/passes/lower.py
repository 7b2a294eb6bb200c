"""Lowering: every operation gets the callable that runs it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace

from thunder.grad.claimed import lowered
from thunder.grad.rule import Instance, Rule, formal_call
from thunder.ir import tree
from thunder.ir.effects import StateKind
from thunder.ir.symbol import BoundSymbol, Phase, Selection
from thunder.ir.trace import Names, Stage, Trace
from thunder.ir.types import Var
from thunder.lang.cheapest import cheapest_call
from thunder.passes.select import native_executor


class Lowering:
    """Lowers operations; what claimed calls run as is recorded once for each different call.

    choose: who runs a prim that no rule assigned. states: the state kinds of all active executors, by name.
    """

    def __init__(
        self, choose: Callable[[BoundSymbol, tuple[bool, ...]], Selection], states: Mapping[str, StateKind]
    ) -> None:
        self._choose = choose
        self._states = states
        self._memo: dict[Hashable, Rule] = {}

    def lower(self, trace: Trace, names: Names) -> Trace:
        """The trace with a callable on each operation, claimed calls replaced by what their executor runs."""
        ops = [low for op in trace.ops for low in self._lowered(op, names)]
        return trace.with_ops(ops, stage=Stage.LOWERED, made_by="lower")

    def lower_natively(self, trace: Trace) -> Trace:
        """The trace with every operation run as it stands, whoever claims it."""
        ops = [replace(op, call=native_call(op), selection=Selection(native_executor(op))) for op in trace.ops]
        return trace.with_ops(ops, stage=Stage.LOWERED, made_by="lower")

    def _lowered(self, op: BoundSymbol, names: Names) -> list[BoundSymbol]:
        if op.call is not None:
            return [op]
        if op.selection is None or (op.sym.name.startswith("aten.") and op.selection.claim is None):
            op = replace(op, selection=self._choose(op, ()))
        selection = op.selection
        assert selection is not None
        if selection.claim is None or selection.claim.lower is None or op.phase is Phase.EPILOGUE:
            return [replace(op, call=native_call(op), selection=_native(op, selection))]
        rule = self._rule(op)
        variables = dict(zip(rule.inputs, op.inputs))
        for formal, out in zip(rule.outs, tree.leaves(op.outs), strict=True):
            if formal is not None and isinstance(out, Var):
                variables.setdefault(formal, out)
        instance = Instance(names, variables)
        plain = Selection(selection.executor, None, selection.refusals)
        parts = [instance.op(part, op, phase=op.phase) for part in rule.forward or ()]
        return [replace(part, call=part.call or native_call(part), selection=plain) for part in parts]

    def _rule(self, op: BoundSymbol) -> Rule:
        call, inputs = formal_call(op, tuple(False for _ in op.inputs))
        key = (op.sym.name, tree.freeze((call.args, call.kwargs)), op.selection)
        if key not in self._memo:
            self._memo[key] = lowered(call, inputs, self._states)
        return self._memo[key]


def _native(op: BoundSymbol, selection: Selection) -> Selection:
    """A claim that says nothing about running the call as it stands leaves it to torch."""
    return selection if selection.claim is None else Selection(native_executor(op), None, selection.refusals)


def native_call(op: BoundSymbol) -> str:
    """``"module:attribute"`` of what runs an operation that keeps its own meaning."""
    name = op.sym.name
    if name.startswith("torch."):
        return f"torch:{name.removeprefix('torch.')}"
    if name.startswith("thunder."):
        module, _, attribute = name.rpartition(".")
        return f"{module}:{attribute}"
    return cheapest_call(op)
