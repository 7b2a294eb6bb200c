"""A program of one call, lowered and generated as inside the whole: what measured selection times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from thunder.errors import ThunderError
from thunder.grad.differentiate import arriving_at, backward, carried, differentiate
from thunder.grad.rules import Rules
from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol, Phase
from thunder.ir.trace import Stage, Trace
from thunder.ir.types import TensorType, Var
from thunder.passes.cse import cse
from thunder.passes.dce import dce
from thunder.passes.layouts import is_relayout
from thunder.passes.lower import Lowering
from thunder.passes.measure import Candidate
from thunder.passes.schedule import schedule
from thunder.passes.views import taken_of
from thunder.runtime.codegen import compile_trace


@dataclass(frozen=True)
class Subject:
    """A call that is measured: its inputs, what it returns, and where gradients arrive.

    inputs: with types that say which of them gradients are wanted for. cotangents: the gradients that arrive.
    """

    call: BoundSymbol
    inputs: tuple[Var, ...]
    roots: tuple[Var, ...]
    cotangents: tuple[TensorType, ...]

    @classmethod
    def of(cls, op: BoundSymbol, dependent: Any) -> Subject:
        """The call, where gradients flow through the variables in ``dependent``."""
        roots = tuple(carried(op, dependent))
        wanted = dependent if roots else ()
        inputs = tuple(_wanting(v, v in wanted) for v in op.inputs)
        return cls(op, inputs, roots, tuple(g for g in arriving_at(op, roots) if g is not None))

    @property
    def types(self) -> list[TensorType]:
        """Of the tensors that a candidate is run with: the inputs, then the gradients that arrive."""
        return [*(v.type for v in self.inputs if isinstance(v.type, TensorType)), *self.cotangents]

    def trace(self, ops: Sequence[BoundSymbol]) -> Trace:
        """The program of what stands for the call."""
        typed = dict(zip(self.call.inputs, self.inputs))
        over = tuple(op.with_inputs(typed).with_facts(phase=Phase.FORWARD, region=None) for op in ops)
        return Trace("trial", self.inputs, over, tree.variables(self.call.outs), Stage.SELECTED, made_by="measure")


def trial(
    subject: Subject,
    ops: Sequence[BoundSymbol],
    lowering: Lowering,
    rules: Rules,
    is_free: Callable[[BoundSymbol], bool],
) -> Candidate:
    """What runs for the call if ``ops``, with their selections, stand for it: forward, and backward if it has one.

    is_free: whether a copy to another memory format is made by the regions around the call, at no cost.
    Raises ThunderError if it touches a state: to run it once more would change what the program does.
    """
    trace = subject.trace(ops)
    tape = differentiate(trace, subject.roots, rules)

    def timed(op: BoundSymbol) -> BoundSymbol:
        """The operation; in place of a copy that costs nothing, the same memory seen in the new format."""
        if not is_relayout(op) or not is_free(op):
            return op
        (source,) = op.inputs
        return taken_of(op, source)

    def generated(trace: Trace) -> Callable[..., Any]:
        lowered = lowering.lower(trace, tape.names)
        return _generated(lowered.with_ops(timed(op) for op in lowered.ops))

    if not subject.roots:
        return Candidate(generated(trace))
    arriving = [tape.names.var("g", type) for type in subject.cotangents]
    back = cse(backward(tape, arriving))
    saved = tuple(v for v in back.params if v not in arriving)
    whole = replace(trace, ops=tape.forward, result=(trace.result, saved))
    return _pair(generated(dce(whole)), generated(back), len(subject.inputs))


def _generated(lowered: Trace) -> Callable[..., Any]:
    if touching := next((op for op in lowered.ops if op.effects), None):
        raise ThunderError(
            f"{touching.sym} touches {touching.effects[0].state.name}", why="nothing with state is timed"
        )
    return compile_trace(schedule({Phase.FORWARD: lowered})[Phase.FORWARD])


def _pair(forward: Callable[..., Any], back: Callable[..., Any], inputs: int) -> Candidate:
    """Forward on the inputs, then backward for the gradients that follow them."""

    def keeps(*tensors: Any) -> Any:
        return forward(*tensors[:inputs])[1]

    def run(*tensors: Any) -> None:
        _, saved = forward(*tensors[:inputs])
        back([*saved, *tensors[inputs:]])

    return Candidate(run, keeps)


def _wanting(v: Var, need: bool) -> Var:
    return Var(v.name, replace(v.type, requires_grad=need)) if isinstance(v.type, TensorType) else v
