"""Transforms by name, and observers, end to end."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import thunder
from thunder.errors import PluginError
from thunder.extend import Transform
from thunder.ir.symbol import Symbol
from thunder.ir.trace import Trace
from thunder.plugins import registry

FRONTENDS = ["functional", "dynamo"]


def cosines(trace: Trace) -> Trace:
    return trace.with_ops(
        replace(op, sym=Symbol("torch.cos")) if op.sym.name == "torch.sin" else op for op in trace.ops
    )


COSINES = Transform("cosines", summary="cos for sin", apply=f"{__name__}:cosines")


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_a_transform_rewrites_the_program_and_its_derivative(frontend):
    x = torch.randn(3, requires_grad=True)
    jitted = thunder.jit(lambda x: torch.sin(x) * 2, frontend=frontend, transforms=[COSINES])
    y = jitted(x)
    torch.testing.assert_close(y, torch.cos(x) * 2)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], -2 * torch.sin(x))
    assert "cosines" not in [trace.made_by for trace in thunder.last_traces(jitted)[:2]]


def test_an_unknown_transform_is_an_error_before_anything_is_compiled():
    with pytest.raises(PluginError, match='no transform "cosins"'):
        thunder.jit(lambda x: x, transforms=["cosins"])


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_observers_see_each_compilation_once(frontend, monkeypatch):
    seen = []
    monkeypatch.setattr(type(registry()), "compiled", lambda self, record: seen.append(record))
    jitted = thunder.jit(lambda x: x + 1, frontend=frontend)
    for _ in range(2):
        jitted(torch.zeros(3))
    assert seen == jitted._thunder_records
    assert len(seen) == 1
