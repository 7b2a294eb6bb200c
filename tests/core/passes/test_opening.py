"""Composites are opened for an executor that claims a part of them, wherever that can be differentiated."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import thunder
from thunder.extend import Claim, Executor
from thunder.ir.trace import Stage

MINE = Executor(name="mine", claims=(Claim("aten.bmm"),))


def claimed(program, *tensors):
    """How many operations of the program the executor got; its results and gradients are those of eager."""
    compiled, runs = thunder.jit(program, executors=[MINE], frontend="functional"), []
    for function in (compiled, program):
        torch.manual_seed(0)
        inputs = [t.clone().requires_grad_() for t in tensors]
        out = function(*inputs)
        runs.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    for ours, theirs in zip(*runs, strict=True):
        torch.testing.assert_close(ours, theirs)
    selected = next(t for t in reversed(thunder.last_traces(compiled)) if t.stage is Stage.SELECTED)
    return sum(op.selection is not None and op.selection.claim is not None for op in selected.ops)


@pytest.mark.parametrize(
    "program",
    [
        torch.matmul,
        lambda a, b: torch.einsum("bik,bkj->bij", a, b),  # a built-in behind a Python function
        lambda a, b: torch.einsum("bik,bkj->bij", a, b).relu(),
    ],
)
def test_products_are_found_inside(program):
    assert claimed(program, torch.randn(2, 3, 4), torch.randn(2, 4, 5)) == 1


def test_what_draws_inside_is_left_whole():
    """PyTorch has no derivative of the draw by itself."""

    def program(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)

    assert claimed(program, *(torch.randn(2, 2, 5, 8) for _ in range(3))) == 0
