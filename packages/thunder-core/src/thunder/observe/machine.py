"""How fast this machine runs calls that matter, by each executor that can run them: for ``thunder doctor``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

import thunder
from thunder.ir.trace import Stage
from thunder.lang.values import tensor_type
from thunder.passes.race import clock_for, race
from thunder.plugins.spec import Executor

SECONDS = 5.0
"""How long one call may be timed."""


@dataclass(frozen=True)
class Work:
    """A call, with what it computes forward and backward. flops: additions and multiplications."""

    name: str
    fn: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype
    flops: float

    def __str__(self) -> str:
        shapes = " x ".join(str(tuple(shape)) for shape in dict.fromkeys(self.shapes))
        return f"{self.name} {str(self.dtype).removeprefix('torch.')} {shapes}"


@dataclass(frozen=True)
class Rates:
    """Operations a second of a call's forward and backward, by executor; and why others do not run it."""

    work: Work
    by_executor: Mapping[str, float] = field(default_factory=dict)
    refusals: Mapping[str, str] = field(default_factory=dict)


def survey(executors: Iterable[Executor]) -> Iterator[Rates]:
    """The rates of matrix products and attention, by PyTorch and by those executors that keep its numerics."""
    able = [executor for executor in executors if executor.claims and executor.numerics == "exact"]
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    return (rates(work, torch.device(device or "cpu"), able) for work in WORKS)


def _works() -> tuple[Work, ...]:
    rows, inputs, outputs = 1024, 512, 2048
    head = (4, 8, 256, 32)
    attention = 3.5 * 4 * math.prod(head) * head[2]  # two products forward, five backward
    attend = partial(F.scaled_dot_product_attention, is_causal=True)
    return tuple(
        work
        for dtype in (torch.float32, torch.bfloat16)
        for work in (
            Work("linear", F.linear, ((rows, inputs), (outputs, inputs)), dtype, 6.0 * rows * inputs * outputs),
            Work("causal attention", attend, (head,) * 3, dtype, attention / 2),
        )
    )


WORKS = _works()


def rates(work: Work, device: torch.device, executors: Iterable[Executor]) -> Rates:
    """How fast a call runs. An executor that refuses it or fails has the reason instead."""
    inputs = [torch.randn(shape, dtype=work.dtype, device=device, requires_grad=True) for shape in work.shapes]
    steps, refusals = {"torch": partial(_step, work.fn, inputs)}, {}
    for executor in executors:
        try:
            jitted = thunder.jit(work.fn, executors=[executor], frontend="functional", options={"select": "order"})
            _step(jitted, inputs)
            refusal = _refusal(jitted)
        except Exception as error:
            refusal = f"{type(error).__name__}: {error}"
        if refusal is None:
            steps[executor.name] = partial(_step, jitted, inputs)
        else:
            refusals[executor.name] = refusal
    types = [tensor_type(t) for t in inputs]
    seconds = race(steps, clock_for(types), SECONDS) or {}
    return Rates(work, {name: work.flops / taken for name, taken in seconds.items()}, refusals)


def _step(fn: Callable[..., Any], inputs: list[torch.Tensor]) -> None:
    out = fn(*inputs)
    torch.autograd.grad(out, inputs, torch.ones_like(out))


def _refusal(jitted: Any) -> str | None:
    """Why the executor runs no part of the call; None if it does."""
    (selected,) = [trace for trace in thunder.last_traces(jitted) if trace.stage is Stage.SELECTED]
    if any(op.is_claimed for op in selected.ops):
        return None
    reasons = [r.reason for op in selected.ops if op.selection is not None for r in op.selection.refusals]
    return "; ".join(reasons) or "it does not claim it"
