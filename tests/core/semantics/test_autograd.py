"""What autograd does around a compiled program, against eager."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import thunder

FRONTENDS = ["functional", "dynamo"]
exactly = {"rtol": 0, "atol": 0}


def data(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def jitted(program, frontend="functional"):
    return [program, thunder.jit(program, frontend=frontend)]


def branches(x, y):
    return (x * y).sum(), (x.exp()).sum(), y.detach() * 2


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_results_are_differentiated_separately(frontend, order):
    found = []
    for f in jitted(branches, frontend):
        x, y = data(3).requires_grad_(), data(3, seed=1).requires_grad_()
        outs = f(x, y)
        for i in order:
            outs[i].backward()
        assert not outs[2].requires_grad
        found.append((x.grad, y.grad))
    assert_close(found[1], found[0], **exactly)


@given(st.lists(st.booleans(), min_size=3, max_size=3), st.lists(st.booleans(), min_size=2, max_size=2))
def test_gradients_of_some_results_for_some_inputs(outs_wanted, needs):
    def program(x, y):
        z = x.sin() * y
        return z, z.sum(0) + x, y.cos()

    found = []
    for f in jitted(program):
        inputs = [data(2, 3, seed=i).requires_grad_(need) for i, need in enumerate(needs)]
        outs = [out for out, want in zip(f(*inputs), outs_wanted) if want and out.requires_grad]
        leaves = [t for t in inputs if t.requires_grad]
        ones = [torch.ones_like(out) for out in outs]
        found.append(torch.autograd.grad(outs, leaves, ones, allow_unused=True) if outs and leaves else ())
    assert [g is None for g in found[1]] == [g is None for g in found[0]]
    assert_close([g for g in found[1] if g is not None], [g for g in found[0] if g is not None], **exactly)


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_the_graph_is_freed_unless_retained(frontend):
    for f in jitted(lambda x: x.exp().sin(), frontend):
        x = data(3).requires_grad_()
        out = f(x).sum()
        out.backward(retain_graph=True)
        out.backward()
        assert_close(x.grad, 2 * (x.exp().cos() * x.exp()), rtol=1e-12, atol=1e-12)
        with pytest.raises(RuntimeError, match="second time"):
            out.backward()


def test_gradients_accumulate():
    for f in jitted(lambda x: (x * x).sum()):
        x = data(3).requires_grad_()
        f(x).backward()
        f(x).backward()
        assert_close(x.grad, 4 * x)


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_gradient_penalty(frontend):
    def program(x, w):
        return torch.tanh(x @ w).pow(2).sum()

    found = []
    for f in jitted(program, frontend):
        x, w = data(4, 3).requires_grad_(), data(3, 2, seed=1).requires_grad_()
        out = f(x, w)
        (g,) = torch.autograd.grad(out, x, create_graph=True)
        (out + g.square().sum()).backward()
        found.append((x.grad, w.grad))
    assert_close(found[1], found[0], rtol=1e-12, atol=1e-12)


def test_hessian_vector_product():
    def program(x):
        return (x.sin() * x.pow(3)).sum()

    found = []
    for f in jitted(program):
        x, v = data(5).requires_grad_(), data(5, seed=1)
        (g,) = torch.autograd.grad(f(x), x, create_graph=True)
        found.append(torch.autograd.grad(g, x, v)[0])
    assert_close(found[1], found[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("program", [lambda x: x.exp(), lambda x: x * x, lambda x: x.sigmoid() * x])
@pytest.mark.parametrize("write", ["input", "result", "nothing"])
def test_a_saved_tensor_changed_before_backward_is_noticed_as_in_eager(program, write):
    outcomes = []
    for f in jitted(program):
        leaf = data(3).requires_grad_()
        x = leaf * 1
        out = f(x)
        root = out * 1
        with torch.no_grad():
            {"input": x, "result": out, "nothing": torch.zeros(1)}[write].add_(1)
        try:
            root.sum().backward()
            outcomes.append(leaf.grad)
        except RuntimeError as error:
            outcomes.append("modified by an inplace operation" in str(error))
    assert_close(outcomes[1], outcomes[0]) if torch.is_tensor(outcomes[0]) else None
    assert isinstance(outcomes[1], torch.Tensor) or outcomes[1] is True
    assert isinstance(outcomes[0], torch.Tensor) == isinstance(outcomes[1], torch.Tensor)


MODES = {
    "enabled": torch.enable_grad,
    "disabled": torch.no_grad,
    "inference": torch.inference_mode,
    "set off": lambda: torch.set_grad_enabled(False),
    "set on": lambda: torch.set_grad_enabled(True),
    "untouched": contextlib.nullcontext,
}


@settings(max_examples=40)
@given(st.sampled_from(sorted(MODES)), st.sampled_from(sorted(set(MODES) - {"inference"})), st.booleans())
def test_grad_modes_inside_and_outside(outer, inner, leaf):
    def program(x, w):
        a = x * w
        with MODES[inner]():
            b = a.exp() + w
            c = b * x
        return a, b, c, a * c

    found = []
    for f in jitted(program):
        x, w = data(3).requires_grad_(), data(3, seed=1).requires_grad_(leaf)
        with MODES[outer]():
            outs = f(x, w)
        facts = [(t.requires_grad, t.is_inference()) for t in outs]
        ends = [t for t in outs if t.requires_grad]
        gradients = torch.autograd.grad(ends, x, [torch.ones_like(t) for t in ends], allow_unused=True) if ends else ()
        found.append((facts, [t.detach().clone() for t in outs], gradients))
    assert found[1][0] == found[0][0]
    assert_close(found[1][1:], found[0][1:], **exactly)


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_results_without_gradient_of_inputs_with_one(frontend):
    def program(x):
        with torch.no_grad():
            y = x * 2
        return y, x > 0, x.argmax()

    for f in jitted(program, frontend):
        assert [t.requires_grad for t in f(data(3).requires_grad_())] == [False, False, False]


def test_a_derivative_that_pytorch_lacks_fails_in_backward_only():
    for f in jitted(lambda x: (x // 2) * 1):
        x = (data(3) * 4).requires_grad_()
        out = f(x)
        assert_close(out, x.detach() // 2)
        with pytest.raises(RuntimeError, match="floor_divide"):
            out.sum().backward()


@pytest.mark.parametrize("frontend", ["functional", "dynamo"])
def test_a_gradient_penalty_through_statistics_that_the_program_writes(frontend):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh())
    twin, x = copy.deepcopy(module), torch.randn(5, 4)

    def penalise(module, program):
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(program(leaf).square().sum(), leaf, create_graph=True)
        gradient.square().sum().backward()
        return [*(p.grad for p in module.parameters()), *module.buffers()]

    torch.testing.assert_close(penalise(module, thunder.jit(module, frontend=frontend)), penalise(twin, twin))
