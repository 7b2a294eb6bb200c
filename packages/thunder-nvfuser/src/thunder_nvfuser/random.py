"""Random numbers as functions of a seed and an offset, so that backward makes those of forward again.

``draw`` takes both from the generator of a device. The rest is arithmetic, part of regions like any other: backward
keeps two numbers. They stand for other random numbers than those PyTorch's kernels make of them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from thunder_nvfuser import library

ROUND = 4
"""Numbers that the generator (Philox) makes at once. PyTorch's offsets count numbers, nvFuser's count rounds."""


def draw(device: torch.device) -> tuple[Tensor, Tensor]:
    """The seed and the round of a device's generator, which moves on by one round: int64 numbers on the CPU.

    Raises RuntimeError while a CUDA graph is captured, which would repeat the numbers of the capture.
    """
    generator = library.load().generator(device)
    offset = generator.get_offset()
    generator.set_offset(offset + ROUND)
    seed = generator.initial_seed() & torch.iinfo(torch.int64).max
    return torch.tensor(seed), torch.tensor(offset // ROUND)


def draw_type(device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.empty((), dtype=torch.int64), torch.empty((), dtype=torch.int64)


def uniform(shape: Sequence[int], seed: Tensor, offset: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers between 0 (included) and 1 by a kernel of its own: the same as in a region."""
    return _made("uniform", shape, seed, offset, dtype, device)


def normal(shape: Sequence[int], seed: Tensor, offset: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Normally distributed numbers of mean 0 and variance 1 by a kernel of its own: the same as in a region."""
    return _made("normal", shape, seed, offset, dtype, device)


def numbers_type(
    shape: Sequence[int], seed: Tensor, offset: Tensor, dtype: torch.dtype, device: torch.device
) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=device)


def emit(ops: Any, name: str, shape: Sequence[int], seed: Any, offset: Any, dtype: Any) -> Any:
    """``fd.ops.uniform`` from 0 to 1, or ``fd.ops.normal`` of mean 0 and standard deviation 1."""
    return getattr(ops, name)(0.0, 1.0, list(shape), rng_seed=seed, rng_offset=offset, dtype=dtype)


def _made(
    name: str, shape: Sequence[int], seed: Tensor, offset: Tensor, dtype: torch.dtype, device: torch.device
) -> Tensor:
    kernel = _kernel(library.load(), name, tuple(shape), str(dtype).removeprefix("torch."))
    out: Tensor = kernel.execute([seed.item(), offset.item()], device=device)[0]
    return out


@functools.lru_cache(maxsize=256)
def _kernel(found: library.Library, name: str, shape: tuple[int, ...], dtype: str) -> Any:
    with found.module.FusionDefinition() as definition:
        seed, offset = (definition.define_scalar(None, dtype=found.dtypes["int64"]) for _ in range(2))
        definition.add_output(emit(definition.ops, name, shape, seed, offset, found.dtypes[dtype]))
    return definition
