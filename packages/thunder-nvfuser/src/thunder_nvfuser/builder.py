"""A fusion under construction: values of the trace as nvFuser's tensor views, always with the dtype of the trace."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from thunder.extend import TensorType, leaves, map_tree
from thunder_nvfuser.library import Library
from thunder_nvfuser.table import Row

COMPUTE = {"bfloat16": "float32", "float16": "float32"}
"""The dtype in which torch's kernels compute on values of a dtype, where it is another one."""

_HOLDING = {
    "bool": ("int32", "int64", "bfloat16", "float16", "float32", "float64"),
    "bfloat16": ("float32", "float64"),
    "float16": ("float32", "float64"),
    "float32": ("float64",),
    "int32": ("int64", "float64"),
}
"""The dtypes that hold each value of a dtype exactly."""

_KINDS = {"float64": float, "float32": float, "bfloat16": float, "float16": float, "bool": bool}


class Value:
    """A tensor view of a shape and dtype. source: the value that it is a lossless cast of, if it is one."""

    __slots__ = ("dtype", "shape", "source", "view")

    def __init__(self, view: Any, shape: tuple[int, ...], dtype: str, source: Value | None = None) -> None:
        self.view = view
        self.shape = shape
        self.dtype = dtype
        self.source = source


class Builder:
    """Emits nvFuser operations. ops: ``fd.ops``. device: where factories make their tensors."""

    def __init__(self, definition: Any, library: Library, device: str) -> None:
        self.ops = definition.ops
        self.device = device
        self._definition = definition
        self._library = library
        self._casts: dict[tuple[Value, str], Value] = {}

    def input(self, type: TensorType, contiguity: Sequence[bool | None], order: Sequence[int]) -> Value:
        """A parameter of the fusion. Sizes are symbolic, but for those of one, which may be broadcast."""
        view = self._definition.define_tensor(
            shape=[1 if size == 1 else -1 for size in type.shape],
            contiguity=list(contiguity),
            dtype=self.dtype(type.dtype),
            stride_order=list(order),
        )
        return Value(view, type.shape, type.dtype)

    def number(self, type: TensorType) -> Value:
        """A parameter of the fusion that is a number."""
        return Value(self.scalar(None, type.dtype), (), type.dtype)

    def output(self, value: Value, order: Sequence[int] | None) -> None:
        """A result of the fusion; its strides grow in this order of the dimensions (None: that of a new tensor)."""
        view = value.view if order is None else self.ops.stride_order(value.view, stride_order=list(order))
        self._definition.add_output(view)

    def lower(self, row: Row, out: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Emit a call. out: types of its results (a tree). Returns values of exactly those dtypes, in the same tree."""
        results = row.lower(self, out, *args, **kwargs)
        types = iter(list(leaves(out)))
        found = [self._result(result, next(types)) for result in leaves(results)]
        rest = iter(found)
        return map_tree(lambda _: next(rest), out)

    def _result(self, result: Any, type: TensorType | None) -> Value | None:
        if type is None or result is None:
            return None
        value = result if isinstance(result, Value) else self.value(result, type.shape)
        return self.cast(value, type.dtype)

    def value(self, view: Any, shape: Iterable[int]) -> Value:
        """A view that an operation returned, which is asked for its dtype."""
        return Value(view, tuple(shape), self._library.names[view.dtype()])

    def scalar(self, value: Any, dtype: str) -> Any:
        """A number as a constant of the fusion; None for one that it is given."""
        return self._definition.define_scalar(value, dtype=self.dtype(dtype))

    def dtype(self, name: str) -> Any:
        """nvFuser's dtype."""
        return self._library.dtypes[name]

    def cast(self, value: Value, dtype: str) -> Value:
        """The value in another dtype. What was cast up without loss is itself when it is cast down again."""
        if value.dtype == dtype:
            return value
        if value.source is not None and value.source.dtype == dtype:
            return value.source
        known = self._casts.get((value, dtype))
        if known is None:
            source = value if dtype in _HOLDING.get(value.dtype, ()) else None
            view = self.ops.cast(value.view, dtype=self.dtype(dtype))
            known = self._casts[value, dtype] = Value(view, value.shape, dtype, source)
        return known

    def computing(self, value: Value, dtype: str) -> Value:
        """The value as a kernel whose operands have the dtype computes with it: converted to that, then widened."""
        return self.cast(self.cast(value, dtype), COMPUTE.get(dtype, dtype))

    def operands(self, args: Iterable[Any], dtype: str, shape: tuple[int, ...]) -> list[Any]:
        """Tensors and numbers as operands of an elementwise operation on that dtype, broadcast to that shape."""
        return [
            self.broadcast(self.computing(arg, dtype), shape).view if isinstance(arg, Value) else number(arg, dtype)
            for arg in args
        ]

    def broadcast(self, value: Value, shape: tuple[int, ...]) -> Value:
        """The value expanded to a shape, by the rules of broadcasting."""
        if value.shape == shape:
            return value
        dims = range(len(shape) - len(value.shape), len(shape))
        view = self.ops.broadcast_in_dim(value.view, shape=list(shape), broadcast_dims=list(dims))
        return Value(view, shape, value.dtype)


def number(value: Any, dtype: str) -> Any:
    """A Python number of the kind of a dtype."""
    return _KINDS.get(dtype, int)(value)


def common_dtype(*args: Any) -> str:
    """The dtype to which torch promotes tensors (anything with dtype and shape) and numbers."""
    kinds: list[Any] = [(arg.dtype, bool(arg.shape)) if hasattr(arg, "shape") else type(arg) for arg in args]
    return _promoted(*kinds)


@functools.cache
def _promoted(*kinds: Any) -> str:
    """kinds: of each argument, its dtype and whether it has dimensions, or the type of a number."""
    examples = [kind(1) if isinstance(kind, type) else _example(*kind) for kind in kinds]
    return str(torch.result_type(examples[0], examples[-1])).removeprefix("torch.")


def _example(dtype: str, has_dimensions: bool) -> torch.Tensor:
    return torch.empty((1,) * has_dimensions, dtype=getattr(torch, dtype))
