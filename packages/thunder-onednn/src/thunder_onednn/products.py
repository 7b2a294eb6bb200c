"""Matrix products: which are taken, and what they become.

``_linear_pointwise`` computes ``x @ w.T + bias`` in one call without a Python frame, for a row-major ``x`` of any rank
and ``w`` in either order. A transposed left operand (the gradient of a weight) it would copy: that goes to ``matmul``.
In bfloat16 PyTorch calls oneDNN itself, and writes the bias into the result first: only that pass is gained.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thunder.extend import ClaimContext, No, TensorType, Yes, symbol
from thunder_onednn import entry, machine

_matmul, _addmatmul = symbol("onednn.matmul"), symbol("onednn.addmatmul")
_pointwise, _packed_linear = symbol("onednn.linear"), symbol("onednn.packed_linear")

Number = float | int


def check_linear(cx: ClaimContext, input: TensorType, weight: TensorType, bias: TensorType | None = None) -> Yes | No:
    if reason := unfit_linear(input, weight, bias):
        return No(reason)
    plain = _answer(cx, input.dtype, input.numel * weight.shape[0], biased=bias is not None)
    if not packs(cx, input):
        return plain
    if input.dtype == "bfloat16":
        return Yes(candidates=("packed", "plain") if isinstance(plain, Yes) else ("packed",))
    return Yes(candidates=("packed", "plain")) if isinstance(plain, Yes) else plain


def check_product(cx: ClaimContext, a: TensorType, b: TensorType) -> Yes | No:
    if reason := unfit(a, b):
        return No(reason)
    return _answer(cx, a.dtype, a.numel * b.shape[-1])


def check_sum(
    cx: ClaimContext, c: TensorType, a: TensorType, b: TensorType, *, beta: Number = 1, alpha: Number = 1
) -> Yes | No:
    if reason := unfit(c, a, b):
        return No(reason)
    if alpha == 0:
        return No("alpha is zero: there is nothing to multiply")
    return _answer(cx, a.dtype, a.numel * b.shape[-1], biased=_adds_bias(c, a, b, beta, alpha))


def _answer(cx: ClaimContext, dtype: str, multiplications: int, *, biased: bool = False) -> Yes | No:
    """Yes if it is expected to be faster. biased: a vector is added in the same call."""
    only_bias = dtype == "bfloat16" and biased
    if dtype != "float32" and not only_bias:
        return No(f"oneDNN is not faster for {dtype}: where it can be used, PyTorch does so itself")
    enough = machine.BFLOAT16 if only_bias else machine.PRODUCT
    if reason := machine.slower(cx, multiplications, enough, same_product=only_bias):
        return No(reason)
    return Yes()


def _adds_bias(c: Any, a: Any, b: Any, beta: Number, alpha: Number) -> bool:
    """Whether ``beta * c + alpha * (a @ b)``, of tensors or their types, is a linear layer."""
    return a.ndim == 2 and c.shape == b.shape[1:] and beta == alpha == 1


def packs(cx: ClaimContext, input: TensorType) -> bool:
    """Whether a linear layer may run with a packed weight."""
    return cx.options["pack"] and not cx.training and input.numel // input.shape[-1] <= machine.FEW_ROWS


def unfit_linear(input: TensorType, weight: TensorType, bias: TensorType | None) -> str:
    """Why oneDNN does not take the operands of a linear layer; empty if it does."""
    if weight.ndim != 2 or input.ndim < 2:
        return "needs a matrix as weight, and an input of two dimensions or more"
    if bias is not None and bias.shape != weight.shape[:1]:
        return "needs a vector as bias, of one element for each output"
    return unfit(input, weight) if bias is None else unfit(input, weight, bias)


def unfit(*tensors: TensorType) -> str:
    """Why oneDNN does not take the operands; empty if it does."""
    for t in tensors:
        if not t.device.startswith("cpu"):
            return f"runs on the CPU, and an operand is on {t.device}"
        if t.layout != "strided":
            return f"needs strided tensors, and an operand is {t.layout}"
        if not t.numel:
            return "an operand is empty"
    if len({t.dtype for t in tensors}) > 1:
        return "the operands differ in dtype"
    return entry.wrong()


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return _pointwise(input, weight, bias, "none", [], "")


def alone(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str = "none",
    approximate: str = "",
    *,
    cx: ClaimContext,
) -> Tensor:
    """A linear layer of which no gradient is wanted, and what is applied to its result."""
    run = _packed_linear if cx.choice == "packed" else _pointwise
    return run(input, weight, bias, activation, [], approximate)


def linear_forward(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    wanted = (input.requires_grad, weight.requires_grad, bias is not None and bias.requires_grad)
    kept = (input if wanted[1] else None, weight if wanted[0] else None)
    return linear(input, weight, bias), (*kept, bias is None, wanted[2])


def linear_backward(saved: Any, grad: Tensor) -> Any:
    input, weight, without_bias, bias_wanted = saved
    of_input = linear(grad, weight.t()) if weight is not None else None
    product = _matmul if grad.dtype is torch.float32 else torch.mm
    of_weight = product(_rows(grad).t(), _rows(input)) if input is not None else None
    if without_bias:
        return of_input, of_weight
    return of_input, of_weight, _rows(grad).sum(0) if bias_wanted else None


def product(a: Tensor, b: Tensor) -> Tensor:
    if a.ndim == 2 and a.is_contiguous():
        return linear(a, b.t())
    return _matmul(a, b)


def sum_with_product(c: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    if _adds_bias(c, a, b, beta, alpha):
        return linear(a, b.t(), c)
    return _addmatmul(c, a, b, beta, alpha)


def _rows(t: Tensor) -> Tensor:
    return t if t.ndim == 2 else t.flatten(0, -2)
