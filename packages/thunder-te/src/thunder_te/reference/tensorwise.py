"""One scale for a whole tensor: delayed and current scaling."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thunder_te.scaling import LARGEST_SCALE

Parts = tuple[Tensor, ...]
"""The FP8 values [rows, columns], and what to multiply them by (float32, one element)."""


def quantise(t: Tensor, dtype: torch.dtype, scale: Tensor | None, how: Any) -> tuple[Parts, Tensor]:
    """The parts of a matrix, and its largest absolute value.

    scale: float32 scalar; from the matrix itself if there is none, as ``how`` (the QParams of the recipe) says.
    """
    low, high = torch.aminmax(t)
    amax = torch.maximum(-low, high).float()
    if scale is None:
        scale = current_scale(amax, torch.finfo(dtype).max, how)
    return (saturated(t.float() * scale, dtype), scale.reciprocal()), amax


def current_scale(amax: Tensor, largest: float, how: Any) -> Tensor:
    """The scale that lets ``amax`` (float32 scalar) be ``largest``, the largest value of the format."""
    amax = amax.clamp(min=how.amax_epsilon)
    usable = torch.isfinite(amax) & (amax > 0)
    scale = torch.where(usable, (largest / amax).clamp(max=LARGEST_SCALE), 1.0)
    return power_of_two_below(scale) if how.power_2_scale else scale


def power_of_two_below(scale: Tensor) -> Tensor:
    """The mantissa of a float32 cleared."""
    return (scale.view(torch.int32) & 0x7F800000).view(torch.float32)


def saturated(t: Tensor, dtype: torch.dtype) -> Tensor:
    """A fresh float32 tensor in FP8, with what is too large clamped: PyTorch's own cast differs between versions."""
    largest = torch.finfo(dtype).max
    return t.clamp_(-largest, largest).to(dtype)


def values(parts: Parts, along: int) -> Tensor:
    """The FP8 values in bfloat16, to be summed along a dimension: here they are the same for both."""
    return parts[0].to(torch.bfloat16)


def factor(a: Parts, b: Parts) -> Tensor | None:
    """What to multiply the product of the values of two matrices by."""
    return a[1] * b[1]
