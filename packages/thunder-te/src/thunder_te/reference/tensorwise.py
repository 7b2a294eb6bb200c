"""One scale for a whole tensor: delayed and current scaling."""

from __future__ import annotations

import torch
from torch import Tensor

from thunder_te.precision import LARGEST, How
from thunder_te.scaling import LARGEST_SCALE, divided

Parts = tuple[Tensor, ...]
"""The FP8 values [rows, columns], and what to multiply them by (float32, one element)."""


DTYPES = {"E4M3": torch.float8_e4m3fn, "E5M2": torch.float8_e5m2}


def quantise(t: Tensor, scale: Tensor | None, how: How) -> tuple[Parts, Tensor]:
    """The parts of a matrix, and its largest absolute value. scale: float32 scalar, for delayed scaling."""
    low, high = torch.aminmax(t)
    amax = torch.maximum(-low, high).float()
    if scale is None:
        scale = current_scale(amax, how)
    return (saturated(t.float() * scale, how[1]), scale.reciprocal()), amax


def current_scale(amax: Tensor, how: How) -> Tensor:
    """The scale that lets ``amax`` (float32 scalar) be the largest value of the format."""
    _, form, epsilon, power_2_scale = how
    amax = amax.clamp(min=epsilon)
    usable = torch.isfinite(amax) & (amax > 0)
    scale = torch.where(usable, divided(LARGEST[form], amax).clamp(max=LARGEST_SCALE), 1.0)
    return power_of_two_below(scale) if power_2_scale else scale


def power_of_two_below(scale: Tensor) -> Tensor:
    """The mantissa of a float32 cleared."""
    return (scale.view(torch.int32) & 0x7F800000).view(torch.float32)


def saturated(t: Tensor, form: str) -> Tensor:
    """A fresh float32 tensor in FP8, with what is too large clamped: PyTorch's own cast differs between versions."""
    return t.clamp_(-LARGEST[form], LARGEST[form]).to(DTYPES[form])


def values(parts: Parts, along: int) -> Tensor:
    """The FP8 values in bfloat16, to be summed along a dimension: here they are the same for both."""
    return parts[0].to(torch.bfloat16)


def factor(a: Parts, b: Parts) -> Tensor | None:
    """What to multiply the product of the values of two matrices by."""
    return a[1] * b[1]
