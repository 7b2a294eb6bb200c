"""Layer norm and RMS norm: what backward keeps, and parameters that are not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from thunder.extend import ClaimContext, symbol

_layer_fwd, _layer_bwd = symbol("apex.layer_norm_fwd"), symbol("apex.layer_norm_bwd")
_rms_fwd, _rms_bwd = symbol("apex.rms_norm_fwd"), symbol("apex.rms_norm_bwd")

Shape = Sequence[int]


def layer_norm_lower(
    input: Tensor, normalized_shape: Shape, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    return _layer_fwd(input, normalized_shape, *_both(weight, bias), eps)[0]


def layer_norm_forward(
    input: Tensor,
    normalized_shape: Shape,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    cx: ClaimContext,
) -> Any:
    out, mean, scale = _layer_fwd(input, normalized_shape, *_both(weight, bias), eps)
    kept = (out, None) if cx.options["memory_efficient"] else (input, mean)
    return out, (*kept, scale, normalized_shape, weight, bias, eps)


def layer_norm_backward(saved: Any, grad: Tensor) -> Any:
    kept, mean, scale, shape, weight, bias, eps = saved
    gradients = _layer_bwd(grad.contiguous(), mean, scale, kept, shape, *_both(weight, bias), eps)
    return tuple(g for g, t in zip(gradients, (kept, weight, bias)) if t is not None)


def rms_norm_lower(
    input: Tensor, normalized_shape: Shape, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    return _rms_fwd(input, normalized_shape, weight, _epsilon(input, eps))[0]


def rms_norm_forward(
    input: Tensor,
    normalized_shape: Shape,
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    cx: ClaimContext,
) -> Any:
    eps = _epsilon(input, eps)
    out, scale = _rms_fwd(input, normalized_shape, weight, eps)
    from_result = cx.options["memory_efficient"]
    return out, (out if from_result else input, scale, normalized_shape, weight, eps, from_result)


def rms_norm_backward(saved: Any, grad: Tensor) -> Any:
    kept, scale, shape, weight, eps, from_result = saved
    of_input, of_weight = _rms_bwd(grad.contiguous(), scale, kept, shape, weight, eps, from_result)
    return of_input if weight is None else (of_input, of_weight)


def _both(weight: Tensor | None, bias: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """The kernel takes both parameters or neither."""
    if weight is None and bias is not None:
        return torch.ones_like(bias), bias
    if weight is not None and bias is None:
        return weight, torch.zeros_like(weight)
    return weight, bias


def _epsilon(input: Tensor, eps: float | None) -> float:
    """PyTorch's default: that of the dtype it computes in."""
    computed = torch.float64 if input.dtype is torch.float64 else torch.float32
    return torch.finfo(computed).eps if eps is None else eps
