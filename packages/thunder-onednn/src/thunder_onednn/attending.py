"""When attention is taken, and what it becomes."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from thunder.extend import ClaimContext, No, TensorType, Yes, symbol
from thunder_onednn import machine
from thunder_onednn.products import unfit

_attention, _backward = symbol("onednn.attention"), symbol("onednn.attention_backward")


def check(
    cx: ClaimContext,
    query: TensorType,
    key: TensorType,
    value: TensorType,
    attn_mask: TensorType | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Yes | No:
    mask = [attn_mask] if attn_mask is not None else []
    if reason := unfit(query, key, value) or unfit_shapes(query, key, value, enable_gqa) or unfit_mask(query, mask, cx):
        return No(reason)
    if dropout_p != 0:
        return No("probabilities are computed again in backward, and dropout could not be")
    if query.dtype not in ("float32", "bfloat16"):
        return No(f"oneDNN does not attend in {query.dtype}")
    if reason := machine.slower(cx, 2 * query.numel * key.shape[2], machine.ATTENTION[query.dtype]):
        return No(reason)
    return Yes()


def unfit_shapes(query: TensorType, key: TensorType, value: TensorType, enable_gqa: bool) -> str:
    """Why q, k and v do not fit together here; empty if they do."""
    if not query.ndim == key.ndim == value.ndim == 4:
        return "needs four dimensions: batch, heads, length, size"
    if key.shape[:3] != value.shape[:3] or query.shape[0] != key.shape[0] or query.shape[3] != key.shape[3]:
        return "queries, keys and values broadcast against each other"
    if query.shape[1] != key.shape[1] and not (enable_gqa and query.shape[1] % key.shape[1] == 0):
        return "queries and keys differ in heads"
    return ""


def unfit_mask(query: TensorType, masks: list[TensorType], cx: ClaimContext) -> str:
    """Why a mask is not taken; empty if it is."""
    for mask in masks:
        if reason := unfit(mask):
            return reason
        if mask.dtype not in ("bool", query.dtype):
            return f"the mask is {mask.dtype}, and queries are {query.dtype}"
        if mask.requires_grad and cx.training:
            return "the mask wants a gradient"
    return ""


def lower(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    return _attention(query, key, value, attn_mask, is_causal, _scale(query, scale))


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    how = (attn_mask, is_causal, _scale(query, scale))
    return _attention(query, key, value, *how), (query, key, value, *how)


def backward(saved: Any, grad: Tensor) -> Any:
    gradients = _backward(grad, *saved)
    return gradients if saved[3] is None else (*gradients, None)


def _scale(query: Tensor, scale: float | None) -> float:
    return query.shape[-1] ** -0.5 if scale is None else float(scale)
