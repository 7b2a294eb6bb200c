"""Calls of every operator that nvFuser runs, small and with awkward shapes: broadcasting, permuted, scalars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.nvfuser import philox

B8, I64 = torch.bool, torch.int64


@dataclass
class Make:
    """Makes tensors of a floating-point dtype from a fixed seed."""

    dtype: torch.dtype
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))

    def __call__(self, *shape: int) -> torch.Tensor:
        if self.dtype == B8:
            return torch.rand(shape, generator=self.generator) > 0.5
        if not self.dtype.is_floating_point:
            return torch.randint(-9, 9, shape, generator=self.generator).to(self.dtype)
        return torch.randn(shape, generator=self.generator).to(self.dtype)

    def unit(self, *shape: int) -> torch.Tensor:
        """Between 0 and 1; positive integers."""
        if self.dtype == B8 or not self.dtype.is_floating_point:
            return self(*shape).abs() + 1 if self.dtype != B8 else self(*shape)
        return (torch.rand(shape, generator=self.generator) * 0.9 + 0.05).to(self.dtype)

    def mask(self, *shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=self.generator) > 0.5

    def index(self, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, high, shape, generator=self.generator)


Call = tuple[tuple[Any, ...], dict[str, Any]]
Calls = Callable[[Make], Iterator[Any]]


def unary(m: Make) -> Iterator[Any]:
    yield (m.unit(3, 5),)
    yield (m.unit(4, 1, 6).permute(2, 0, 1),)
    yield (m.unit(),)


def signed(m: Make) -> Iterator[Any]:
    yield (m(3, 5),)
    yield (m(4, 1, 6).permute(2, 0, 1),)


def binary(m: Make) -> Iterator[Any]:
    yield m(3, 5), m.unit(3, 5)
    yield m(2, 3, 5), m.unit(5)
    yield m(3, 1), m.unit(2, 1, 5)
    yield m(3, 5), m.unit()


def positive(m: Make) -> Iterator[Any]:
    yield m.unit(3, 5), m.unit(3, 5)
    yield m.unit(2, 3, 5), m.unit(3, 1)


def mixed(m: Make) -> Iterator[Any]:
    """Operands of different dtypes."""
    yield from binary(m)
    if m.dtype.is_floating_point:
        yield m(3, 5), m.mask(3, 5)
        yield m.index(4, 5), m.unit(3, 5)
        yield m(3, 5), torch.rand((), generator=m.generator)
        yield m(3, 5), torch.rand(3, 5, generator=m.generator) + 0.1


def scalar(m: Make) -> Iterator[Any]:
    yield m(3, 5), 2
    if m.dtype.is_floating_point:
        yield m(3, 5), 0.3


def truths(m: Make) -> Iterator[Any]:
    yield m(3, 5), m(3, 5)
    yield m(3, 5), m.mask(5)


def reduced(m: Make) -> Iterator[Any]:
    yield m(3, 5), [1]
    yield m(2, 3, 5), [0, -1], True
    yield m(2, 3, 4, 5).permute(3, 1, 0, 2), [0, 2]


def whole(m: Make) -> Iterator[Any]:
    yield (m(3, 5),)
    yield (m(2, 1, 5),)


def activation(m: Make) -> Iterator[Any]:
    yield (m(3, 5),)
    yield (m(2, 3, 4).permute(2, 0, 1),)


def two(m: Make) -> Iterator[Any]:
    yield m(3, 5), m(3, 5)


def _dropped(m: Make) -> Iterator[Any]:
    yield m(3, 5), m.mask(3, 5), 1.25


def calls(*make: Callable[[Make], Any]) -> Calls:
    return lambda m: (one(m) for one in make)


def _batch_norm_backward(m: Make) -> Any:
    wide = torch.float64 if m.dtype is torch.float64 else torch.float32
    mean, weight = (torch.randn(3, generator=m.generator, dtype=wide) for _ in range(2))
    invstd = torch.rand(3, generator=m.generator, dtype=wide)
    return m(2, 3, 4), m(2, 3, 4), weight, mean, invstd, mean, invstd, True, 1e-5, [True, True, True]


def _layer_norm_backward(m: Make) -> Any:
    x = m(4, 8)
    _, mean, rstd = torch.native_layer_norm(x, [8], m(8), m(8), 1e-5)
    return m(4, 8), x, [8], mean, rstd, m(8), m(8), [True, True, True]


def _nll_loss_backward(m: Make) -> Any:
    count = torch.tensor(6.0, dtype=m.dtype)
    return m(), m(6, 5), m.index(5, 6), None, 1, -100, count


def _rms_norm_backward(m: Make) -> Any:
    x = m(4, 8)
    wide = torch.float64 if m.dtype is torch.float64 else torch.float32
    rstd = (x.to(wide).square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    return m(4, 8), x, [8], rstd, m(8), [True, True]


def _rms_norm_gradients(grad: Any, x: Any, shape: Any, rstd: Any, weight: Any, wanted: Any) -> Any:
    with torch.enable_grad():
        leaves = [t.detach().to(rstd.dtype).requires_grad_() for t in (x, weight)]
        y = leaves[0] * (leaves[0].square().mean(-1, keepdim=True) + 1e-5).rsqrt() * leaves[1]
        return tuple(g.to(x.dtype) for g in torch.autograd.grad(y, leaves, grad.to(rstd.dtype)))


def _attention_inputs(m: Make) -> Any:
    return (m(2, 2, 4, 8), m(2, 2, 4, 8), m(2, 2, 4, 8), 0.0, True)


def _attention(query: Any, key: Any, value: Any, dropout: float, causal: bool, scale: float | None = None) -> Any:
    """Flash attention returns its result, log-sum-exp, four sizes, the random state, and a mask for debugging."""
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scale)
    scores = query.float() @ key.float().mT * (scale or query.shape[-1] ** -0.5)
    hidden = torch.ones(4, 4, dtype=B8).triu(1) if causal else torch.zeros(4, 4, dtype=B8)
    logsumexp = scores.masked_fill(hidden, float("-inf")).logsumexp(-1)
    seed, offset = torch.zeros(2, dtype=torch.int64), torch.zeros((), dtype=torch.int64)
    return out, logsumexp, None, None, 4, 4, seed.to(torch.uint64), offset.to(torch.uint64), None


def _attention_backward_inputs(m: Make) -> Any:
    query, key, value, dropout, causal = _attention_inputs(m)
    out, logsumexp, _, _, _, _, seed, offset, _ = _attention(query, key, value, dropout, causal)
    return (m(2, 2, 4, 8), query, key, value, out, logsumexp, None, None, 4, 4, dropout, causal, seed, offset)


def _attention_gradients(grad: Any, *args: Any) -> Any:
    with torch.enable_grad():
        leaves = [t.detach().float().requires_grad_() for t in args[:3]]
        out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=args[10])
        return tuple(g.to(grad.dtype) for g in torch.autograd.grad(out, leaves, grad.float()))


def _random_inputs(m: Make) -> Any:
    seed, offset = torch.tensor(2**40 + 3), torch.tensor(2**33 + 5)
    return ((3, 5), seed, offset, m.dtype, torch.device("cpu"))


def _numbers(make: Callable[..., Any]) -> Callable[..., Any]:
    def numbers(shape: Any, seed: Any, offset: Any, dtype: torch.dtype, device: Any) -> Any:
        return make(shape, seed.item(), offset.item(), dtype)

    return numbers


REFERENCES: dict[str, Callable[..., Any]] = {
    "nvfuser.uniform": _numbers(philox.uniform),
    "nvfuser.normal": _numbers(philox.normal),
    "aten._fused_rms_norm_backward": _rms_norm_gradients,
    "aten._scaled_dot_product_flash_attention": _attention,
    "aten._scaled_dot_product_flash_attention_backward": _attention_gradients,
}
"""What operators compute that have no kernel for a CPU."""


_SCALAR_AND_TENSOR = {"Tensor": mixed, "Scalar": scalar}

_OF_POSITIVE = """
    acos acosh asin asinh atan atanh cos cosh erf erfc erfinv exp exp2 expm1 lgamma log log10 log1p log2 reciprocal
    rsqrt sigmoid sin sinh sqrt tan tanh isnan isinf isposinf isneginf
"""
_OF_SIGNED = """
    abs ceil floor neg relu round sign sgn trunc frac signbit logical_not bitwise_not
"""
_ACTIVATIONS = """
    gelu silu leaky_relu elu hardtanh hardswish hardsigmoid softplus softshrink hardshrink mish celu selu sinc
    deg2rad rad2deg nan_to_num
"""

CALLS: dict[str, Calls] = {
    **dict.fromkeys(_OF_POSITIVE.split(), unary),
    **dict.fromkeys(_OF_SIGNED.split(), signed),
    **{
        f"{name}.{overload}": make
        for name in ["eq", "ne", "lt", "le", "gt", "ge", "mul", "div", "add", "sub", "rsub", "fmod", "remainder"]
        for overload, make in _SCALAR_AND_TENSOR.items()
    },
    **{
        f"bitwise_{name}.{overload}": make
        for name in ("and", "or", "xor")
        for overload, make in {
            "Tensor": two,
            "Scalar": calls(lambda m: (m(3, 5), 3 if m.dtype != B8 else True)),
        }.items()
    },
    **{
        f"bitwise_{side}_shift.{overload}": make
        for side in ("left", "right")
        for overload, make in {
            "Tensor": calls(lambda m: (m(3, 5), m.index(4, 3, 5).to(m.dtype))),
            "Tensor_Scalar": calls(lambda m: (m(3, 5), 2)),
        }.items()
    },
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), truths),
    **dict.fromkeys(("maximum", "minimum", "atan2", "gcd"), binary),
    "nextafter": two,
    "pow.Tensor_Tensor": positive,
    "pow.Tensor_Scalar": lambda m: ((m.unit(3, 5), e) for e in (0.5, -0.5, -1, 1, 2, 3, 2.5)),
    "pow.Scalar": calls(lambda m: (1.5, m(3, 5))),
    "div.Tensor_mode": calls(lambda m: ((m(3, 5), m.unit(3, 5)), {"rounding_mode": "trunc"})),
    "div.Scalar_mode": calls(lambda m: ((m(3, 5), 2), {"rounding_mode": "trunc"})),
    "threshold": calls(lambda m: (m(3, 5), 1, 3)),
    "lerp.Scalar": calls(lambda m: (m(3, 5), m(3, 5), 0.3)),
    "lerp.Tensor": calls(lambda m: (m(3, 5), m(5), m.unit(3, 1))),
    "addcmul": calls(lambda m: ((m(3, 5), m(3, 5), m(5)), {"value": 2})),
    "clamp": calls(lambda m: (m(3, 5), -1, 1), lambda m: (m(3, 5), None, 1)),
    "clamp.Tensor": calls(lambda m: (m(3, 5), m(5), m(3, 1))),
    "clamp_min": scalar,
    "clamp_max": scalar,
    "clamp_min.Tensor": two,
    "clamp_max.Tensor": two,
    "where.self": calls(lambda m: (m.mask(3, 5), m(3, 5), m(5)), lambda m: (m.mask(3, 1), m(), m(3, 5))),
    "where.ScalarSelf": calls(lambda m: (m.mask(3, 5), 2, m(3, 5))),
    "where.ScalarOther": calls(lambda m: (m.mask(3, 5), m(3, 5), float("-inf"))),
    "where.Scalar": calls(lambda m: (m.mask(3, 5), 1.5, 2.5)),
    "masked_fill.Scalar": calls(lambda m: (m(3, 5), m.mask(3, 5), 2)),
    "masked_fill.Tensor": calls(lambda m: (m(3, 5), m.mask(5), m())),
    "_to_copy": lambda m: (
        ((m.unit(3, 5),), {"dtype": dtype})
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, I64, torch.int32, B8)
    ),
    **dict.fromkeys(("clone", "alias", "detach", "lift_fresh_copy"), signed),
    "copy": calls(lambda m: (m(3, 5), m(5)), lambda m: (m(3, 5), torch.randn(3, 5, generator=m.generator))),
    "prims.convert_element_type": calls(lambda m: (m(3, 5), torch.float32), lambda m: (m(3, 5), torch.bfloat16)),
    **dict.fromkeys(("sum", "mean", "prod", "max", "min"), whole),
    **dict.fromkeys(("sum.dim_IntList", "mean.dim", "amax", "amin"), reduced),
    "prod.dim_int": calls(lambda m: (m(3, 5), 1), lambda m: (m(2, 3), 0, True)),
    **{
        f"{name}.correction": calls(
            lambda m: (m(3, 5), [1]),
            lambda m: ((m(2, 3, 5), [0, 2]), {"correction": 0, "keepdim": True}),
        )
        for name in ("var", "std", "var_mean")
    },
    "expand": calls(lambda m: (m(3, 1), [3, 5]), lambda m: (m(5), [2, 3, -1])),
    "prims.broadcast_in_dim": calls(lambda m: (m(3, 5), [3, 2, 5], [0, 2])),
    "permute": calls(lambda m: (m(2, 3, 4), [2, 0, -2])),
    "t": calls(lambda m: (m(3, 5),), lambda m: (m(4),)),
    "transpose.int": calls(lambda m: (m(2, 3, 4), -1, 0)),
    **dict.fromkeys(
        ("view", "_unsafe_view", "reshape"),
        calls(lambda m: (m(4, 6), [2, 2, 6]), lambda m: (m(2, 3, 4), [-1]), lambda m: (m(1, 4), [4, 1])),
    ),
    "_reshape_alias": calls(lambda m: (m(4, 6), [2, 12], [12, 1])),
    "as_strided": calls(lambda m: (m(4, 6), [3, 8], [8, 1])),
    "unsqueeze": calls(lambda m: (m(3, 5), 0), lambda m: (m(3, 5), -1)),
    "squeeze": calls(lambda m: (m(1, 3, 1, 5),)),
    "squeeze.dim": calls(lambda m: (m(1, 3, 1, 5), 2), lambda m: (m(1, 3), 1)),
    "squeeze.dims": calls(lambda m: (m(1, 3, 1, 5), [0, -2])),
    "slice.Tensor": calls(
        lambda m: (m(6, 5), 0, 1, 4), lambda m: (m(3, 5), 1, -3, 9223372036854775807), lambda m: (m(3, 5), 1, 2, 3)
    ),
    "select.int": calls(lambda m: (m(3, 5), 0, 1), lambda m: (m(2, 3, 5), -1, -2)),
    "split.Tensor": calls(lambda m: (m(6, 5), 4)),
    "split_with_sizes": calls(lambda m: (m(3, 6), [1, 2, 3], 1)),
    "unbind.int": calls(lambda m: (m(3, 5),), lambda m: (m(2, 3), 1)),
    "cat": calls(lambda m: ([m(3, 5), m(2, 5)],), lambda m: ([m(3, 1), torch.randn(3, 4, generator=m.generator)], -1)),
    "stack": calls(lambda m: ([m(3, 5), m(3, 5)], 1)),
    "constant_pad_nd": calls(lambda m: (m(3, 5), [1, 2]), lambda m: (m(3, 5), [0, -1, 2, 0], 1)),
    "slice_backward": calls(lambda m: (m(3, 2), [3, 5], 1, 1, 3, 1)),
    "select_backward": calls(lambda m: (m(3), [3, 5], 1, 2), lambda m: (m(5), [3, 5], 0, -1)),
    "gather": calls(lambda m: (m(3, 5), 1, m.index(5, 3, 4)), lambda m: (m(3, 5), 0, m.index(3, 2, 2))),
    "nll_loss_backward": calls(_nll_loss_backward),
    "index_select": calls(lambda m: (m(3, 5), 1, m.index(5, 4))),
    "index.Tensor": calls(lambda m: (m(6, 5), [m.index(6, 4) - 3]), lambda m: (m(3, 5), [None, m.index(5, 4)])),
    "embedding": calls(lambda m: (m(7, 4), m.index(7, 2, 3))),
    "full": calls(lambda m: (([2, 3], 2), {"dtype": m.dtype})),
    "full_like": calls(lambda m: (m(2, 3), 1)),
    "new_full": calls(lambda m: (m(2), [2, 3], 1)),
    **dict.fromkeys(("zeros", "ones"), calls(lambda m: (([2, 3],), {"dtype": m.dtype}))),
    **dict.fromkeys(("zeros_like", "ones_like"), calls(lambda m: (m(2, 3),))),
    **dict.fromkeys(("new_zeros", "new_ones"), calls(lambda m: (m(2), [2, 3]))),
    "scalar_tensor": calls(lambda m: ((2,), {"dtype": m.dtype})),
    "fill.Scalar": calls(lambda m: (m(2, 3), 1)),
    "fill.Tensor": calls(lambda m: (m(2, 3), m())),
    "arange": calls(lambda m: ((5,), {"dtype": m.dtype})),
    "arange.start": calls(lambda m: ((2, 7), {"dtype": m.dtype})),
    "arange.start_step": calls(lambda m: ((7, 1, -2), {"dtype": m.dtype})),
    "mm": calls(lambda m: (m(3, 5), m(5, 4)), lambda m: (m(3, 5), m(4, 5).t())),
    "bmm": calls(lambda m: (m(2, 3, 5), m(2, 5, 4))),
    "linear": calls(lambda m: (m(3, 5), m(4, 5), m(4)), lambda m: (m(2, 3, 5), m(4, 5))),
    "addmm": calls(lambda m: (m(4), m(3, 5), m(4, 5).t())),
    **dict.fromkeys(_ACTIVATIONS.split(), activation),
    "gelu_backward": calls(lambda m: (m(3, 5), m(3, 5)), lambda m: ((m(3, 5), m(3, 5)), {"approximate": "tanh"})),
    **dict.fromkeys(
        (
            "silu_backward",
            "sigmoid_backward",
            "tanh_backward",
            "hardswish_backward",
            "hardsigmoid_backward",
            "mish_backward",
        ),
        calls(lambda m: (m(3, 5), m.unit(3, 5))),
    ),
    "threshold_backward": calls(lambda m: (m(3, 5), m(3, 5), 0)),
    "leaky_relu_backward": calls(lambda m: (m(3, 5), m(3, 5), 0.1, False)),
    "elu_backward": calls(lambda m: (m(3, 5), 1.0, 1.0, 1.0, False, m(3, 5))),
    "hardtanh_backward": calls(lambda m: (m(3, 5), m(3, 5), -1.0, 1.0)),
    "softplus_backward": calls(lambda m: (m(3, 5), m(3, 5), 1.0, 20.0)),
    "logit": calls(lambda m: (m.unit(3, 5),), lambda m: (m.unit(3, 5), 0.2)),
    "logit_backward": calls(lambda m: (m(3, 5), m.unit(3, 5)), lambda m: (m(3, 5), m.unit(3, 5), 0.2)),
    "prelu": calls(lambda m: (m(3, 5), m(5))),
    "glu": calls(lambda m: (m(3, 6),), lambda m: (m(4, 3), 0)),
    "glu_backward": calls(lambda m: (m(3, 3), m(3, 6), 1)),
    **dict.fromkeys(
        ("_softmax", "_log_softmax"), calls(lambda m: (m(3, 5), 1, False), lambda m: (m(2, 3, 4), 0, False))
    ),
    "_softmax_backward_data": calls(lambda m: (m(3, 5), m.unit(3, 5), 1, m.dtype)),
    "_log_softmax_backward_data": calls(lambda m: (m(3, 5), -m.unit(3, 5), 1, m.dtype)),
    "logsumexp": calls(lambda m: (m(3, 5), [1], True)),
    "logaddexp": two,
    "native_layer_norm": calls(
        lambda m: (m(4, 8), [8], m(8), m(8), 1e-5), lambda m: (m(2, 4, 8), [4, 8], None, None, 1e-5)
    ),
    "native_layer_norm_backward": calls(_layer_norm_backward),
    "native_group_norm": calls(lambda m: (m(2, 4, 6), m(4), m(4), 2, 4, 6, 2, 1e-5)),
    "_native_batch_norm_legit_functional": calls(
        lambda m: (m(4, 3, 5), m(3), m(3), m(3), m.unit(3), True, 0.1, 1e-5),
        lambda m: (m(4, 3, 5), None, None, m(3), m.unit(3), False, 0.1, 1e-5),
    ),
    "native_batch_norm_backward": calls(_batch_norm_backward),
    "_fused_rms_norm": calls(lambda m: (m(4, 8), [8], m(8), 1e-5), lambda m: (m(4, 8), [8], None, None)),
    "_fused_rms_norm_backward": calls(_rms_norm_backward),
    **dict.fromkeys(
        ("mse_loss", "smooth_l1_loss", "huber_loss"),
        calls(lambda m: (m(3, 5), m(3, 5)), lambda m: (m(3, 5), m(3, 5), 0)),
    ),
    "mse_loss_backward": calls(lambda m: (m(), m(3, 5), m(3, 5), 1)),
    "smooth_l1_loss_backward": calls(lambda m: (m(), m(3, 5), m(3, 5), 1, 1.0)),
    "huber_loss_backward": calls(lambda m: (m(), m(3, 5), m(3, 5), 1, 1.0)),
    "binary_cross_entropy": calls(lambda m: (m.unit(3, 5), m.unit(3, 5))),
    "binary_cross_entropy_backward": calls(lambda m: (m(), m.unit(3, 5), m.unit(3, 5))),
    "addcdiv": calls(lambda m: ((m(3, 5), m(3, 5), m.unit(5)), {"value": 2})),
    "linalg_vector_norm": calls(lambda m: (m(3, 5),), lambda m: (m(3, 5), 1, [1]), lambda m: (m(3, 5), float("inf"))),
    "_scaled_dot_product_flash_attention": calls(_attention_inputs, lambda m: (_attention_inputs(m), {"scale": 0.5})),
    "_scaled_dot_product_flash_attention_backward": calls(_attention_backward_inputs),
    "xlogy.Tensor": positive,
    "native_dropout_backward": _dropped,
    "nll_loss_forward": calls(
        lambda m: (m(6, 5), m.index(5, 6), None, 1, -100), lambda m: (m(6, 5), m.index(5, 6), m.unit(5), 1, 2)
    ),
    **dict.fromkeys(("tril", "triu"), calls(lambda m: (m(4, 5),), lambda m: (m(2, 4, 4), -1))),
    "heaviside": two,
    **dict.fromkeys(("nvfuser.uniform", "nvfuser.normal"), calls(_random_inputs)),
    **dict.fromkeys(("any", "all"), whole),
    **dict.fromkeys(("any.dim", "all.dim"), calls(lambda m: (m(3, 5), 1), lambda m: (m(2, 3, 4), 0, True))),
}


def samples(target: str, dtype: torch.dtype) -> list[Call]:
    """Calls of an operator that eager PyTorch takes, with tensors of a dtype."""
    key = target.removeprefix("aten.")
    found = []
    for given in CALLS[key](Make(dtype)):
        args, kwargs = given if len(given) == 2 and isinstance(given[1], dict) else (given, {})
        found.append((args, kwargs))
    return found
