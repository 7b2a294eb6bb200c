"""Linear layers with an activation, as one call: oneDNN applies it to what it has just multiplied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from thunder.extend import ClaimContext, No, TensorType, Yes
from thunder_onednn import machine
from thunder_onednn.products import alone, packs, unfit_linear

Then = tuple[tuple[Callable[..., Tensor], tuple[Any, ...], dict[str, Any]], ...]

NAMES = {F.gelu: "gelu", F.relu: "relu", torch.relu: "relu", F.silu: "swish"}
"""What oneDNN calls them."""


def check(
    cx: ClaimContext,
    linear: Callable[..., Tensor],
    input: TensorType,
    weight: TensorType,
    bias: TensorType | None = None,
    *,
    then: Then,
) -> Yes | No:
    if reason := unfit_linear(input, weight, bias):
        return No(reason)
    if input.dtype not in machine.ACTIVATED:
        return No(f"oneDNN does not multiply in {input.dtype}")
    same, enough = input.dtype == "bfloat16", machine.ACTIVATED[input.dtype]
    if reason := machine.slower(cx, input.numel * weight.shape[0], enough, same_product=same):
        return No(reason)
    return Yes(candidates=("packed", "plain") if packs(cx, input) else ())


def lower(
    linear: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    then: Then,
    cx: ClaimContext,
) -> Tensor:
    ((activation, _, keywords),) = then
    return alone(input, weight, bias, NAMES[activation], keywords.get("approximate", "none"), cx=cx)
