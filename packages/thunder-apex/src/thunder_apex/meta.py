"""Types of the results of the kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Shape = Sequence[int]


def cross_entropy_fwd(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    rows = logits.shape[0]
    sums = torch.float32 if logits.dtype is torch.float16 else logits.dtype
    return logits.new_empty(rows, dtype=torch.float32), logits.new_empty(rows, dtype=sums)


def cross_entropy_bwd(grad: Tensor, logits: Tensor, sums: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    return torch.empty_like(logits)


def layer_norm_fwd(
    input: Tensor, shape: Shape, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(input), _by_row(input, shape), _by_row(input, shape)


def layer_norm_bwd(
    grad: Tensor,
    mean: Tensor | None,
    scale: Tensor,
    kept: Tensor,
    shape: Shape,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    return torch.empty_like(kept), _like(weight), _like(bias)


def rms_norm_fwd(input: Tensor, shape: Shape, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(input), _by_row(input, shape)


def rms_norm_bwd(
    grad: Tensor, scale: Tensor, kept: Tensor, shape: Shape, weight: Tensor | None, eps: float, from_result: bool
) -> tuple[Tensor, Tensor | None]:
    return torch.empty_like(kept), _like(weight)


def _like(t: Tensor | None) -> Tensor | None:
    return torch.empty_like(t) if t is not None else None


def _by_row(input: Tensor, shape: Shape) -> Tensor:
    """A statistic of each row: float32 for 16-bit inputs, else in the dtype of the input."""
    dtype = input.dtype if input.dtype in (torch.float32, torch.float64) else torch.float32
    return input.new_empty(input.numel() // math.prod(shape), dtype=dtype)
