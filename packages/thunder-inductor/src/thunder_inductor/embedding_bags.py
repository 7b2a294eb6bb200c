"""Bags of one row each: a lookup, which becomes part of the region around. PyTorch's kernel is for larger bags."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from thunder.extend import ClaimContext, No, TensorType, Yes


def check(
    cx: ClaimContext,
    input: TensorType,
    weight: TensorType,
    offsets: TensorType | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: TensorType | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Yes | No:
    """Where it is known that each bag holds one row, and the row is returned as it is."""
    if weight.device != "cpu":
        return No("PyTorch's own kernel is faster")
    if input.ndim != 2 or input.shape[1] != 1:
        return No("its bags are not of one row each")
    if max_norm is not None or per_sample_weights is not None or padding_idx is not None:
        return No("it changes the rows, or leaves some out")
    if scale_grad_by_freq or sparse:
        return No("its gradient is not that of a lookup")
    return Yes("a lookup")


def lower(input: Tensor, weight: Tensor, *args: Any, **options: Any) -> Tensor:
    """The rows, (bags, width), at the indices, (bags, 1), of the table, (rows, width)."""
    return F.embedding(input[:, 0], weight)


def forward(input: Tensor, weight: Tensor, *args: Any, **options: Any) -> tuple[Tensor, tuple[Tensor, int]]:
    """The rows, and what says where they are from."""
    indices = input[:, 0]
    return F.embedding(indices, weight), (indices, weight.shape[0])


def backward(saved: tuple[Tensor, int], grad: Tensor) -> tuple[None, Tensor]:
    """The gradient of the table."""
    indices, rows = saved
    return None, torch.ops.aten.embedding_dense_backward(grad, indices, rows, -1, False)
