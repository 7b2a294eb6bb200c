"""FP8 linear layers with PyTorch alone, on any device.

Operands are cast to FP8 and back to bfloat16, which holds FP8 values exactly; the products are summed in float32 by
PyTorch's bfloat16 matrix multiplication, and rounded to bfloat16 once. That is the fastest way on a CPU, too.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from thunder_te.precision import How
from thunder_te.reference import blockwise, tensorwise
from thunder_te.state import outside_modes
from thunder_te.weights import Quantised, Weights

Parts = tuple[Tensor, ...]


@outside_modes
def quantize_weight(weight: Tensor, scales: Tensor | None, how: How, states: tuple[Weights]) -> Quantised:
    """The parts of a weight [out, in], and its largest absolute value."""
    return states[0].get(weight, how, lambda: weight_parts(weight, scales, how))


def weight_parts(weight: Tensor, scales: Tensor | None, how: How) -> Quantised:
    """The same, always anew."""
    return _scheme(how).quantise(weight, scales[1] if scales is not None else None, how)


def linear_fwd(
    input: Tensor, weight: Parts, bias: Tensor | None, scales: Tensor | None, how: How
) -> tuple[Tensor, Parts, Tensor | None]:
    """``input [rows, in] @ weight.t() + bias``, the parts of the input, and its largest absolute value.

    scales: float32 [2], of input and weight, for delayed scaling.
    """
    parts, amax = _scheme(how).quantise(input, scales[0] if scales is not None else None, how)
    out = _product(parts, 1, weight, 1, how, input.dtype)
    return out if bias is None else out.add_(bias), parts, amax


def linear_bwd(
    grad: Tensor, input: Parts, weight: Parts, scale: Tensor | None, how: How
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of input (None without a weight) and weight (None without an input), and the amax of ``grad``.

    grad: [rows, out]. scale: float32 [1], for delayed scaling.
    """
    parts, amax = _scheme(how).quantise(grad, scale[0] if scale is not None else None, how)
    of_input = _product(parts, 1, weight, 0, how, grad.dtype) if weight else None
    of_weight = _product(parts, 0, input, 0, how, grad.dtype) if input else None
    return of_input, of_weight, amax


def _scheme(how: How) -> ModuleType:
    return blockwise if how[0] == "mxfp8" else tensorwise


def _product(a: Parts, a_along: int, b: Parts, b_along: int, how: How, dtype: torch.dtype) -> Tensor:
    """The product of two matrices, summed along a dimension of each, in ``dtype``."""
    scheme = _scheme(how)
    left, right = scheme.values(a, a_along), scheme.values(b, b_along)
    out = (left if a_along == 1 else left.t()) @ (right if b_along == 0 else right.t())
    factor = scheme.factor(a, b)
    out = out.to(torch.float32 if dtype is torch.float16 else dtype)
    return (out if factor is None else out.mul_(factor)).to(dtype)
