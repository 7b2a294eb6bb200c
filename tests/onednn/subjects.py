"""Compiling with this executor, and what it makes of a program."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import thunder
from thunder.ir.trace import Stage
from thunder_onednn.plugin import ONEDNN

FRONT_ENDS = ("functional", "dynamo")


def jit(program: Any, *, when: str = "always", frontend: str = "functional", **options: Any) -> Any:
    """The program compiled with this executor alone, which takes all that it can. options: more of its own."""
    named = {f"onednn.{name}": value for name, value in options.items()}
    return thunder.jit(program, executors=[ONEDNN], frontend=frontend, options={"onednn.when": when, **named})


def operations(jitted: Any) -> list[str]:
    """The symbols of this executor in the final programs of the last compilation, in order."""
    backward = [t for t in thunder.last_backward_traces(jitted) if t.stage is Stage.SCHEDULED]
    ops = [op for trace in (thunder.last_traces(jitted)[-1], *backward) for op in trace.ops]
    return [op.sym.name for op in ops if op.sym.name.startswith("onednn.")]


def refusals(jitted: Any, target: str) -> list[str]:
    """Why calls of a target were refused in the last compilation."""
    selected = next(t for t in reversed(thunder.last_traces(jitted)) if t.stage is Stage.SELECTED)
    return [r.reason for op in selected.ops if op.sym.name == target for r in op.selection.refusals]


def step(program: Any, *tensors: Tensor, positive: bool = False) -> list[Tensor]:
    """The result of a program, and the gradients of those of its tensors that can have one.

    positive: of the absolute values of all that is given, so that nothing cancels.
    """
    inputs = [_as_given(t.abs() if positive else t) for t in tensors]
    wanted = [t.requires_grad_() for t in inputs if t.is_floating_point()]
    out = program(*inputs)
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
    gradients = torch.autograd.grad(out, wanted, cotangent.abs() if positive else cotangent)
    return [out.detach(), *gradients]


def _as_given(t: Tensor) -> Tensor:
    """A leaf with the values and strides of a tensor."""
    return t.detach() if 0 in t.stride() else torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t.detach())


def distance(found: Tensor, exact: Tensor, size: Tensor) -> float:
    """How far a result is from a float64 one, relative to the norm of a third."""
    return float((found.double() - exact).norm() / size.norm().clamp(min=1e-30))
