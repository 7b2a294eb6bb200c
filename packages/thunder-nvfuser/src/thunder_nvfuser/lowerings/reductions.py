"""Sums, extrema and variances over dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from thunder.extend import TensorType
from thunder_nvfuser.builder import Builder, Value
from thunder_nvfuser.table import ANY, FLOATS, NUMBERS, Row

Dims = Sequence[int] | int | None


def reduced(x: Any, dim: Dims) -> list[int]:
    """The dimensions that an operator reduces: all of them for none given. x: anything with a shape."""
    rank = len(x.shape)
    given = [dim] if isinstance(dim, int) else list(dim or range(rank))
    return sorted(d % rank for d in given) if rank else []


def count(x: Any, dim: Dims) -> int:
    """The number of elements that go into each result."""
    return math.prod(x.shape[d] for d in reduced(x, dim))


def reduction(name: str) -> Callable[..., Any]:
    """An operation that combines all elements along dimensions."""

    def lower(
        b: Builder, out: TensorType, x: Value, dim: Dims = None, keepdim: bool = False, dtype: object = None
    ) -> Any:
        value, dims = b.computing(x, out.dtype), reduced(x, dim)
        return getattr(b.ops, name)(value.view, dims=dims, keepdim=keepdim) if dims else value

    return lower


def whole(name: str) -> Callable[..., Any]:
    """The same for overloads that take no dimensions."""
    inner = reduction(name)
    return lambda b, out, x, dtype=None: inner(b, out, x)


def mean(b: Builder, out: TensorType, x: Value, dim: Dims = None, keepdim: bool = False, dtype: object = None) -> Any:
    total = reduction("sum")(b, out, x, dim, keepdim)
    return b.ops.truediv(total.view if isinstance(total, Value) else total, float(count(x, dim)))


def mean_of_all(b: Builder, out: TensorType, x: Value, dtype: object = None) -> Any:
    return mean(b, out, x)


def var(b: Builder, out: TensorType, x: Value, dim: Dims = None, correction: Any = None, keepdim: bool = False) -> Any:
    """``var.correction``; ``correction`` is the number subtracted from the count."""
    value = b.computing(x, out.dtype)
    return b.ops.var(value.view, reduced(x, dim), correction=_whole(correction), keepdim=keepdim)


def std(b: Builder, out: TensorType, x: Value, dim: Dims = None, correction: Any = None, keepdim: bool = False) -> Any:
    return b.ops.sqrt(var(b, out, x, dim, correction, keepdim))


def var_mean(
    b: Builder, out: Sequence[TensorType], x: Value, dim: Dims = None, correction: Any = None, keepdim: bool = False
) -> Any:
    value = b.computing(x, out[0].dtype)
    return b.ops.var_mean(value.view, reduced(x, dim), correction=_whole(correction), keepdim=keepdim)


def _whole(correction: Any) -> int:
    return 1 if correction is None else int(correction)


def needs_spread(out: Any, x: TensorType, dim: Dims = None, correction: Any = None, keepdim: bool = False) -> str:
    if correction is not None and correction != int(correction):
        return "nvFuser corrects variances by whole numbers"
    if not x.shape:
        return "a variance needs a dimension"
    return "" if count(x, dim) > _whole(correction) else "the variance of too few elements is not a number"


ROWS: dict[str, Row] = {
    "aten.sum": Row(lower=whole("sum"), operands=ANY),
    "aten.sum.dim_IntList": Row(lower=reduction("sum"), operands=ANY),
    "aten.prod": Row(lower=whole("prod"), operands=ANY),
    "aten.prod.dim_int": Row(lower=reduction("prod"), operands=ANY),
    "aten.amax": Row(lower=reduction("max")),
    "aten.amin": Row(lower=reduction("min")),
    "aten.max": Row(lower=whole("max")),
    "aten.min": Row(lower=whole("min")),
    "aten.mean": Row(lower=mean_of_all, operands=NUMBERS, results=FLOATS),
    "aten.mean.dim": Row(lower=mean, operands=NUMBERS, results=FLOATS),
    "aten.var.correction": Row(lower=var, operands=FLOATS, results=FLOATS, refuse=needs_spread),
    "aten.std.correction": Row(lower=std, operands=FLOATS, results=FLOATS, refuse=needs_spread),
    "aten.var_mean.correction": Row(lower=var_mean, operands=FLOATS, results=FLOATS, refuse=needs_spread),
}
