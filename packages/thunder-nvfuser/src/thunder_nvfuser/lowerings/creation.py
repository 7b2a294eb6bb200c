"""Operators that make tensors of nothing."""

from __future__ import annotations

from typing import Any

from thunder.extend import TensorType
from thunder_nvfuser.builder import Builder, Value, number
from thunder_nvfuser.table import ANY, FLOATS, INTEGERS, NUMBERS, Row, rows


def filled(b: Builder, out: TensorType, value: Any) -> Any:
    return b.ops.full(shape=list(out.shape), fill_value=number(value, out.dtype), dtype=b.dtype(out.dtype))


def full(b: Builder, out: TensorType, size: Any, fill_value: Any, **kwargs: Any) -> Any:
    return filled(b, out, fill_value)


def new_full(b: Builder, out: TensorType, like: Value, size: Any, fill_value: Any, **kwargs: Any) -> Any:
    return filled(b, out, fill_value)


def scalar_tensor(b: Builder, out: TensorType, value: Any, **kwargs: Any) -> Any:
    return filled(b, out, value)


def zeros(b: Builder, out: TensorType, *args: Any, **kwargs: Any) -> Any:
    return filled(b, out, 0)


def ones(b: Builder, out: TensorType, *args: Any, **kwargs: Any) -> Any:
    return filled(b, out, 1)


def fill(b: Builder, out: TensorType, x: Value, value: Value) -> Value:
    return b.broadcast(value, out.shape)


def arange(b: Builder, out: TensorType, *args: Any, **kwargs: Any) -> Any:
    """``arange(end)``, ``arange(start, end)`` or ``arange(start, end, step)``."""
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)
    length = out.shape[0]
    if out.dtype in INTEGERS:
        return b.ops.iota(length, start, step, dtype=b.dtype(out.dtype))
    places = b.value(b.ops.iota(length, 0, 1, dtype=b.dtype("int64")), out.shape)
    steps = b.computing(places, "float64" if out.dtype == "float64" else "float32")
    return b.ops.add(b.ops.mul(steps.view, float(step)), float(start))


def whole_steps(out: TensorType, *args: Any, **kwargs: Any) -> str:
    fractional = out.dtype in INTEGERS and any(isinstance(arg, float) for arg in args)
    return "nvFuser counts integers in whole steps" if fractional else ""


_DATA: dict[str, Any] = {"operands": ANY, "results": ANY}

ROWS: dict[str, Row] = {
    **rows(("aten.full", "aten.full_like"), lower=full, **_DATA),
    "aten.new_full": Row(lower=new_full, **_DATA),
    **rows(("aten.zeros", "aten.zeros_like", "aten.new_zeros"), lower=zeros, **_DATA),
    **rows(("aten.ones", "aten.ones_like", "aten.new_ones"), lower=ones, **_DATA),
    "aten.scalar_tensor": Row(lower=scalar_tensor, **_DATA),
    "aten.fill.Scalar": Row(lower=lambda b, out, x, value: filled(b, out, value), **_DATA),
    "aten.fill.Tensor": Row(lower=fill, **_DATA),
    **rows(
        ("aten.arange", "aten.arange.start", "aten.arange.start_step"),
        lower=arange,
        operands=frozenset(),
        results=NUMBERS - (FLOATS - {"float32", "float64"}),
        refuse=whole_steps,
    ),
}
