"""FP8 linear layers with PyTorch alone, on any device.

Operands are cast to FP8 and back to bfloat16, which holds FP8 values exactly; the products are summed in float32 by
PyTorch's bfloat16 matrix multiplication, and rounded to bfloat16 once. That is the fastest way on a CPU, too.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from thunder_te.context import Precision
from thunder_te.reference import blockwise, tensorwise
from thunder_te.state import outside_modes
from thunder_te.weights import Quantised, Weights

Parts = tuple[Tensor, ...]
_ROLES = {"input": "fp8_quant_fwd_inp", "weight": "fp8_quant_fwd_weight", "grad": "fp8_quant_bwd_grad"}


@outside_modes
def quantize_weight(weight: Tensor, scales: Tensor | None, precision: Precision, states: tuple[Weights]) -> Quantised:
    """The parts of a weight [out, in], and its largest absolute value."""
    return states[0].get(weight, precision, lambda: weight_parts(weight, scales, precision))


def weight_parts(weight: Tensor, scales: Tensor | None, precision: Precision) -> Quantised:
    """The same, always anew."""
    return _quantise(weight, scales[1] if scales is not None else None, precision, "weight")


def linear_fwd(
    input: Tensor, weight: Parts, bias: Tensor | None, scales: Tensor | None, precision: Precision
) -> tuple[Tensor, Parts, Tensor | None]:
    """``input [rows, in] @ weight.t() + bias``, the parts of the input, and its largest absolute value.

    scales: float32 [2], of input and weight, for delayed scaling.
    """
    parts, amax = _quantise(input, scales[0] if scales is not None else None, precision, "input")
    out = _product(parts, 1, weight, 1, precision, input.dtype)
    return out if bias is None else out.add_(bias), parts, amax


def linear_bwd(
    grad: Tensor, input: Parts, weight: Parts, scale: Tensor | None, precision: Precision
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of input (None without a weight) and weight (None without an input), and the amax of ``grad``.

    grad: [rows, out]. scale: float32 [1], for delayed scaling.
    """
    parts, amax = _quantise(grad, scale[0] if scale is not None else None, precision, "grad")
    of_input = _product(parts, 1, weight, 0, precision, grad.dtype) if weight else None
    of_weight = _product(parts, 0, input, 0, precision, grad.dtype) if input else None
    return of_input, of_weight, amax


def _scheme(precision: Precision) -> ModuleType:
    return blockwise if precision.name == "MXFP8BlockScaling" else tensorwise


def _quantise(t: Tensor, scale: Tensor | None, precision: Precision, role: str) -> Quantised:
    largest = precision.largest_backward if role == "grad" else precision.largest_forward
    dtype = torch.float8_e4m3fn if largest == 448 else torch.float8_e5m2
    return _scheme(precision).quantise(t, dtype, scale, getattr(precision.recipe, _ROLES[role], None))


def _product(a: Parts, a_along: int, b: Parts, b_along: int, precision: Precision, dtype: torch.dtype) -> Tensor:
    """The product of two matrices, summed along a dimension of each, in ``dtype``."""
    scheme = _scheme(precision)
    left, right = scheme.values(a, a_along), scheme.values(b, b_along)
    out = (left if a_along == 1 else left.t()) @ (right if b_along == 0 else right.t())
    factor = scheme.factor(a, b)
    out = out.to(torch.float32 if dtype is torch.float16 else dtype)
    return (out if factor is None else out.mul_(factor)).to(dtype)
