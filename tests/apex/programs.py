"""Running a program of the tests compiled, with the executor, and comparing it with PyTorch in wider numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import thunder
from thunder.observe.explain import rows
from thunder_apex.plugin import APEX


def jit(fn: Callable[..., Any], frontend: str = "functional", **options: Any) -> Any:
    return thunder.jit(fn, executors=[APEX], frontend=frontend, options={f"apex.{k}": v for k, v in options.items()})


def step(fn: Callable[..., Tensor], *tensors: Tensor, grad: Tensor) -> list[Tensor | None]:
    """The result, and the gradients of the floating point tensors that require them."""
    inputs = [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]
    out = fn(*inputs)
    wanted = [t for t in inputs if t.requires_grad]
    return [out.detach(), *torch.autograd.grad(out, wanted, grad.to(out.dtype).expand_as(out))]


def wide(t: Tensor) -> Tensor:
    """The tensor in float64, if it is a floating point one."""
    return t.detach().double().requires_grad_(t.requires_grad) if t.is_floating_point() else t


def close(actual: Sequence[Tensor | None], expected: Sequence[Tensor | None], error: float) -> None:
    """Each within ``error`` of its largest value; the same dtype is not asked for."""
    for found, want in zip(actual, expected, strict=True):
        assert found is not None
        assert want is not None
        assert found.shape == want.shape
        assert torch.equal(found.isnan(), want.isnan())
        worst = (found.double() - want.double()).nan_to_num().abs().max()
        assert worst <= error * want.nan_to_num().abs().max(), (worst, want)


def executors(jitted: Any) -> dict[str, str]:
    """Who runs each call of the last compilation, by its symbol."""
    return {row.symbol.rpartition(".")[2]: row.executor for row in rows(jitted._thunder_records[-1])}


def reason(jitted: Any, symbol: str) -> str:
    """Why the executor refused a call of the last compilation."""
    (row,) = [row for row in rows(jitted._thunder_records[-1]) if row.symbol.endswith(f".{symbol}")]
    (refusal,) = row.refusals
    return refusal.reason
