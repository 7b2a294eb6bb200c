"""Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) as nvFuser's kernels use it.

The key is the seed, the counter is the offset and, above it, the place of four elements of a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_LOW = 2**32 - 1
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def philox(counter: Sequence[Tensor], key: tuple[int, int]) -> list[Tensor]:
    """Four numbers of 32 bits for each counter of four (int64 tensors)."""
    a, b, c, d = counter
    for _ in range(10):
        (high0, low0), (high1, low1) = _product(a, _MULTIPLIERS[0]), _product(c, _MULTIPLIERS[1])
        a, b, c, d = high1 ^ b ^ key[0], low1, high0 ^ d ^ key[1], low0
        key = ((key[0] + _WEYL[0]) & _LOW, (key[1] + _WEYL[1]) & _LOW)
    return [a, b, c, d]


def _product(x: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
    """The upper and lower half of the 64 bits of a product, by halves of ``x``: int64 holds 63."""
    low, high = (x & 0xFFFF) * multiplier, (x >> 16) * multiplier
    middle = high + (low >> 16)
    return middle >> 16, ((middle & 0xFFFF) << 16) | (low & 0xFFFF)


def words(count: int, seed: int, offset: int) -> Tensor:
    """Of each element of a tensor, its 32 random bits, as int64."""
    places = torch.arange(-(-count // 4))
    fixed = [torch.full_like(places, part) for part in (offset & _LOW, offset >> 32)]
    parts = philox([*fixed, places & _LOW, places >> 32], (seed & _LOW, seed >> 32))
    return torch.stack(parts, 1).flatten()[:count]


def uniform(shape: Sequence[int], seed: int, offset: int, dtype: torch.dtype) -> Tensor:
    """Numbers from [0, 1). What is rounded to one is zero."""
    numbers = (words(math.prod(shape), seed, offset) * 2.0**-32).to(dtype)
    return torch.where(numbers == 1, 0, numbers).reshape(list(shape))


def normal(shape: Sequence[int], seed: int, offset: int, dtype: torch.dtype) -> Tensor:
    """Normally distributed numbers, from each pair of words two."""
    count = math.prod(shape)
    pairs = (words(count + count % 2, seed, offset) + 0.5) * 2.0**-32
    radius, angle = (-2 * pairs[::2].log()).sqrt(), 2 * math.pi * pairs[1::2]
    both = torch.stack([radius * angle.sin(), radius * angle.cos()], 1)
    return both.flatten()[:count].to(dtype).reshape(list(shape))
