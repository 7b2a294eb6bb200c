"""The rule of a call whose derivative cannot be recorded: backward runs the call again, under autograd."""

from __future__ import annotations

from thunder.capture.torch_calls import OTHER_FRONT_END
from thunder.errors import CaptureError
from thunder.grad.rule import Layouts, Rule
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.types import Const, TensorType, Var
from thunder.passes.forms import callable_text

_STRUCTURAL = "thunder.prims.structural"


def rerun(call: BoundSymbol, inputs: tuple[Var, ...], arriving: Layouts, error: Exception) -> Rule:
    """A rule that saves the call's arguments, for a derivative that depends on data or that PyTorch refuses.

    What it refuses on fake tensors it refuses in backward, as in eager. Raises CaptureError for a call that draws at
    random: a second run would not do the same. error: why the derivative cannot be recorded.
    """
    if call.draws:
        raise CaptureError(
            f"the derivative of {call.sym} cannot be recorded",
            why=f"{type(error).__name__}: {error}",
            fix=OTHER_FRONT_END,
        ) from error
    outs = tuple(Var(f"o{i}", t) if t is not None else None for i, t in enumerate(arriving))
    cotangents = tuple(Var(f"g{i}", t) if t is not None else None for i, t in enumerate(arriving))
    wanted = {v: v.type for v in inputs if isinstance(v.type, TensorType) and v.type.requires_grad}
    gradients = {v: Var(f"d_{v.name}", type.detached) for v, type in wanted.items()}
    args = (Const(callable_text(call.sym.name)), call.args, call.kwargs, tuple(wanted), cotangents)
    op = BoundSymbol(Symbol(f"{_STRUCTURAL}.gradients"), args, outs=tuple(gradients.values()))
    return Rule(inputs, outs, None, cotangents, (op,), tuple(gradients.get(v) for v in inputs))
