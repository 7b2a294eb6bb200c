"""What backward saves where a fuser is active: never more than without, against brute force and against eager."""

from __future__ import annotations

import functools
import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

import thunder
from benchmarks.steady import held_bytes
from thunder.grad.maxflow import Network
from thunder.testing.fakes.fuser import FUSER

FRONTENDS = ["functional", "dynamo"]


@st.composite
def networks(draw):
    """Edges among five inner nodes, source and sink; some that cannot be cut, but none from source to sink."""
    names = ["s", *"abcde", "t"]
    pairs = [(u, v) for u in names for v in names if u != v and v != "s" and u != "t" and (u, v) != ("s", "t")]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=12, unique=True))
    capacities = [draw(st.sampled_from([0, 1, 2, 3, 5, 8])) for _ in chosen]
    fixed = draw(st.sets(st.sampled_from([pair for pair in chosen if pair[0] == "s"] or [("s", "a")]), max_size=2))
    return [(u, v, math.inf if (u, v) in fixed else c) for (u, v), c in zip(chosen, capacities)]


def cost(edges, behind):
    return sum(c for u, v, c in edges if u not in behind and v in behind)


@given(networks())
def test_cuts_are_minimal_and_closest_to_the_sink(edges):
    network = Network()
    for edge in edges:
        network.join(*edge)
    behind = network.behind_cut("s", "t")
    sides = [{"t", *(n for n, inside in zip("abcde", bits) if inside)} for bits in product([0, 1], repeat=5)]
    best = min(cost(edges, side) for side in sides)
    assert cost(edges, behind) == best
    assert all(behind <= side for side in sides if cost(edges, side) == best)


def fused(module, frontend="functional", **options):
    return thunder.jit(module, executors=[FUSER], frontend=frontend, options=options)


class Gated(nn.Module):
    """A norm and two activations of one projection: everything but that is cheap to make again."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(32))
        self.fc = nn.Linear(16, 32)

    def forward(self, x):
        h = self.fc(x)
        return (F.rms_norm(h, (32,), self.weight) * F.gelu(h) * torch.sigmoid(h)).sum()


class SwiGLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(16)
        self.gate, self.up, self.down = nn.Linear(16, 32), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(SwiGLU(), nn.Dropout(0.3), SwiGLU())

    def forward(self, x):
        return (self.blocks(x).tanh() * 2).square().mean()


class Convolved(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x))).mean((2, 3)).square().sum()


MODELS = {
    "gated": (Gated, (8, 16)),
    "dropped": (Dropped, (4, 16)),
    "convolved": (Convolved, (2, 3, 8, 8)),
}


def made(name):
    torch.manual_seed(0)
    make, shape = MODELS[name]
    return make(), torch.randn(shape)


def gradients(program, module, x):
    module.zero_grad()
    torch.manual_seed(1)
    loss = program(x)
    loss.backward()
    return [loss.detach(), *(p.grad for p in module.parameters())]


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("name", MODELS)
def test_no_more_is_saved_than_without_and_gradients_are_equal(name, frontend):
    bytes_held, found = [], []
    for jit in (lambda m: thunder.jit(m, frontend=frontend), lambda m: fused(m, frontend)):
        module, x = made(name)
        jitted = jit(module)
        bytes_held.append(held_bytes(jitted, module, (x,)))
        module, x = made(name)
        found.append(gradients(jit(module), module, x))
    assert bytes_held[1] <= bytes_held[0]
    assert all(map(torch.equal, found[1], found[0]))


def test_a_chain_of_activations_saves_what_they_are_made_of():
    """One matrix product of 8 x 32 floats, and the reciprocal root mean square of each row."""
    module, x = made("gated")
    assert held_bytes(fused(module), module, (x,)) == (8 * 32 + 8) * 4
    module, x = made("gated")
    assert held_bytes(module, module, (x,)) >= 4 * 8 * 32 * 4


def names(trace):
    return [op.sym.name for op in trace.ops for op in (op.fused.ops if op.fused else [op])]


def test_expensive_and_random_operations_are_not_made_again():
    module, x = made("dropped")
    jitted = fused(module, **{"fakefuser.everything": True})
    gradients(jitted, module, x)
    again = names(thunder.last_backward_traces(jitted)[-1])
    forward = names(thunder.last_traces(jitted)[-1])
    assert "aten.bernoulli_.float" in forward or any("bernoulli" in name or "dropout" in name for name in forward)
    assert not any("bernoulli" in name or "dropout" in name or "linear" in name or "addmm" in name for name in again)


def test_what_a_matrix_product_of_backward_reads_is_saved():
    """The activation that the weight's gradient needs: to make it again would write it to memory again."""

    def program(x, w):
        return torch.sigmoid(x @ w) @ w

    x, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    jitted = thunder.jit(program, executors=[FUSER], frontend="functional")
    jitted(x, w).sum().backward()
    assert "aten.sigmoid" not in names(thunder.last_backward_traces(jitted)[-1])


def noted(kept, t):
    kept.append(t.nbytes)
    return t


def test_checkpointed_regions_stay_what_they_are():
    def body(x, w):
        return (x @ w).sin().exp()

    def program(x, w):
        for _ in range(3):
            x = checkpoint(body, x, w, use_reentrant=False)
        return x.sum()

    saved, found = [], []
    for jit in (thunder.jit, lambda f, **kw: thunder.jit(f, executors=[FUSER], **kw)):
        x, w = torch.full((4, 4), 0.1, requires_grad=True), torch.eye(4, requires_grad=True)
        jitted = jit(program, frontend="functional")
        kept: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(functools.partial(noted, kept), lambda t: t):
            out = jitted(x, w)
        out.backward()
        saved.append(sum(kept))
        found.append((x.grad, w.grad))
    assert saved[1] <= saved[0]
    assert all(map(torch.equal, found[1], found[0]))


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_values_that_the_program_overwrites_are_not_made_again_from_what_came_after(frontend):
    def program(x, w, buffer):
        h = ((buffer + w).sin() * 2).exp()  # eager saves none of what is overwritten
        buffer.mul_(0).add_(x)
        return (h * x).sum()

    found = []
    for fn in (program, thunder.jit(program, executors=[FUSER], frontend=frontend)):
        torch.manual_seed(0)
        x, w, buffer = torch.randn(4), torch.randn(4, requires_grad=True), torch.randn(4)
        out = fn(x, w, buffer)
        out.backward()
        found.append((out.detach(), w.grad, buffer))
    torch.testing.assert_close(found[1], found[0])


def test_independent_results_back_propagate_on_their_own():
    def program(x, w):
        a, b = x @ w, (x + 1) @ w
        return (a.sin() * a.cos()).exp().sum(), (b.tanh() * b).sum()

    x = torch.randn(4, 4)
    w = torch.randn(4, 4, requires_grad=True)
    first, second = thunder.jit(program, executors=[FUSER], frontend="functional")(x, w)
    expected = program(x, w)
    for got, want in ((second, expected[1]), (first, expected[0])):
        torch.testing.assert_close(*(torch.autograd.grad(end, w)[0] for end in (got, want)))


def test_what_is_made_of_no_tensors_is_made_and_saved_once():
    tables = torch.nn.ModuleList(torch.nn.EmbeddingBag(10, 4, mode="sum") for _ in range(3))

    def look_up(ids):
        return torch.cat([table(ids) for table in tables], 1)

    ids = torch.randint(0, 10, (5, 2))
    jitted = thunder.jit(look_up, executors=["torch"], frontend="functional")
    expected = torch.autograd.grad(look_up(ids).square().sum(), list(tables.parameters()))
    torch.testing.assert_close(torch.autograd.grad(jitted(ids).square().sum(), list(tables.parameters())), expected)
    made = [op for op in thunder.last_traces(jitted)[-1].ops if op.sym.name.startswith("aten.arange")]
    assert len(made) == 1


def test_two_results_of_equal_factories_are_two_tensors():
    def make(x):
        return torch.zeros(3), torch.zeros(3), x * torch.zeros(3) + torch.zeros(3)

    first, second, _ = thunder.jit(make, executors=["torch"], frontend="functional")(torch.ones(3, requires_grad=True))
    first.fill_(1)
    assert second.eq(0).all()


def test_training_saves_no_statistics_of_batch_norm():
    module, x = torch.nn.BatchNorm1d(4), torch.randn(8, 4, requires_grad=True)
    jitted = thunder.jit(module, executors=["torch"], frontend="functional")
    jitted(x).square().sum().backward()
    saved = {v.name for v in thunder.last_backward_traces(jitted)[-1].params}
    assert not any("running" in name for name in saved)
