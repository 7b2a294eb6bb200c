"""Random numbers: the same as eager's from the same seed, and the generator left where eager leaves it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import thunder

FRONTENDS = ["functional", "dynamo"]

DRAWS = {
    "dropout": lambda x: F.dropout(x, 0.3),
    "dropout in place": lambda x: F.dropout(x * 1, 0.3, inplace=True),
    "rand": lambda x: x + torch.rand(4, 4),
    "randn": lambda x: x * torch.randn(4),
    "randint": lambda x: x * torch.randint(0, 5, (4,)),
    "randperm": lambda x: x[torch.randperm(4)],
    "bernoulli": lambda x: x * torch.bernoulli(torch.full((4, 4), 0.5)),
    "rand_like": lambda x: x - torch.rand_like(x),
    "normal in place": lambda x: x * torch.empty(4).normal_(),
    "multinomial": lambda x: x[torch.multinomial(torch.ones(4), 2)].sum() + x,
    "rrelu": lambda x: F.rrelu(x, training=True),
    "gumbel": lambda x: F.gumbel_softmax(x),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.2, training=True),
}


def observe(f, seed):
    torch.manual_seed(seed)
    x = torch.linspace(-1, 1, 16).reshape(4, 4).requires_grad_()
    out = f(x)
    state = torch.get_rng_state()
    out.sum().backward()
    return out.detach(), x.grad, state


@given(st.lists(st.sampled_from(sorted(DRAWS)), min_size=1, max_size=4), st.integers(0, 5))
def test_draws_in_order(names, seed):
    def program(x):
        for name in names:
            x = DRAWS[name](x)
        return x

    f = thunder.jit(program, frontend="functional")
    for call in range(2):
        assert_close(observe(f, seed + call), observe(program, seed + call), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_dropout_and_factories(frontend):
    def program(x):
        return F.dropout(x, 0.5) + torch.rand(4, 4) * torch.randn_like(x)

    f = thunder.jit(program, frontend=frontend)
    for seed in range(3):
        assert_close(observe(f, seed), observe(program, seed), rtol=0, atol=0)


def test_a_draw_nobody_reads_still_moves_the_generator():
    def program(x):
        torch.rand(3)
        return x * torch.rand(4)

    assert_close(observe(thunder.jit(program, frontend="functional"), 0), observe(program, 0), rtol=0, atol=0)


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_a_generator_as_argument(frontend):
    def program(x, g):
        return x + torch.rand(4, generator=g), torch.randn(2, generator=g)

    found = []
    for f in (program, thunder.jit(program, frontend=frontend)):
        g = torch.Generator().manual_seed(5)
        found.append([f(torch.ones(4), g) for _ in range(3)])
    assert_close(found[1], found[0], rtol=0, atol=0)


def test_double_backward_draws_the_same_mask():
    def program(x):
        return F.dropout(x, 0.5).pow(3).sum()

    found = []
    for f in (program, thunder.jit(program, frontend="functional")):
        torch.manual_seed(4)
        x = torch.linspace(-1, 1, 16).requires_grad_()
        (g,) = torch.autograd.grad(f(x), x, create_graph=True)
        found.append(torch.autograd.grad(g.sum(), x)[0])
    assert_close(found[1], found[0])
