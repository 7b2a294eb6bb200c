"""User-defined ``torch.autograd.Function`` and ``torch.library`` operators, against eager."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.function import once_differentiable
from torch.testing import assert_close

import thunder
from tests.faults import fault_of_torch_2_10

FRONTENDS = ["functional", "dynamo"]


class Scaled(torch.autograd.Function):
    """Keeps state that is no tensor, and looks at what is needed."""

    @staticmethod
    def forward(ctx, x, factor, w):
        ctx.factor = factor
        ctx.save_for_backward(x, w)
        return x * factor * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx = g * ctx.factor * w if ctx.needs_input_grad[0] else None
        return gx, None, g * x * ctx.factor * 10 if ctx.needs_input_grad[2] else None


class Doubled(torch.autograd.Function):
    """Writes its argument."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 3


class Pair(torch.autograd.Function):
    """Two results, one without gradient; differentiable once."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        signs = x.sign()
        ctx.mark_non_differentiable(signs)
        return x.abs(), signs

    @staticmethod
    @once_differentiable
    def backward(ctx, g, _):
        (x,) = ctx.saved_tensors
        return g * x.sign() * 7


def scaled(x, w):
    return Scaled.apply(x.sin(), 3.0, w)


def doubled(x, w):
    y = x * w
    z = Doubled.apply(y)
    return z + y


def pair(x, w):
    size, sign = Pair.apply(x * w)
    return size * sign.detach()


def data(seed):
    return torch.randn(4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def compare(program, frontend, needs=(True, True)):
    found = []
    for f in (program, thunder.jit(program, frontend=frontend)):
        x, w = data(0).requires_grad_(needs[0]), data(1).requires_grad_(needs[1])
        for _ in range(2):
            out = f(x, w)
            out.sum().backward()
        found.append((out.detach(), *[t.grad for t in (x, w) if t.requires_grad]))
    assert_close(found[1], found[0], rtol=0, atol=0)


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("program", [scaled, doubled, pair], ids=lambda f: f.__name__)
def test_functions(program, frontend, needs, request):
    if (program, frontend) == (doubled, "dynamo"):
        request.applymarker(fault_of_torch_2_10("Dynamo forgets what a function has marked as dirty"))
    compare(program, frontend, needs)


def test_double_backward_through_a_function():
    found = []
    for f in (scaled, thunder.jit(scaled, frontend="functional")):
        x, w = data(0).requires_grad_(), data(1).requires_grad_()
        (g,) = torch.autograd.grad(f(x, w).sum(), x, create_graph=True)
        found.append(torch.autograd.grad(g.square().sum(), (x, w)))
    assert_close(found[1], found[0])


def test_once_differentiable_is_once_differentiable():
    for f in (pair, thunder.jit(pair, frontend="functional")):
        x, w = data(0).requires_grad_(), data(1).requires_grad_()
        (g,) = torch.autograd.grad(f(x, w).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError):
            torch.autograd.grad(g.square().sum(), x)


@torch.library.custom_op("thundertests::smooth", mutates_args=())
def smooth(x: torch.Tensor, weight: float) -> torch.Tensor:
    return x * weight + x.flip(0)


@smooth.register_fake
def _(x, weight):
    return torch.empty_like(x)


def _keep(ctx, inputs, output):
    ctx.weight = inputs[1]


smooth.register_autograd(lambda ctx, g: (g * ctx.weight + g.flip(0), None), setup_context=_keep)


@torch.library.custom_op("thundertests::plain", mutates_args=())
def plain(x: torch.Tensor) -> torch.Tensor:
    return x.cumsum(0)


@plain.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("thundertests::accumulate", mutates_args=("into",))
def accumulate(into: torch.Tensor, x: torch.Tensor) -> None:
    into.add_(x * 2)


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_operator_with_autograd(frontend):
    compare(lambda x, w: smooth(x * w, 0.5).sin(), frontend)


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_operator_without_autograd(frontend):
    compare(lambda x, w: plain((x * w).detach()) * x, frontend, (True, False))


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_operator_that_writes(frontend):
    def program(buffer, x):
        accumulate(buffer, x)
        accumulate(buffer[1:], x[1:])
        return buffer * 2

    found = []
    for f in (program, thunder.jit(program, frontend=frontend)):
        buffer = torch.zeros(4, dtype=torch.float64)
        found.append([(f(buffer, data(i)), buffer.clone()) for i in range(3)])
    assert_close(found[1], found[0], rtol=0, atol=0)
