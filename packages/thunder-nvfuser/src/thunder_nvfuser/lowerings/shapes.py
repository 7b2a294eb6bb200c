"""Operators that move elements without changing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.extend import TensorType
from thunder_nvfuser.builder import Builder, Value, number
from thunder_nvfuser.table import ANY, Row, rows


def expand(b: Builder, out: TensorType, x: Value, size: Any, implicit: bool = False) -> Value:
    return b.broadcast(x, out.shape)


def broadcast_in_dim(b: Builder, out: TensorType, x: Value, shape: Any, broadcast_dimensions: Sequence[int]) -> Any:
    return b.ops.broadcast_in_dim(x.view, shape=list(out.shape), broadcast_dims=list(broadcast_dimensions))


def permute(b: Builder, out: TensorType, x: Value, dims: Sequence[int]) -> Any:
    return b.ops.permute(x.view, [d % len(x.shape) for d in dims])


def t(b: Builder, out: TensorType, x: Value) -> Any:
    return permute(b, out, x, (1, 0)) if len(x.shape) == 2 else x


def transpose(b: Builder, out: TensorType, x: Value, dim0: int, dim1: int) -> Any:
    order = list(range(len(x.shape)))
    if not order:
        return x
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return permute(b, out, x, order)


def reshape(b: Builder, out: TensorType, x: Value, size: Any, stride: Any = None) -> Any:
    return x if x.shape == out.shape else b.ops.reshape(x.view, list(out.shape))


def as_strided(b: Builder, out: TensorType, x: Value, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    return reshape(b, out, x, size)


def all_of_it(
    out: TensorType, x: TensorType, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> str:
    """Where both are the same memory in the same order it is a new shape."""
    same = out.numel == x.numel and not storage_offset and _is_contiguous(out) and _is_contiguous(x)
    return "" if same else "nvFuser does not address memory by strides"


def _is_contiguous(type: TensorType) -> bool:
    step = 1
    for size, stride in zip(reversed(type.shape), reversed(type.stride or ())):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def unsqueeze(b: Builder, out: TensorType, x: Value, dim: int) -> Any:
    new = dim % len(out.shape)
    return b.ops.broadcast(x.view, [d == new for d in range(len(out.shape))])


def squeeze(b: Builder, out: TensorType, x: Value, dim: Sequence[int] | int | None = None) -> Any:
    rank = len(x.shape)
    asked = [dim] if isinstance(dim, int) else range(rank) if dim is None else dim
    dims = sorted({d % rank for d in asked if x.shape[d] == 1}) if rank else []
    return b.ops.squeeze(x.view, dims) if dims else x


def cut(b: Builder, x: Value, dim: int, start: int, end: int) -> Any:
    """The elements from ``start`` to ``end`` along a dimension."""
    if (start, end) == (0, x.shape[dim]):
        return x.view
    starts, ends = [0] * len(x.shape), list(x.shape)
    starts[dim], ends[dim] = start, end
    return b.ops.slice(x.view, start_indices=starts, end_indices=ends)


def slice_(
    b: Builder,
    out: TensorType,
    x: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Any:
    first, last, _ = slice(start, end).indices(x.shape[dim])
    return cut(b, x, dim % len(x.shape), first, last)


def by_one(out: TensorType, *args: Any, **kwargs: Any) -> str:
    step = kwargs.get("step", args[-1] if len(args) > 4 else 1)
    return "" if step == 1 else "nvFuser slices in steps of one"


def select(b: Builder, out: TensorType, x: Value, dim: int, index: int) -> Any:
    at, place = dim % len(x.shape), index % x.shape[dim]
    return b.ops.squeeze(cut(b, x, at, place, place + 1), [at])


def split(b: Builder, out: Sequence[TensorType], x: Value, size: Any, dim: int = 0) -> list[Any]:
    at, start, parts = dim % len(x.shape), 0, []
    for type in out:
        parts.append(cut(b, x, at, start, start + type.shape[at]))
        start += type.shape[at]
    return parts


def unbind(b: Builder, out: Sequence[TensorType], x: Value, dim: int = 0) -> list[Any]:
    return [select(b, type, x, dim, index) for index, type in enumerate(out)]


def cat(b: Builder, out: TensorType, tensors: Sequence[Value], dim: int = 0) -> Any:
    parts = [b.cast(part, out.dtype).view for part in tensors if part.shape != (0,)]
    return b.ops.cat(parts, dim=dim % len(out.shape))


def stack(b: Builder, out: TensorType, tensors: Sequence[Value], dim: int = 0) -> Any:
    at = dim % len(out.shape)
    shape = tuple(1 if d == at else size for d, size in enumerate(out.shape))
    parts = [Value(unsqueeze(b, out, part, at), shape, part.dtype) for part in tensors]
    return cat(b, out, parts, at)


def padded(b: Builder, x: Value, widths: Sequence[int], value: Any) -> Any:
    """``torch.nn.functional.pad``: widths before and after the last dimension, then those of the one before it, …"""
    return b.ops.pad(x.view, list(widths), b.scalar(number(value, x.dtype), x.dtype))


def constant_pad_nd(b: Builder, out: TensorType, x: Value, pad: Sequence[int], value: Any = 0) -> Any:
    return padded(b, x, pad, value)


def slice_backward(
    b: Builder, out: TensorType, grad: Value, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Any:
    first, last, _ = slice(start, end).indices(out.shape[dim])
    return _placed(b, out, grad, dim % len(out.shape), first, last)


def select_backward(b: Builder, out: TensorType, grad: Value, input_sizes: Sequence[int], dim: int, index: int) -> Any:
    at, place = dim % len(out.shape), index % out.shape[dim]
    shape = tuple(1 if d == at else size for d, size in enumerate(out.shape))
    return _placed(b, out, Value(unsqueeze(b, out, grad, at), shape, grad.dtype), at, place, place + 1)


def _placed(b: Builder, out: TensorType, x: Value, dim: int, start: int, end: int) -> Any:
    """A part of a result that is zero elsewhere."""
    after = len(out.shape) - 1 - dim
    return padded(b, x, [0, 0] * after + [start, out.shape[dim] - end], 0)


_DATA: dict[str, Any] = {"operands": ANY, "results": ANY}

ROWS: dict[str, Row] = {
    "aten.expand": Row(lower=expand, **_DATA),
    "prims.broadcast_in_dim": Row(lower=broadcast_in_dim, **_DATA),
    "aten.permute": Row(lower=permute, **_DATA),
    "aten.t": Row(lower=t, **_DATA),
    "aten.transpose.int": Row(lower=transpose, **_DATA),
    **rows(("aten.view", "aten._unsafe_view", "aten.reshape", "aten._reshape_alias"), lower=reshape, **_DATA),
    "aten.as_strided": Row(lower=as_strided, refuse=all_of_it, **_DATA),
    "aten.unsqueeze": Row(lower=unsqueeze, **_DATA),
    **rows(("aten.squeeze", "aten.squeeze.dim", "aten.squeeze.dims"), lower=squeeze, **_DATA),
    "aten.slice.Tensor": Row(lower=slice_, refuse=by_one, **_DATA),
    "aten.select.int": Row(lower=select, **_DATA),
    **rows(("aten.split.Tensor", "aten.split_with_sizes"), lower=split, **_DATA),
    "aten.unbind.int": Row(lower=unbind, **_DATA),
    "aten.cat": Row(lower=cat, **_DATA),
    "aten.stack": Row(lower=stack, **_DATA),
    "aten.constant_pad_nd": Row(lower=constant_pad_nd, **_DATA),
    "aten.slice_backward": Row(lower=slice_backward, refuse=by_one, **_DATA),
    "aten.select_backward": Row(lower=select_backward, **_DATA),
}
