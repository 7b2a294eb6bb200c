"""Programs with gradients: memory, pieces, partial gradients, recomputation, double backward."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

import thunder
from tests.models import MODELS
from thunder.testing.fakes.fuser import FUSER


def functional(fn):
    return thunder.jit(fn, frontend="functional")


def saved_bytes(fn, *args):
    """Bytes of the storages that ``fn`` saves for backward, parameters aside (they live anyway)."""
    kept, sizes = [], {}

    def pack(t):
        if not isinstance(t, nn.Parameter):
            kept.append(t)
            storage = t.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        return t

    with saved_tensors_hooks(pack, lambda t: t):
        fn(*args)
    return sum(sizes.values())


@pytest.mark.parametrize("name", MODELS)
def test_no_more_is_saved_than_eager_saves(name):
    model, args = MODELS[name]()
    jitted = functional(model)
    jitted(*args)
    assert saved_bytes(jitted, *args) <= saved_bytes(model, *args)


def test_compiling_calls_no_hooks_of_the_caller():
    seen = []
    x = torch.randn(3, requires_grad=True)
    with saved_tensors_hooks(lambda t: (seen.append(type(t)), t)[1], lambda t: t):
        functional(lambda x: x.sin().exp())(x)
    assert set(seen) <= {torch.Tensor}


@pytest.mark.parametrize("executors", [[], [FUSER]], ids=["torch", "fused"])
def test_hooks_may_lay_out_saved_tensors_as_they_like(executors):
    """What is fused, and views that are taken at once, count on the strides that a tensor was saved with."""

    def program(x, w):
        y = (x @ w).t().exp()
        return (y.t().reshape(3, 8) @ w.view(8, 2)).sin()

    def gradient(fn):
        with saved_tensors_hooks(lambda t: t.detach().clone(memory_format=torch.contiguous_format), lambda t: t):
            out = fn(x, w)
        return torch.autograd.grad(out.sum(), w)[0]

    x, w = torch.randn(4).expand(6, 4), torch.randn(4, 4, requires_grad=True)
    jitted = thunder.jit(program, executors=executors, frontend="functional")
    torch.testing.assert_close(gradient(jitted), gradient(program))


def two_losses(x, w):
    h = x @ w
    return h.sin().sum(), h.cos().sum(), (x * 2).sum()


def test_unrelated_results_backpropagate_separately_and_related_ones_as_in_eager():
    x, w = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    for f in (two_losses, functional(two_losses)):
        first, second, third = f(x, w)
        third.backward()
        first.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            second.backward()


def test_parameters_behind_other_results_get_no_gradient():
    def f(x, w):
        h = x * 3
        return h.sin(), h * w

    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    first, _ = functional(f)(x, w)
    first.sum().backward()
    assert w.grad is None
    torch.testing.assert_close(x.grad, 3 * torch.cos(3 * x.detach()))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_region_saves_what_eager_saves(reentrant):
    block = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 8))

    def f(x):
        for _ in range(3):
            x = x + torch.utils.checkpoint.checkpoint(block, x, use_reentrant=reentrant)
        return x

    x = torch.randn(16, 8, requires_grad=True)
    jitted = functional(f)
    found = []
    for fn in (f, jitted):
        x.grad = None
        block.zero_grad()
        fn(x).square().sum().backward()
        found.append([x.grad, *(p.grad for p in block.parameters())])
    torch.testing.assert_close(*found)
    assert saved_bytes(jitted, x) <= saved_bytes(f, x)


def test_recomputation_runs_just_before_its_use():
    def f(x):
        for _ in range(2):
            x = torch.utils.checkpoint.checkpoint(lambda v: v.sin().exp(), x, use_reentrant=False)
        return x

    jitted = functional(f)
    jitted(torch.randn(3, requires_grad=True))
    names = [op.sym.name for op in thunder.last_backward_traces(jitted)[-1].ops]
    assert names == ["torch.sin", "torch.exp", "aten.mul.Tensor", "aten.cos", "aten.mul.Tensor"] * 2


def test_saved_values_die_as_backward_consumes_them():
    def f(x):
        return F.gelu(F.gelu(x * 2))

    jitted = functional(f)
    x = torch.randn(64, requires_grad=True)
    jitted(x)
    text = str(thunder.last_backward_traces(jitted)[-1])
    assert "box.clear()" in text
    y = jitted(x)
    saved = [weakref.ref(t) for t in y.grad_fn.saved_tensors]
    gc.disable()
    try:
        y.sum().backward()
        alive = [ref() is not None for ref in saved if ref() is not x]
        assert not any(alive)
    finally:
        gc.enable()


@pytest.mark.parametrize("random", [False, True])
def test_double_backward(random):
    def f(x, w):
        h = (x @ w).tanh()
        return (F.dropout(h, 0.5) if random else h).square().sum()

    x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)

    def penalty(fn):
        torch.manual_seed(0)
        (g,) = torch.autograd.grad(fn(x, w), x, create_graph=True)
        return torch.autograd.grad(g.square().sum(), [x, w])

    torch.testing.assert_close(penalty(functional(f)), penalty(f))


def test_a_retained_graph_can_be_used_again():
    x = torch.randn(3, requires_grad=True)
    y = functional(lambda x: x.exp().sin())(x).sum()
    y.backward(retain_graph=True)
    once = x.grad.clone()
    y.backward()
    torch.testing.assert_close(x.grad, 2 * once)


def test_a_saved_input_changed_before_backward_is_the_error_it_is_in_eager():
    x, w = torch.randn(3), torch.randn(3, requires_grad=True)
    for f in (torch.mul, functional(lambda x, w: x * w)):
        y = f(x, w)
        x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_double_backward_through_a_temporary_input():
    x = torch.randn(3, requires_grad=True)

    def penalty(fn):
        (g,) = torch.autograd.grad(fn(x * 2).sum(), x, create_graph=True)
        return torch.autograd.grad(g.square().sum(), x)[0]

    torch.testing.assert_close(penalty(functional(lambda x: x.sin().exp())), penalty(lambda x: x.sin().exp()))


def test_double_backward_of_changed_inputs_is_an_error():
    x = torch.randn(3, requires_grad=True)
    y = functional(lambda x: (x * 2).sin())(x)
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


def test_a_program_that_seeds_the_generator_is_refused():
    before = torch.get_rng_state()
    with pytest.raises(thunder.errors.CaptureError, match="random generator"):
        functional(lambda x: (torch.manual_seed(0), x + torch.rand(3))[1])(torch.zeros(3))
    assert torch.equal(torch.get_rng_state(), before)
