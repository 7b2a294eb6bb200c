"""What a linear layer becomes: the same rules for both engines and all recipes.

Scales are read, used and updated by three separate operations. The one in the middle has no effects, so that it can be
run again with the scales that its forward has read.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from thunder.extend import ClaimContext, symbol
from thunder_te.claims import engine_for
from thunder_te.precision import Precision

_scales, _observe = symbol("te.scales"), symbol("te.observe")
_grad_scale, _observe_grad = symbol("te.grad_scale"), symbol("te.observe_grad")

Parts = tuple[Tensor, ...]


def lower(input: Tensor, weight: Tensor, bias: Tensor | None = None, *, cx: ClaimContext) -> Tensor:
    """Without gradients: in a training program it counts for the scales, in inference it does not change them."""
    return _linear(input, weight, bias, cx, training=cx.grad_mode)[0]


def forward(input: Tensor, weight: Tensor, bias: Tensor | None = None, *, cx: ClaimContext) -> Any:
    wanted = (input.requires_grad, weight.requires_grad, bias is not None and bias.requires_grad)
    out, input_parts, weight_parts = _linear(input, weight, bias, cx, training=True)
    kept = (input_parts if wanted[1] else (), weight_parts if wanted[0] else ())
    return out, (*kept, wanted, bias is None, tuple(input.shape), cx.cache_key, _engine(input, cx))


def backward(saved: Any, grad: Tensor) -> Any:
    input_parts, weight_parts, wanted, without_bias, shape, precision, engine = saved
    rows = _as_rows(grad)
    of_input, of_weight = _gradients(rows, input_parts, weight_parts, precision, engine)
    of_input = _shaped(of_input, shape) if of_input is not None else None
    if without_bias:
        return of_input, of_weight
    return of_input, of_weight, rows.sum(0) if wanted[2] else None


def _linear(
    input: Tensor, weight: Tensor, bias: Tensor | None, cx: ClaimContext, training: bool
) -> tuple[Tensor, Parts, Parts]:
    """The result, and the quantised operands in parts."""
    precision: Any = cx.cache_key
    engine = _engine(input, cx)
    scales = _scales(input, training) if precision.delayed else None
    weight_parts, weight_amax = symbol(f"te.{engine}.quantize_weight")(weight, scales, precision.how("weight"))
    linear_fwd = symbol(f"te.{engine}.linear_fwd")
    how = precision.how("input")
    out, input_parts, input_amax = linear_fwd(_as_rows(input), weight_parts, bias, scales, how)
    if precision.delayed:
        _observe(input_amax, weight_amax, tuple(precision.rule("forward")), training)
    return _shaped(out, (*input.shape[:-1], weight.shape[0])), input_parts, weight_parts


def _gradients(
    rows: Tensor, input_parts: Parts, weight_parts: Parts, precision: Precision, engine: str
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of input (if there is a weight) and weight (if there is an input)."""
    if not input_parts and not weight_parts:
        return None, None
    scale = _grad_scale(rows) if precision.delayed else None
    linear_bwd, how = symbol(f"te.{engine}.linear_bwd"), precision.how("grad")
    of_input, of_weight, amax = linear_bwd(rows, input_parts, weight_parts, scale, how)
    if precision.delayed:
        _observe_grad(amax, tuple(precision.rule("backward")))
    return of_input, of_weight


def _as_rows(t: Tensor) -> Tensor:
    return t if t.ndim == 2 else t.reshape(-1, t.shape[-1])


def _shaped(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    return rows if len(shape) == 2 else rows.reshape(shape)


def _engine(input: Tensor, cx: ClaimContext) -> str:
    return engine_for(str(input.device), cx.options)
