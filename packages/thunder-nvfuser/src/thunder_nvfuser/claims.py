"""Functions of PyTorch that draw random numbers, by nvFuser's own generator, where the option asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from thunder.extend import ClaimContext, No, TensorType, Yes, symbol
from thunder_nvfuser import library
from thunder_nvfuser.table import FLOATS

_draw, _uniform, _normal = symbol("nvfuser.draw"), symbol("nvfuser.uniform"), symbol("nvfuser.normal")

_LIKE_EAGER = (None, False, torch.strided, torch.preserve_format)
"""Values of a factory's other arguments that say nothing."""


def dropout(cx: ClaimContext, input: TensorType, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if not training or not 0 < p < 1:
        return No("it draws no numbers")
    return _answer(cx, input.shape, input.dtype, input.device)


def like(cx: ClaimContext, input: TensorType, *, dtype: Any = None, device: Any = None, **others: Any) -> Yes | No:
    return _answer(cx, input.shape, _named(dtype) or input.dtype, str(device or input.device), others)


def factory(cx: ClaimContext, *size: Any, dtype: Any = None, device: Any = None, **others: Any) -> Yes | No:
    return _answer(cx, _shape(size), _named(dtype or torch.get_default_dtype()), str(device or "cpu"), others)


def bernoulli(cx: ClaimContext, input: TensorType, p: float | None = None, *, generator: Any = None) -> Yes | No:
    return _answer(cx, input.shape, input.dtype, input.device, {"p": p, "generator": generator})


def dropout_lower(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return _dropped(input, p, *_draw(input.device))


def dropout_forward(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    seed, offset = _draw(input.device)
    return _dropped(input, p, seed, offset), (p, seed, offset)


def dropout_backward(saved: Any, grad: Tensor) -> Tensor:
    return _dropped(grad, *saved)


def _dropped(x: Tensor, p: float, seed: Tensor, offset: Tensor) -> Tensor:
    """Each element by ``1 / (1 - p)`` times what it is, or with probability ``p`` zero."""
    kept = _uniform(x.shape, seed, offset, torch.float32, x.device) >= p
    return x * kept * (1 / (1 - p))


def rand_like_lower(input: Tensor, *, dtype: Any = None, device: Any = None, **others: Any) -> Tensor:
    return _numbers(_uniform, input.shape, dtype or input.dtype, device or input.device)


def randn_like_lower(input: Tensor, *, dtype: Any = None, device: Any = None, **others: Any) -> Tensor:
    return _numbers(_normal, input.shape, dtype or input.dtype, device or input.device)


def rand_lower(*size: Any, dtype: Any = None, device: Any = None, **others: Any) -> Tensor:
    return _numbers(_uniform, _shape(size), dtype or torch.get_default_dtype(), device)


def randn_lower(*size: Any, dtype: Any = None, device: Any = None, **others: Any) -> Tensor:
    return _numbers(_normal, _shape(size), dtype or torch.get_default_dtype(), device)


def bernoulli_lower(input: Tensor, p: None = None, *, generator: None = None) -> Tensor:
    return (_numbers(_uniform, input.shape, torch.float32, input.device) < input).to(input.dtype)


def _numbers(make: Any, shape: Sequence[int], dtype: torch.dtype, device: Any) -> Tensor:
    place = torch.device(device)
    return make(shape, *_draw(place), dtype, place)


def _answer(cx: ClaimContext, shape: Sequence[Any], dtype: str, device: str, others: Any = None) -> Yes | No:
    if not cx.options["rng"]:
        return No("nvFuser draws other numbers than PyTorch: only with the option nvfuser.rng")
    types = library.load().device_types
    if device.partition(":")[0] not in types:
        return No(f"nvFuser runs on {' and '.join(sorted(types))}, not on {device}")
    if dtype not in FLOATS:
        return No(f"nvFuser draws no {dtype}")
    if not shape or 0 in shape or not all(isinstance(size, int) for size in shape):
        return No(f"nvFuser draws tensors of one dimension or more with sizes that are known, not {list(shape)}")
    if given := [name for name, value in (others or {}).items() if value not in _LIKE_EAGER]:
        return No(f"nvFuser draws without {' and '.join(given)}")
    return Yes()


def _shape(size: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size


def _named(dtype: torch.dtype | None) -> str:
    return "" if dtype is None else str(dtype).removeprefix("torch.")
