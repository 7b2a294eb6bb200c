"""Operators whose results PyTorch's kernels lay out in another way than their fakes, beside regions that read them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder_inductor.plugin import INDUCTOR

STATISTICS = torch.zeros(6), torch.ones(6)
FUNCTIONS = {
    "batch_norm": lambda x: F.batch_norm(x, *STATISTICS),
    "hardswish": F.hardswish,
    "poisson": lambda x: torch.poisson(x.detach().mT.abs()).mT + x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_those_of_eager(name):
    def program(x, w):
        return FUNCTIONS[name](x.sin()).transpose(1, 2).cos() @ w

    def run(fn):
        torch.manual_seed(0)
        x, w = torch.randn(3, 6, 8, requires_grad=True), torch.randn(6, 40, requires_grad=True)
        out = fn(x, w)
        return out, *torch.autograd.grad(out, (x, w), torch.randn_like(out))

    found = run(thunder.jit(program, executors=[INDUCTOR]))
    torch.testing.assert_close(found, run(program), check_stride=True, rtol=1e-4, atol=1e-4)


def test_a_view_of_a_gradient_that_is_not_row_major():
    def program(x, attention):
        return F.elu(attention @ x).transpose(1, 2).flatten(2)

    arguments = torch.randn(2, 3, 9, 6, requires_grad=True), torch.randn(2, 3, 9, 9, requires_grad=True)
    expected = program(*arguments)
    g = torch.randn_like(expected)
    out = thunder.jit(program, executors=["-inductor"])(*arguments)
    found, want = (torch.autograd.grad(t, arguments, g) for t in (out, expected))
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)
