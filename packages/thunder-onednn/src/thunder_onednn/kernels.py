"""What runs, and the types of its results."""

from __future__ import annotations

from torch import Tensor

from thunder_onednn import entry


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """The product of two matrices, or of two batches of them."""
    out = product_type(a, b)
    entry.matmul(a, b, out)
    return out


def addmatmul(c: Tensor, a: Tensor, b: Tensor, beta: float, alpha: float) -> Tensor:
    """``beta * c + alpha * (a @ b)``; c is broadcast, and not read if beta is zero."""
    out = product_type(a, b)
    if beta != 0:
        out.copy_(c)
    entry.matmul(a, b, out, beta, alpha)
    return out


def product_type(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty((*a.shape[:-1], b.shape[-1]))


def sum_type(c: Tensor, a: Tensor, b: Tensor, beta: float, alpha: float) -> Tensor:
    return product_type(a, b)


def linear_type(
    input: Tensor, weight: Tensor, bias: Tensor | None, attr: str, scalars: list[float], algorithm: str
) -> Tensor:
    return input.new_empty((*input.shape[:-1], weight.shape[0]))
