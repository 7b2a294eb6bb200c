"""Matrix products, which nvFuser runs where the options ask for it; attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.extend import TensorType
from thunder_nvfuser.builder import Builder, Value
from thunder_nvfuser.table import FLOATS, Row, rows

PRODUCTS = FLOATS - {"float64"}
HALVES = frozenset({"bfloat16", "float16"})


def matmul(b: Builder, out: TensorType, x: Value, y: Value) -> Any:
    return b.ops.matmul(x.view, y.view)


def linear(b: Builder, out: TensorType, x: Value, weight: Value, bias: Value | None = None) -> Any:
    return b.ops.linear(x.view, weight.view, None if bias is None else bias.view)


def addmm(b: Builder, out: TensorType, bias: Value, x: Value, y: Value, **scales: Any) -> Any:
    """A linear layer of the transposed weight ``y``."""
    return b.ops.linear(x.view, b.ops.permute(y.view, [1, 0]), bias.view)


def plain_bias(out: TensorType, bias: TensorType, x: TensorType, y: TensorType, beta: Any = 1, alpha: Any = 1) -> str:
    if len(bias.shape) != 1 or bias.shape != out.shape[1:]:
        return "nvFuser adds a vector to a matrix product"
    return "" if beta == alpha == 1 else "nvFuser does not scale what it adds to a matrix product"


def at_least_matrix(out: TensorType, x: TensorType, weight: TensorType, bias: TensorType | None = None) -> str:
    fits = len(x.shape) >= 2 and len(weight.shape) == 2
    return "" if fits else "nvFuser's linear layers take an input of two dimensions or more"


def flash_attention(
    b: Builder,
    out: Sequence[Any],
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    output, logsumexp, seed, offset = b.ops.sdpfa_fwd(
        query.view, key.view, value.view, dropout_p=dropout_p, is_causal=is_causal, scale=scale
    )
    return output, logsumexp, None, None, None, None, seed, offset, None


def flash_attention_backward(
    b: Builder,
    out: Sequence[Any],
    grad_out: Value,
    query: Value,
    key: Value,
    value: Value,
    output: Value,
    logsumexp: Value,
    cum_seq_q: None,
    cum_seq_k: None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Value,
    philox_offset: Value,
    *,
    scale: float | None = None,
) -> Any:
    return b.ops.sdpfa_bwd(
        *(x.view for x in (grad_out, query, key, value, output, logsumexp)),
        dropout_p=dropout_p,
        is_causal=is_causal,
        philox_seed=philox_seed.view,
        philox_offset=philox_offset.view,
        scale=scale,
    )


def unlike_flash(
    out: Any, query: TensorType, key: TensorType, value: TensorType, dropout_p: float = 0.0, *args: Any, **kwargs: Any
) -> str:
    if query.dtype not in HALVES:
        return f"nvFuser's attention takes no {query.dtype}"
    return "nvFuser does not run attention with dropout as PyTorch draws it" if dropout_p else ""


def unlike_flash_backward(out: Any, grad_out: TensorType, query: TensorType, *args: Any, **kwargs: Any) -> str:
    key, value, _, _, _, _, _, _, dropout_p, *_ = args
    return unlike_flash(out, query, key, value, dropout_p)


_ATTENTION: dict[str, Any] = {
    "operands": HALVES | {"float32", "uint64"},
    "results": HALVES | {"float32", "uint64"},
    "option": "sdpa",
}

ROWS: dict[str, Row] = {
    **rows(("aten.mm", "aten.bmm"), lower=matmul, operands=PRODUCTS, results=PRODUCTS, option="matmul"),
    "aten.linear": Row(lower=linear, operands=PRODUCTS, results=PRODUCTS, refuse=at_least_matrix, option="linear"),
    "aten.addmm": Row(lower=addmm, operands=PRODUCTS, results=PRODUCTS, refuse=plain_bias, option="linear"),
    "aten._scaled_dot_product_flash_attention": Row(lower=flash_attention, refuse=unlike_flash, **_ATTENTION),
    "aten._scaled_dot_product_flash_attention_backward": Row(
        lower=flash_attention_backward, refuse=unlike_flash_backward, **_ATTENTION
    ),
}
