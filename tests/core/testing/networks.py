"""Random networks of linear layers, and what an eager run of them does, counted."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar
from unittest import mock

import torch
from hypothesis import strategies as st
from torch import nn

LAYERS = 3


@dataclass(frozen=True)
class Spec:
    """steps: what happens to the running value. frozen: layers whose parameters need no gradient.

    wanted: which of the results are back-propagated. first: whether the input needs a gradient.
    """

    width: int
    steps: tuple[str, ...]
    frozen: frozenset[int]
    wanted: tuple[bool, ...]
    first: bool


STEPS = [*(f"layer{n}" for n in range(LAYERS)), "relu", "tanh", "again", "result", "restart", "dead", "detach"]


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    steps = tuple(draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=8)))
    results = steps.count("result") + 1
    return Spec(
        width=draw(st.sampled_from([2, 4, 4, 6, 3])),
        steps=steps,
        frozen=frozenset(draw(st.sets(st.integers(0, LAYERS - 1), max_size=2))),
        wanted=tuple(draw(st.lists(st.booleans(), min_size=results, max_size=results))),
        first=draw(st.booleans()),
    )


class Network(nn.Module):
    """Runs a spec: (batch, width) to a tuple of (batch, width)."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(spec.width, spec.width, bias=n != 1) for n in range(LAYERS))
        for n in spec.frozen:
            self.layers[n].requires_grad_(False)
        self.steps = spec.steps

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        value, results = x * 1, []
        for step in self.steps:
            if step.startswith("layer"):
                value = self.layers[int(step[-1])](value)
            elif step == "result":
                results.append(value)
            elif step == "restart":
                value = x * 2
            elif step == "again":
                value = value + x
            elif step == "dead":
                self.layers[0](value).relu()
            elif step == "detach":
                value = value.detach()
            else:
                value = getattr(value, step)()
        return (*results, value + 0)


class Counting(torch.autograd.Function):
    """A linear layer that counts how often it runs backward."""

    backwards: ClassVar[Counter[int]] = Counter()

    @staticmethod
    def forward(ctx, number, x, weight, bias):
        ctx.save_for_backward(x, weight)
        ctx.number, ctx.has_bias = number, bias is not None
        return x @ weight.t() + bias if ctx.has_bias else x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        Counting.backwards[ctx.number] += 1
        x, weight = ctx.saved_tensors
        return None, grad @ weight, grad.t() @ x, grad.sum(0) if ctx.has_bias else None


@contextlib.contextmanager
def counted():
    """Linear layers count their backwards, by the number of the call."""
    calls = iter(range(10**6))
    Counting.backwards.clear()

    def run(x, weight, bias=None):
        return Counting.apply(next(calls), x, weight, bias)

    with mock.patch.object(torch.nn.functional, "linear", run):
        yield Counting.backwards


def live_calls(spec: Spec) -> list[int]:
    """The layer of each call whose value reaches a result, in program order."""
    running: list[int] = []
    live: list[tuple[int, int]] = []
    for at, step in enumerate((*spec.steps, "result")):
        if step.startswith("layer"):
            running.append((at, int(step[-1])))
        elif step == "restart":
            running = []
        elif step == "result":
            live += [call for call in running if call not in live]
    return [layer for _, layer in sorted(live)]
