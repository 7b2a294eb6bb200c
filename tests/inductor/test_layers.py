"""Layers whose composites are made of many small operations, fused: as in eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import thunder
from thunder.extend import Trace
from thunder_inductor.plugin import INDUCTOR

FRONTENDS = ("functional", "dynamo")


def step(program: Callable[..., Any], module: nn.Module, *args: Tensor) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """Results, and the gradients of the sum of their squares for arguments and parameters."""
    results = tree_leaves(program(*args))
    loss = sum(t.float().square().sum() for t in results)
    return results, torch.autograd.grad(loss, [*args, *module.parameters()])


def test_gelu_between_products_is_a_region() -> None:
    """Inductor's kernel for it is faster than PyTorch's; in training it makes the derivative as well."""
    module = nn.Sequential(nn.Linear(8, 128), nn.GELU("tanh"), nn.Linear(128, 8))
    x = torch.randn(64, 8, requires_grad=True)
    jitted = thunder.jit(module, executors=[INDUCTOR], frontend="functional")
    torch.testing.assert_close(step(jitted, module, x), step(module, module, x), rtol=1e-4, atol=1e-5)
    assert regions(thunder.last_traces(jitted)) == [["aten.ones_like", "aten.gelu_backward", "aten.gelu"]]
    assert "aten.gelu_backward" not in str(thunder.last_backward_traces(jitted)[-1])
    with torch.no_grad():
        torch.testing.assert_close(jitted(x), module(x))
    assert regions(thunder.last_traces(jitted)) == [["aten.gelu"]]


def regions(traces: list[Trace]) -> list[list[str]]:
    return [[part.sym.name for part in op.fused.ops] for op in traces[-1].ops if op.fused]


def is_fused(jitted: Callable[..., Any]) -> bool:
    traces = thunder.last_traces(jitted)[-1], thunder.last_backward_traces(jitted)[-1]
    return any(op.fused for trace in traces for op in trace.ops)


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell])
def test_recurrent_cells(cell: type[nn.Module], frontend: str) -> None:
    module = cell(8, 8)
    x, h, c = (torch.randn(4, 8, requires_grad=True) for _ in range(3))

    def run(x: Tensor, h: Tensor, c: Tensor) -> Any:
        if cell is nn.GRUCell:
            return module(module(x, h), c)
        state = module(x, (h, c))
        return module(x.sin(), state)

    jitted = thunder.jit(run, executors=[INDUCTOR], frontend=frontend)
    for _ in range(2):
        torch.testing.assert_close(step(jitted, module, x, h, c), step(run, module, x, h, c), rtol=1e-4, atol=1e-5)
    assert is_fused(jitted)


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_recurrent_layers(layer: type[nn.Module]) -> None:
    """Under the functional front end: Dynamo leaves them to Python."""
    module = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), layer(8, 8, batch_first=True))
    x = torch.randn(2, 3, 8, requires_grad=True)
    jitted = thunder.jit(module, executors=[INDUCTOR], frontend="functional")
    for _ in range(2):
        torch.testing.assert_close(step(jitted, module, x), step(module, module, x), rtol=1e-4, atol=1e-5)
    assert is_fused(jitted)


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
def test_norms_under_autocast(norm: type[nn.Module], frontend: str) -> None:
    """What autocast runs in bfloat16 and in float32 stays what it is, in results and in gradients."""
    module = nn.Sequential(nn.Linear(16, 16), norm(16), nn.GELU(), nn.Linear(16, 16), norm(16))
    x = torch.randn(4, 16, requires_grad=True)
    jitted = thunder.jit(module, executors=[INDUCTOR], frontend=frontend)
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            found, expected = step(jitted, module, x), step(module, module, x)
        torch.testing.assert_close(found, expected, rtol=3e-2, atol=3e-2)
    assert is_fused(jitted)
