"""What tests of measured selection share: a cache of their own, prices, and comparing with eager."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

import thunder
from thunder.passes.measure import Candidate
from thunder.runtime import measured

FRONT_ENDS = ("functional", "dynamo")
MEASURE = {"select": "measure"}
LONG = {"measure_budget": 1e9}


class Prices:
    """Seconds that each candidate takes on a clock of ours, by executor and way; what was timed, in order."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds
        self.timed: list[str] = []
        self.now = 0.0

    def trial(self, subject, ops, *rest) -> Candidate:
        made = real_trial(subject, ops, *rest)
        chosen = ops[0].selection
        name = chosen.context.choice or chosen.executor if chosen.context else chosen.executor

        def run(*tensors) -> None:
            if name not in self.timed:
                made.run(*tensors)
                self.timed.append(name)
            self.now += self.seconds[name]

        return replace(made, run=run)


real_trial = measured.trial


def layer(rows: int = 64) -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(48, 32, bias=False), nn.Tanh()), torch.randn(rows, 48, requires_grad=True)


def agree(module, jitted, *args):
    """Result and all gradients equal eager's."""
    wanted = [*args, *module.parameters()]
    expected, actual = module(*args), jitted(*args)
    torch.testing.assert_close(actual, expected)
    weight = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad((actual * weight).sum(), [*args, *jitted.parameters()]),
        torch.autograd.grad((expected * weight).sum(), wanted),
    )


def decisions(jitted):
    return [decision for record in jitted._thunder_records for decision in record.decisions]


def runs_on(jitted) -> list[str]:
    """Who runs the linear layers."""
    (selected,) = [trace for trace in thunder.last_traces(jitted) if trace.stage.value == "selected"]
    return [op.selection.executor for op in selected.ops if "linear" in op.sym.name]
