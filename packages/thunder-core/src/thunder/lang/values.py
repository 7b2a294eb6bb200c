"""Between torch's values and the IR's plain ones: types of tensors, constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from operator import itemgetter
from typing import Any

import torch

from thunder.ir import tree
from thunder.ir.types import Const, Number, NumberType, Ref, TensorType, Var, contiguous_strides
from thunder.lang.numbers import compiled, example, number

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))


@cache
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@cache
def _device_name(device: torch.device) -> str:
    return str(device)


def tensor_type(t: torch.Tensor) -> TensorType:
    """The IR type of a tensor (real or fake)."""
    strided = t.layout is torch.strided
    return TensorType(
        shape=numbers(t.shape),
        stride=numbers(t.stride()) if strided else None,
        dtype=_dtype_name(t.dtype),
        device=_device_name(t.device),
        requires_grad=t.requires_grad,
        layout="strided" if strided else str(t.layout).removeprefix("torch."),
    )


def numbers(values: Iterable[Any]) -> tuple[Any, ...]:
    """The IR form of sizes, strides or other numbers of PyTorch."""
    return tuple([value if type(value) is int else number(value) for value in values])


def in_torch(type: TensorType) -> TensorType:
    """The type with PyTorch's symbolic integers for ``Number``: it computes and compares as a tensor's sizes do."""
    return with_numbers(type, lambda size: size.value)


def by_example(type: TensorType) -> TensorType:
    """The type in the call that the program was compiled for: all sizes are plain integers."""
    return with_numbers(type, example)


def with_numbers(type: TensorType, value: Callable[[Number], Any]) -> TensorType:
    """The type with something else in place of each ``Number``."""
    if not type.is_symbolic:
        return type
    shape, stride = (
        tree.map_tree(lambda n: value(n) if isinstance(n, Number) else n, part) for part in (type.shape, type.stride)
    )
    return replace(type, shape=shape, stride=stride)


def contiguous(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """Row-major strides of a shape, in elements."""
    return numbers(contiguous_strides(tree.map_tree(to_torch, shape)))


def difference(a: Any, b: Any) -> Any:
    """``a - b`` of two sizes."""
    return number(to_torch(a) - to_torch(b))


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


def is_dense(type: TensorType) -> bool:
    """True if the elements of a tensor fill its memory without gaps or overlaps."""
    step = 1
    strides = ((stride, size) for size, stride in zip(type.shape, type.stride or ()) if size != 1)
    for stride, size in sorted(strides, key=itemgetter(0)):
        if stride != step:
            return False
        step *= size
    return type.stride is not None


def empty(type: TensorType) -> torch.Tensor:
    """An uninitialised tensor of the type (fake, under a fake tensor mode). It never requires grad."""
    if type.stride is None:
        layout = getattr(torch, type.layout)
        return torch.zeros(type.shape, dtype=torch_dtype(type.dtype), device=type.device).to_sparse(layout=layout)
    shape, stride = tree.map_tree(to_torch, (type.shape, type.stride))
    return torch.empty_strided(shape, stride, dtype=torch_dtype(type.dtype), device=type.device)


def stand_in(param: Var) -> Any:
    """What computes in place of a parameter while a program is compiled: its number, or an uninitialised tensor."""
    if isinstance(param.type, NumberType):
        known = compiled()
        assert known is not None
        return known.given[param.name]
    assert isinstance(param.type, TensorType)
    return empty(param.type)


def to_ir(value: Any) -> Any:
    """The IR form of a constant argument: plain values stay, torch's constants are spelt, the rest is referred to."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, torch.device):
        return Const(f"torch.device('{value}')")
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return Const(str(value))
    if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
        return number(value)
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
    if isinstance(leaf, (Ref, Number)):
        return leaf.value
    return leaf
