"""Cross entropy as PyTorch defines it, around a kernel that knows rows only.

The kernel gives the loss of each row, for labels that are classes. Labels to ignore, reductions and the dtype of the
result are done around it with torch calls on one number per row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thunder.extend import symbol

_fwd, _bwd = symbol("apex.cross_entropy_fwd"), symbol("apex.cross_entropy_bwd")


def cross_entropy_lower(*args: Any, **kwargs: Any) -> Tensor:
    return cross_entropy_forward(*args, **kwargs)[0]


def cross_entropy_forward(
    input: Tensor,
    target: Tensor,
    weight: None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    ignored, smoothing = target.eq(ignore_index), float(label_smoothing)
    losses, sums = _fwd(input, target.masked_fill(ignored, 0), smoothing)
    losses = losses.masked_fill(ignored, 0)
    saved = (input, target, sums, ignore_index, reduction, smoothing)
    return _reduced(losses, ignored, reduction).to(input.dtype), saved


def cross_entropy_backward(saved: Any, grad: Tensor) -> Any:
    input, target, sums, ignore_index, reduction, smoothing = saved
    ignored = target.eq(ignore_index)
    grad = grad.to(torch.float32)
    if reduction == "mean":
        grad = grad / ignored.logical_not().sum()
    by_row = torch.where(ignored, 0, grad).to(sums.dtype)
    return _bwd(by_row, input, sums, target.masked_fill(ignored, 0), smoothing), None


def _reduced(losses: Tensor, ignored: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / ignored.logical_not().sum()
