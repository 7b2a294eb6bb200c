"""What nvFuser's operators compute, with torch: each takes its arguments by the names of the recorded signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tests.nvfuser import philox


def elementwise(fn: Callable[..., Any]) -> Callable[..., Any]:
    """An operator of ``arg0``, ``arg1``, …, whose tensors must have one shape: lowerings broadcast them."""

    def kernel(**args: Any) -> Any:
        operands = [args[f"arg{i}"] for i in range(len(args))]
        tensors = [t for t in operands if isinstance(t, Tensor)]
        assert len({t.shape for t in tensors}) == 1, [t.shape for t in tensors]
        wide = [_wide(t) if isinstance(t, Tensor) else t for t in operands]
        first = next(t for t in wide if isinstance(t, Tensor))
        return fn(*(t if isinstance(t, Tensor) else torch.tensor(t, dtype=_dtype_of(t, first)) for t in wide))

    return kernel


def _wide(t: Tensor) -> Tensor:
    """nvFuser computes on half-precision numbers in single precision."""
    return t.float() if t.dtype in (torch.bfloat16, torch.float16) else t


def _dtype_of(number: Any, like: Tensor) -> torch.dtype:
    if isinstance(number, bool):
        return torch.bool
    if isinstance(number, int):
        return torch.int64 if not like.is_floating_point() else like.dtype
    return like.dtype if like.is_floating_point() else torch.float64


def reduction(fn: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(arg: Tensor, dims: Sequence[int], keepdim: bool = False, dtype: Any = None) -> Tensor:
        return fn(arg, list(dims), keepdim)

    return kernel


def _prod(t: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    for d in sorted(dims, reverse=True):
        t = t.prod(d, keepdim=keepdim)
    return t


def _div(x: Tensor, y: Tensor) -> Tensor:
    if x.is_floating_point() or y.is_floating_point():
        return x / y
    return torch.div(x, y, rounding_mode="trunc")


def _where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    assert condition.dtype is torch.bool
    return torch.where(condition, x, y)


def _broadcast_in_dim(arg: Tensor, shape: Sequence[int], broadcast_dims: Sequence[int]) -> Tensor:
    assert len(broadcast_dims) == arg.ndim
    aligned = [1] * len(shape)
    for d, place in enumerate(broadcast_dims):
        assert arg.shape[d] in (1, shape[place])
        aligned[place] = arg.shape[d]
    return arg.reshape(aligned).expand(*shape)


def _broadcast(arg: Tensor, is_broadcast_dim: Sequence[bool]) -> Tensor:
    assert is_broadcast_dim.count(False) == arg.ndim
    for d, new in enumerate(is_broadcast_dim):
        arg = arg.unsqueeze(d) if new else arg
    return arg


def _squeeze(arg: Tensor, dims: Sequence[int]) -> Tensor:
    assert all(arg.shape[d] == 1 for d in dims)
    return arg.squeeze(tuple(dims))


def _slice(arg: Tensor, start_indices: Sequence[int], end_indices: Sequence[int]) -> Tensor:
    assert len(start_indices) == len(end_indices) == arg.ndim
    return arg[tuple(slice(start, end) for start, end in zip(start_indices, end_indices))]


def _pad(arg: Tensor, pad_widths: Sequence[int], value: Any) -> Tensor:
    return torch.nn.functional.pad(arg, list(pad_widths), value=value)


def _cat(tensors: Sequence[Tensor], dim: int) -> Tensor:
    assert len({t.dtype for t in tensors}) == 1
    return torch.cat(list(tensors), dim)


def _index_select(arg: Tensor, index: Tensor, dim: int) -> Tensor:
    assert index.ndim == 1
    return arg.index_select(dim, index)


def _take_along_axis(arg: Tensor, index: Tensor, dim: int) -> Tensor:
    return torch.take_along_dim(arg, index.long(), dim)


def _iota(length: int, start: int, step: int, dtype: torch.dtype) -> Tensor:
    return start + step * torch.arange(length, dtype=dtype)


def _variance(arg: Tensor, dims: Sequence[int], correction: int, keepdim: bool) -> Tensor:
    return arg.var(list(dims), correction=correction, keepdim=keepdim)


def _var_mean(arg: Tensor, dims: Sequence[int], correction: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    return torch.var_mean(arg, list(dims), correction=correction, keepdim=keepdim)


def _linear(arg1: Tensor, arg2: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.nn.functional.linear(arg1, arg2, bias)


def _attention(query: Tensor, key: Tensor, value: Tensor, dropout_p: float, is_causal: bool, scale: Any = None) -> Any:
    assert dropout_p == 0.0
    scores = query.float() @ key.float().mT * (scale or query.shape[-1] ** -0.5)
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    out = (scores.softmax(-1) @ value.float()).to(query.dtype)
    return out, scores.logsumexp(-1), torch.zeros(2).to(torch.uint64), torch.zeros(()).to(torch.uint64)


def _attention_backward(
    grad_output: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, logsumexp: Tensor, **settings: Any
) -> Any:
    settings = {name: settings[name] for name in ("dropout_p", "is_causal", "scale")}
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in (query, key, value)]
        return torch.autograd.grad(_attention(*leaves, **settings)[0], leaves, grad_output)


def _random(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def kernel(shape: Sequence[int], rng_seed: int, rng_offset: int, dtype: torch.dtype, **range: float) -> Tensor:
        assert range in ({"minval": 0.0, "maxval": 1.0}, {"mean": 0.0, "std": 1.0})
        return make(shape, rng_seed, rng_offset, dtype)

    return kernel


_SAME_NAME = """
    abs acos acosh asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not bitwise_or
    bitwise_right_shift bitwise_xor ceil cos cosh eq erf erfc erfinv exp exp2 expm1 floor fmod frac gcd ge gt isinf
    isnan isneginf isposinf le lerp lgamma log log10 log1p log2 logical_and logical_not logical_or lt maximum
    minimum mul ne neg nextafter pow reciprocal relu remainder round rsqrt sigmoid sign signbit sin sinh sqrt sub
    tan tanh trunc add
"""

KERNELS: dict[str, Callable[..., Any]] = {
    **{name: elementwise(getattr(torch, name)) for name in _SAME_NAME.split()},
    "truediv": elementwise(torch.true_divide),
    "div": elementwise(_div),
    "where": elementwise(_where),
    "addcmul": elementwise(lambda x, y, z, value: x + value * y * z),
    "threshold": elementwise(lambda x, low, value: torch.where(x <= low, value, x)),
    "sum": reduction(torch.sum),
    "prod": reduction(_prod),
    "max": reduction(torch.amax),
    "min": reduction(torch.amin),
    "var": _variance,
    "var_mean": _var_mean,
    "cast": lambda arg, dtype: arg.to(dtype),
    "broadcast_in_dim": _broadcast_in_dim,
    "broadcast": _broadcast,
    "permute": lambda arg, dims: arg.permute(dims),
    "reshape": lambda arg, new_shape: arg.reshape(new_shape),
    "squeeze": _squeeze,
    "slice": _slice,
    "pad": _pad,
    "cat": _cat,
    "stride_order": lambda arg, stride_order: arg,
    "gather": lambda arg, index, dim: arg.gather(dim, index.long()),
    "scatter": lambda arg, index, src, dim: arg.scatter(dim, index.long(), src),
    "index_select": _index_select,
    "take_along_axis": _take_along_axis,
    "embedding_fwd": lambda input, weight: torch.nn.functional.embedding(input, weight),
    "full": lambda shape, fill_value, dtype: torch.full(shape, fill_value, dtype=dtype),
    "iota": _iota,
    "uniform": _random(philox.uniform),
    "normal": _random(philox.normal),
    "matmul": lambda arg1, arg2: arg1 @ arg2,
    "linear": _linear,
    "sdpfa_fwd": _attention,
    "sdpfa_bwd": _attention_backward,
}
