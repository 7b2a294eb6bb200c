"""A power of two for each block of 32 values along the dimension that is summed over: MXFP8."""

from __future__ import annotations

import torch
from torch import Tensor

from thunder_te.precision import LARGEST, How
from thunder_te.reference.tensorwise import saturated

BLOCK = 32

Parts = tuple[Tensor, ...]
"""The matrix quantised along its columns (values [rows, columns] and biased exponents [rows, columns / 32]), then its
transpose, likewise."""


def quantise(t: Tensor, scale: Tensor | None, how: How) -> tuple[Parts, None]:
    """The parts of a matrix. There is no scale of the whole."""
    return (*_along_columns(t.contiguous(), how[1]), *_along_columns(t.t().contiguous(), how[1])), None


def _along_columns(t: Tensor, form: str) -> tuple[Tensor, Tensor]:
    blocks = t.float().reshape(t.shape[0], -1, BLOCK)
    exponents = biased_exponent(blocks.abs().amax(-1) * (1 / LARGEST[form]))
    scaled = blocks * power_of_two(127 - exponents.int())[..., None]
    return saturated(scaled, form).reshape(t.shape), exponents


def biased_exponent(amax: Tensor) -> Tensor:
    """The exponent (uint8, biased by 127) of the least power of two that is not below a float32; 255 for NaN."""
    bits = amax.view(torch.int32)
    exponent, mantissa = bits >> 23, bits & 0x7FFFFF
    up = (mantissa > 0) & (exponent < 254) & ~((exponent == 0) & (mantissa <= 0x400000))
    exponent = torch.where(torch.isinf(amax), 254, exponent + up)
    return torch.where(torch.isnan(amax), 255, exponent).to(torch.uint8)


def power_of_two(exponent: Tensor) -> Tensor:
    """Two to the power of an int32 tensor in float32, made of its bits; the range of exponents is -127 to 127."""
    normal = (exponent + 127).clamp(min=1) << 23
    return torch.where(exponent == -127, 0x00400000, normal).view(torch.float32)


def values(parts: Parts, along: int) -> Tensor:
    """The values in bfloat16, to be summed along a dimension. Powers of two are exact in it."""
    data, exponents = parts[:2] if along == 1 else parts[2:]
    powers = power_of_two(exponents.int() - 127).to(torch.bfloat16)
    wide = data.to(torch.bfloat16).reshape(*exponents.shape, BLOCK) * powers[..., None]
    matrix = wide.reshape(data.shape)
    return matrix if along == 1 else matrix.t()


def factor(a: Parts, b: Parts) -> Tensor | None:
    """The values are true to scale already."""
    return None
