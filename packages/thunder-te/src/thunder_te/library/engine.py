"""FP8 linear layers through TransformerEngine's functional API, on CUDA devices.

A quantised tensor is TransformerEngine's own: a tensor subclass with the shape and dtype of what it stands for. Scales
are those of this package's states, which its quantizers are given; it is never asked to keep any.
"""

from __future__ import annotations

from typing import Any

import torch
import transformer_engine.pytorch  # noqa: F401  # loads the libraries of the next imports
import transformer_engine_torch as tex
from torch import Tensor
from transformer_engine.pytorch.ops import BasicLinear

from thunder_te.context import Precision
from thunder_te.state import outside_modes
from thunder_te.weights import Quantised, Weights

Parts = tuple[Tensor, ...]
_ROLES = {"input": "fp8_quant_fwd_inp", "weight": "fp8_quant_fwd_weight", "grad": "fp8_quant_bwd_grad"}


@outside_modes
def quantize_weight(weight: Tensor, scales: Tensor | None, precision: Precision, states: tuple[Weights]) -> Quantised:
    """The weight [out, in] in FP8, and its largest absolute value."""

    def quantise() -> Quantised:
        quantizer, amax = _quantizer(weight, scales[1:] if scales is not None else None, precision, "weight")
        return (quantizer(weight.detach()),), amax

    return states[0].get(weight, precision, quantise)


def linear_fwd(
    input: Tensor, weight: Parts, bias: Tensor | None, scales: Tensor | None, precision: Precision
) -> tuple[Tensor, Parts, Tensor | None]:
    """``input [rows, in] @ weight.t() + bias``, the input in FP8, and its largest absolute value.

    scales: float32 [2], of input and weight, for delayed scaling.
    """
    quantizer, amax = _quantizer(input, scales[:1] if scales is not None else None, precision, "input")
    out, quantised, _ = BasicLinear._functional_forward(
        input=input,
        weight=weight[0],
        bias=bias,
        dtype=input.dtype,
        with_quantized_compute=True,
        input_quantizer=quantizer,
        input_requires_grad=True,
        weight_requires_grad=True,
    )
    return out, (quantised,), amax


def linear_bwd(
    grad: Tensor, input: Parts, weight: Parts, scale: Tensor | None, precision: Precision
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of input (None without a weight) and weight (None without an input), and the amax of ``grad``.

    grad: [rows, out]. scale: float32 [1], for delayed scaling.
    """
    quantizer, amax = _quantizer(grad, scale, precision, "grad")
    of_input, of_weight = BasicLinear._functional_backward(
        grad_output=grad.contiguous(),
        input=input[0] if input else None,
        weight=weight[0] if weight else None,
        input_requires_grad=bool(weight),
        weight_requires_grad=bool(input),
        dtype=grad.dtype,
        with_quantized_compute=True,
        grad_output_quantizer=quantizer,
    )
    return of_input, of_weight, amax


def _quantizer(t: Tensor, scale: Tensor | None, precision: Precision, role: str) -> tuple[Any, Tensor | None]:
    """What quantises a tensor, for sums along both dimensions; where scales are delayed, what it leaves the amax in."""
    largest = precision.largest_backward if role == "grad" else precision.largest_forward
    dtype = tex.DType.kFloat8E4M3 if largest == 448 else tex.DType.kFloat8E5M2
    if precision.name == "DelayedScaling":
        from transformer_engine.pytorch.tensor.float8_tensor import Float8Quantizer

        assert scale is not None
        amax = torch.zeros(1, dtype=torch.float32, device=t.device)
        return Float8Quantizer(scale, amax, dtype), amax[0]
    if precision.name == "MXFP8BlockScaling":
        from transformer_engine.pytorch.tensor.mxfp8_tensor import MXFP8Quantizer

        return MXFP8Quantizer(dtype), None
    from transformer_engine.pytorch.tensor.float8_tensor import Float8CurrentScalingQuantizer

    how = getattr(precision.recipe, _ROLES[role])
    powers, epsilon = how.power_2_scale, how.amax_epsilon
    return Float8CurrentScalingQuantizer(dtype, t.device, force_pow_2_scales=powers, amax_epsilon=epsilon), None
