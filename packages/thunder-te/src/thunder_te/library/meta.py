"""Types of the results of TransformerEngine's operations: its quantised tensors have the types they stand for."""

from __future__ import annotations

import torch
from torch import Tensor

from thunder_te.precision import How
from thunder_te.weights import Quantised

Parts = tuple[Tensor, ...]


def weight_parts(weight: Tensor, scales: Tensor | None, how: How) -> Quantised:
    return (torch.empty_like(weight),), _amax(weight, how)


def linear_fwd(
    input: Tensor, weight: Parts, bias: Tensor | None, scales: Tensor | None, how: How
) -> tuple[Tensor, Parts, Tensor | None]:
    out = input.new_empty(input.shape[0], weight[0].shape[0])
    return out, (torch.empty_like(input),), _amax(input, how)


def linear_bwd(
    grad: Tensor, input: Parts, weight: Parts, scale: Tensor | None, how: How
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    of_input = grad.new_empty(grad.shape[0], weight[0].shape[1]) if weight else None
    of_weight = grad.new_empty(grad.shape[1], input[0].shape[1]) if input else None
    return of_input, of_weight, _amax(grad, how)


def _amax(t: Tensor, how: How) -> Tensor | None:
    return t.new_empty((), dtype=torch.float32) if how[0] == "delayed" else None
