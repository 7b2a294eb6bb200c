"""Between torch's values and the IR's plain ones: types of tensors, constants."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from thunder.ir.types import Const, Ref, TensorType

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))


@cache
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@cache
def _device_name(device: torch.device) -> str:
    return str(device)


def tensor_type(t: torch.Tensor) -> TensorType:
    """The IR type of a tensor (real or fake). Symbolic sizes are specialised to their hints."""
    strided = t.layout is torch.strided
    return TensorType(
        shape=tuple([int(n) for n in t.shape]),
        stride=tuple([int(n) for n in t.stride()]) if strided else None,
        dtype=_dtype_name(t.dtype),
        device=_device_name(t.device),
        requires_grad=t.requires_grad,
        layout="strided" if strided else str(t.layout).removeprefix("torch."),
    )


@cache
def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of an IR dtype name."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def is_differentiable(type: TensorType) -> bool:
    """True for dtypes that can carry gradients."""
    dtype = torch_dtype(type.dtype)
    return dtype.is_floating_point or dtype.is_complex


def empty(type: TensorType) -> torch.Tensor:
    """An uninitialised tensor of the type (fake, under a fake tensor mode). It never requires grad."""
    if type.stride is None:
        layout = getattr(torch, type.layout)
        return torch.zeros(type.shape, dtype=torch_dtype(type.dtype), device=type.device).to_sparse(layout=layout)
    return torch.empty_strided(type.shape, type.stride, dtype=torch_dtype(type.dtype), device=type.device)


def to_ir(value: Any) -> Any:
    """The IR form of a constant argument: plain values stay, torch's constants are spelt, the rest is referred to."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, torch.device):
        return Const(f"torch.device('{value}')")
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return Const(str(value))
    if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
        return value.node.guard_int("", 0) if isinstance(value, torch.SymInt) else value.node.hint
    if isinstance(value, (bool, int, float, str)):  # subclasses: enums, numpy scalars
        return Ref(type(value).__name__, value)
    name = getattr(value, "__name__", None) or type(value).__name__
    return Ref(name if name.isidentifier() else "value", value)


@cache
def _evaluate(text: str) -> Any:
    return eval(text, {"torch": torch})


def to_torch(leaf: Any) -> Any:
    """The inverse of ``to_ir`` for constants; variables and plain values are returned as they are."""
    if isinstance(leaf, Const):
        return _evaluate(leaf.text)
    if isinstance(leaf, Ref):
        return leaf.value
    return leaf
