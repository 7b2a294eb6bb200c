"""Elementwise operators that nvFuser has itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder.extend import TensorType
from thunder_nvfuser.builder import COMPUTE, Builder, Value, common_dtype, number
from thunder_nvfuser.table import ANY, FLOATS, INDICES, INTEGERS, Row

BOOL = frozenset({"bool"})


def pointwise(name: str) -> Callable[..., Any]:
    """An operation that computes in the dtype of its result."""

    def lower(b: Builder, out: TensorType, *args: Any) -> Any:
        return getattr(b.ops, name)(*b.operands(args, out.dtype, out.shape))

    return lower


def rounding(name: str) -> Callable[..., Any]:
    """Rounding, which leaves integers as they are: nvFuser's kernels for them do not compile."""

    def lower(b: Builder, out: TensorType, x: Value) -> Any:
        return x if out.dtype in INTEGERS else pointwise(name)(b, out, x)

    return lower


def modulo(name: str) -> Callable[..., Any]:
    """The remainder of a division, by numbers as the dtype has them."""

    def lower(b: Builder, out: TensorType, *args: Any) -> Any:
        rounded = [_rounded(arg, out.dtype) for arg in args]
        return getattr(b.ops, name)(*b.operands(rounded, out.dtype, out.shape))

    return lower


def predicate(name: str) -> Callable[..., Any]:
    """An operation that asks about values of the dtype that its operands promote to."""

    def lower(b: Builder, out: TensorType, *args: Any) -> Any:
        dtype = common_dtype(*args)
        return getattr(b.ops, name)(*b.operands([_rounded(arg, dtype) for arg in args], dtype, out.shape))

    return lower


def logical(name: str) -> Callable[..., Any]:
    """An operation on truth values."""

    def lower(b: Builder, out: TensorType, *args: Any) -> Any:
        return getattr(b.ops, name)(*b.operands(args, "bool", out.shape))

    return lower


def _rounded(arg: Any, dtype: str) -> Any:
    """A number as the dtype has it: a kernel compares with that."""
    if isinstance(arg, Value) or dtype not in FLOATS:
        return arg
    return torch.tensor(arg, dtype=getattr(torch, dtype)).item()


def add(b: Builder, out: TensorType, x: Any, y: Any, alpha: Any = 1) -> Any:
    return _sum(b, "add", out, x, y, alpha)


def sub(b: Builder, out: TensorType, x: Any, y: Any, alpha: Any = 1) -> Any:
    return _sum(b, "sub", out, x, y, alpha)


def rsub(b: Builder, out: TensorType, x: Any, y: Any, alpha: Any = 1) -> Any:
    return _sum(b, "sub", out, y, x, alpha)


def _sum(b: Builder, name: str, out: TensorType, x: Any, y: Any, alpha: Any) -> Any:
    left, right = b.operands((x, y), out.dtype, out.shape)
    scaled = right if alpha == 1 else b.ops.mul(right, number(alpha, out.dtype))
    return getattr(b.ops, name)(left, scaled)


def power(b: Builder, out: TensorType, base: Any, exponent: Any) -> Any:
    """Powers that torch's kernels compute without ``pow`` are computed as they do."""
    x, e = b.operands((base, exponent), out.dtype, out.shape)
    if isinstance(base, Value) and not isinstance(exponent, Value):
        if e in _ROOTS and out.dtype in FLOATS:
            return getattr(b.ops, _ROOTS[e])(x)
        if e in (1, 2, 3):
            square = x if e == 1 else b.ops.mul(x, x)
            return b.ops.mul(square, x) if e == 3 else square
    return b.ops.pow(x, e)


_ROOTS = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}


def no_negative_power_of_integers(out: TensorType, base: Any, exponent: Any) -> str:
    known = isinstance(exponent, (int, float)) and exponent >= 0
    return "" if known or out.dtype in FLOATS else "nvFuser computes powers of integers for constant exponents >= 0"


def rounded_division(b: Builder, out: TensorType, x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    left, right = b.operands((x, y), out.dtype, out.shape)
    if rounding_mode == "trunc":
        return b.ops.trunc(b.ops.truediv(left, right)) if out.dtype in FLOATS else b.ops.div(left, right)
    return b.ops.truediv(left, right)


def not_floor(out: TensorType, x: Any, y: Any, rounding_mode: str | None = None) -> str:
    return "nvFuser has no floor division" if rounding_mode == "floor" else ""


def lerp(b: Builder, out: TensorType, start: Any, end: Any, weight: Any) -> Any:
    return b.ops.lerp(*b.operands((start, end, weight), out.dtype, out.shape))


def addcmul(b: Builder, out: TensorType, x: Any, y: Any, z: Any, value: Any = 1) -> Any:
    return b.ops.addcmul(*b.operands((x, y, z, value), out.dtype, out.shape))


def clamp(b: Builder, out: TensorType, x: Any, min: Any = None, max: Any = None) -> Any:
    (found,) = b.operands((x,), out.dtype, out.shape)
    for bound, name in ((min, "maximum"), (max, "minimum")):
        if bound is not None:
            found = getattr(b.ops, name)(found, *b.operands((bound,), out.dtype, out.shape))
    return found


def clamp_min(b: Builder, out: TensorType, x: Any, min: Any) -> Any:
    return clamp(b, out, x, min)


def clamp_max(b: Builder, out: TensorType, x: Any, max: Any) -> Any:
    return clamp(b, out, x, None, max)


def where(b: Builder, out: TensorType, condition: Value, x: Any, y: Any) -> Any:
    (chosen,) = b.operands((condition,), "bool", out.shape)
    left, right = (_constant(b, operand, out.dtype) for operand in b.operands((x, y), out.dtype, out.shape))
    return b.ops.where(chosen, left, right)


def _constant(b: Builder, operand: Any, dtype: str) -> Any:
    """A number as a scalar of the fusion: two of them would not say the dtype of what is chosen."""
    plain = isinstance(operand, (bool, int, float))
    return b.scalar(operand, COMPUTE.get(dtype, dtype)) if plain else operand


def masked_fill(b: Builder, out: TensorType, x: Value, mask: Value, value: Any) -> Any:
    return where(b, out, mask, value, x)


def logical_xor(b: Builder, out: TensorType, x: Any, y: Any) -> Any:
    return b.ops.ne(*b.operands((x, y), "bool", out.shape))


def convert(b: Builder, out: TensorType, x: Value, *args: Any, **kwargs: Any) -> Value:
    """A cast, or a copy: the result is given its dtype by who called."""
    return b.broadcast(x, out.shape)


def copy(b: Builder, out: TensorType, x: Value, source: Value, non_blocking: bool = False) -> Value:
    return b.broadcast(source, out.shape)


def _each(names: str, make: Callable[[str], Callable[..., Any]], overloads: str = "", **row: Any) -> dict[str, Row]:
    """A row for each operator whose nvFuser operation has its name, or ``operator=operation``."""
    found = {}
    for name in names.split():
        operator, _, operation = name.partition("=")
        for overload in overloads.split() or [""]:
            target = f"aten.{operator}.{overload}" if overload else f"aten.{operator}"
            found[target] = Row(lower=make(operation or operator), **row)
    return found


def _overloads(lower: Callable[..., Any], targets: str, **row: Any) -> dict[str, Row]:
    return {f"aten.{target}": Row(lower=lower, **row) for target in targets.split()}


ROWS: dict[str, Row] = {
    **_each(
        "acos acosh asin asinh atan atanh cos cosh erf erfc erfinv exp exp2 expm1 lgamma log log10 log1p log2 "
        "reciprocal rsqrt sigmoid sin sinh sqrt tan tanh",
        pointwise,
        operands=ANY,
        results=FLOATS,
    ),
    **_each("abs neg relu sign sgn=sign", pointwise),
    **_each("ceil floor round trunc", rounding),
    **_each("frac", pointwise, operands=FLOATS, results=FLOATS),
    **_each("isnan isinf isposinf isneginf", predicate, operands=ANY, results=BOOL),
    **_each("signbit", predicate, results=BOOL),
    **_each("eq ne lt le gt ge", predicate, "Tensor Scalar", operands=ANY, results=BOOL),
    **_each("logical_not logical_and logical_or", logical, operands=ANY, results=BOOL),
    **_overloads(logical_xor, "logical_xor", operands=ANY, results=BOOL),
    **_each("bitwise_and bitwise_or bitwise_xor", pointwise, "Tensor Scalar", operands=INDICES, results=INDICES),
    **_each("bitwise_not", pointwise, operands=INDICES, results=INDICES),
    **_each(
        "bitwise_left_shift bitwise_right_shift",
        pointwise,
        "Tensor Tensor_Scalar",
        operands=INTEGERS,
        results=INTEGERS,
    ),
    **_each("gcd", pointwise, operands=INTEGERS, results=INTEGERS),
    **_each("mul", pointwise, "Tensor Scalar", operands=ANY),
    **_each("div=truediv", pointwise, "Tensor Scalar", operands=ANY, results=FLOATS),
    **_each("fmod remainder", modulo, "Tensor Scalar", operands=ANY),
    **_each("maximum minimum", pointwise),
    **_each("atan2", pointwise, operands=ANY, results=FLOATS),
    **_each("nextafter", pointwise, operands=frozenset({"float32", "float64"}), results=FLOATS),
    **_each("threshold", pointwise),
    **_overloads(add, "add.Tensor add.Scalar", operands=ANY),
    **_overloads(sub, "sub.Tensor sub.Scalar", operands=ANY),
    **_overloads(rsub, "rsub.Tensor rsub.Scalar", operands=ANY),
    **_overloads(power, "pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar", refuse=no_negative_power_of_integers),
    **_overloads(rounded_division, "div.Tensor_mode div.Scalar_mode", operands=ANY, refuse=not_floor),
    **_overloads(lerp, "lerp.Scalar lerp.Tensor", operands=FLOATS, results=FLOATS),
    **_overloads(addcmul, "addcmul"),
    **_overloads(clamp, "clamp clamp.Tensor"),
    **_overloads(clamp_min, "clamp_min clamp_min.Tensor"),
    **_overloads(clamp_max, "clamp_max clamp_max.Tensor"),
    **_overloads(where, "where.self where.ScalarSelf where.ScalarOther where.Scalar", operands=ANY, results=ANY),
    **_overloads(masked_fill, "masked_fill.Scalar masked_fill.Tensor", operands=ANY, results=ANY),
    **_overloads(convert, "_to_copy clone alias detach lift_fresh_copy", operands=ANY, results=ANY),
    **_overloads(copy, "copy", operands=ANY, results=ANY),
    "prims.convert_element_type": Row(lower=convert, operands=ANY, results=ANY),
}
