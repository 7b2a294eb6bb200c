"""FP8 linear layers through TransformerEngine's functional API, on CUDA devices.

A quantised tensor is TransformerEngine's own: a tensor subclass with the shape and dtype of what it stands for. Scales
are those of this package's states, which its quantizers are given; it is never asked to keep any.
"""

from __future__ import annotations

import copy
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from thunder_te.precision import How
from thunder_te.state import outside_modes
from thunder_te.weights import Quantised, Weights

Parts = tuple[Tensor, ...]


@outside_modes
def quantize_weight(weight: Tensor, scales: Tensor | None, how: How, states: tuple[Weights]) -> Quantised:
    """The weight [out, in] in FP8, and its largest absolute value."""

    def quantise() -> Quantised:
        quantizer, amax = _quantizer(weight, scales[1:] if scales is not None else None, how)
        return (quantizer(weight.detach()),), amax

    return states[0].get(weight, how, quantise)


def linear_fwd(
    input: Tensor, weight: Parts, bias: Tensor | None, scales: Tensor | None, how: How
) -> tuple[Tensor, Parts, Tensor | None]:
    """``input [rows, in] @ weight.t() + bias``, the input in FP8, and its largest absolute value.

    scales: float32 [2], of input and weight, for delayed scaling.
    """
    quantizer, amax = _quantizer(input, scales[:1] if scales is not None else None, how)
    out, quantised, _ = _basic_linear()._functional_forward(
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
    grad: Tensor, input: Parts, weight: Parts, scale: Tensor | None, how: How
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of input (None without a weight) and weight (None without an input), and the amax of ``grad``.

    grad: [rows, out]. scale: float32 [1], for delayed scaling.
    """
    quantizer, amax = _quantizer(grad, scale, how)
    of_input, of_weight = _basic_linear()._functional_backward(
        grad_output=grad.contiguous(),
        input=input[0] if input else None,
        weight=weight[0] if weight else None,
        input_requires_grad=bool(weight),
        weight_requires_grad=bool(input),
        dtype=grad.dtype,
        with_quantized_compute=True,
        input_quantizer=copy.copy(quantizer),  # asked for, and used for nothing: the input is quantised
        grad_output_quantizer=quantizer,
    )
    return of_input, of_weight, amax


def _basic_linear() -> Any:
    return import_module("transformer_engine.pytorch.ops").BasicLinear


def _quantizer(t: Tensor, scale: Tensor | None, how: How) -> tuple[Any, Tensor | None]:
    """What quantises a tensor, for sums along both dimensions; where scales are delayed, what it leaves the amax in."""
    types: Any = import_module("transformer_engine_torch").DType
    dtype = types.kFloat8E4M3 if how[1] == "E4M3" else types.kFloat8E5M2
    tensors = "transformer_engine.pytorch.tensor"
    if how[0] == "delayed":
        assert scale is not None
        amax = torch.zeros(1, dtype=torch.float32, device=t.device)
        return import_module(f"{tensors}.float8_tensor").Float8Quantizer(scale, amax, dtype), amax[0]
    if how[0] == "mxfp8":
        return import_module(f"{tensors}.mxfp8_tensor").MXFP8Quantizer(dtype), None
    _, _, epsilon, powers = how
    make = import_module(f"{tensors}.float8_tensor").Float8CurrentScalingQuantizer
    return make(dtype, t.device, force_pow_2_scales=powers, amax_epsilon=epsilon), None
