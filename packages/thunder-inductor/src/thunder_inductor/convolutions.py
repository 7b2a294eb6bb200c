"""Convolutions in the memory format that CPUs are fast in: channels last.

What is around a convolution is mostly in regions, which read and write either format at the same cost: there the copies
from one format to the other are no work. PyTorch's own kernels, given the row-major format, copy on every call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thunder.extend import ClaimContext, No, TensorType, Yes

_DTYPES = frozenset({"float32", "bfloat16"})
_HEAVY = 4
"""A weight of more elements than this many times those of the input makes up for all that is gained: PyTorch lays it
out again on every call. Measured on one core, 3x3: 1.9 to 1.6 times faster for 32 and 64 channels of 32 x 32 and
56 x 56 pixels, 1.1 times where the weight has twice the elements, nothing at six times, slower at 90."""


def check(
    cx: ClaimContext,
    input: TensorType,
    weight: TensorType,
    bias: TensorType | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Yes | No:
    if input.device != "cpu" or not torch.backends.mkldnn.enabled or not torch.backends.mkldnn.is_available():
        return No("only oneDNN's convolutions are faster in channels last")
    if input.dtype not in _DTYPES or weight.dtype != input.dtype:
        return No(f"oneDNN does not take {input.dtype}")
    if input.ndim != 4 or isinstance(padding, str):
        return No("needs a batch of images, and padding in numbers")
    if not all(isinstance(extent, int) for extent in input.shape):
        return No("its sizes are known only at run time: nothing around it is fused")
    if not input.is_contiguous or not weight.is_contiguous:
        return No("its memory format is not row-major")
    if weight.numel > _HEAVY * input.numel or not input.numel:
        return No("its weight is larger than its input: it would be laid out again on every call")
    return Yes("channels last")


def lower(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    return _convolved(_channels_last(input), weight, bias, stride, padding, dilation, groups)


def forward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    cx: ClaimContext,
) -> tuple[Tensor, tuple[Any, ...]]:
    laid_out = _channels_last(input)
    out = _convolved(laid_out, weight, bias, stride, padding, dilation, groups)
    return out, (laid_out, weight, stride, padding, dilation, groups, cx.needs_grad)


def backward(saved: tuple[Any, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
    laid_out, weight, stride, padding, dilation, groups, needs = saved
    sizes = None if len(needs) == 2 else [weight.shape[0]]
    wanted = [*needs, False][:3]
    gradients = torch.ops.aten.convolution_backward(
        _channels_last(grad),
        laid_out,
        weight,
        sizes,
        _pair(stride),
        _pair(padding),
        _pair(dilation),
        False,
        [0, 0],
        groups,
        wanted,
    )
    return tuple(_row_major(g) if need else None for g, need in zip(gradients, needs))


def _convolved(laid_out: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    return _row_major(torch.nn.functional.conv2d(laid_out, weight, *rest))


def _channels_last(t: Tensor) -> Tensor:
    return torch.clone(t, memory_format=torch.channels_last)


def _row_major(t: Tensor) -> Tensor:
    laid_out = torch.clone(t, memory_format=torch.contiguous_format)
    return t if t.stride() == laid_out.stride() else laid_out


def _pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value) * (2 // len(value))
