"""Lowering: every operation gets the callable that runs it."""

from __future__ import annotations

from collections.abc import Callable

from thunder.grad.rules import Rules
from thunder.ir.symbol import BoundSymbol, Phase, Selection
from thunder.ir.trace import Names, Stage, Trace
from thunder.lang.cheapest import cheapest_call
from thunder.passes.select import native_executor


class Lowering:
    """Lowers operations.

    choose: who runs a prim that no rule assigned. rules: what claimed calls run as.
    """

    def __init__(self, choose: Callable[[BoundSymbol], Selection], rules: Rules) -> None:
        self._choose = choose
        self._rules = rules

    def lower(self, trace: Trace, names: Names) -> Trace:
        """The trace with a callable on each operation, claimed calls replaced by what their executor runs."""
        ops = [low for op in trace.ops for low in self._lowered(op, names)]
        return trace.with_ops(ops, stage=Stage.LOWERED, made_by="lower")

    def lower_natively(self, trace: Trace, names: Names) -> Trace:
        """The trace with every operation run as it stands, whoever claims it.

        But not what draws random numbers: whoever claims that draws other ones.
        """
        ops = [part for op in trace.ops for part in (self._rules.expanded(op, names) if op.draws else [op])]
        run = (op.with_facts(call=op.call or native_call(op), selection=Selection(native_executor(op))) for op in ops)
        return trace.with_ops(run, stage=Stage.LOWERED, made_by="lower")

    def is_native(self, op: BoundSymbol) -> bool:
        """True if nobody claims the operation."""
        if op.selection is None or not (op.is_claimed or op.sym.name.startswith("torch.")):
            return self._choose(op).claim is None
        return not op.is_claimed

    def _lowered(self, op: BoundSymbol, names: Names) -> list[BoundSymbol]:
        if op.call is not None:
            return [op]
        selection = op.selection
        if selection is None or (op.sym.name.startswith("aten.") and selection.claim is None):
            selection = self._choose(op)
        if selection.claim is None or selection.claim.lower is None or op.phase is Phase.EPILOGUE:
            return [op.with_facts(call=native_call(op), selection=_native(op, selection))]
        chosen = op.with_facts(selection=selection)
        return [part.with_facts(call=part.call or native_call(part)) for part in self._rules.expanded(chosen, names)]


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
