"""Memory that is written again: whose it is, and that nobody who reads it later is surprised."""

from __future__ import annotations

import copy
from random import Random

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.checkpoint import checkpoint

import thunder
from examples.models import GPT, GPTConfig
from tests.fuzz.check import verdict
from tests.fuzz.generate import generate
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.trace import Stage, Trace
from thunder.ir.types import Var
from thunder.lang.values import tensor_type
from thunder.passes.bodies import Bodies
from thunder.passes.reuse import owned
from thunder.runtime import library
from thunder.runtime.library import LIBRARY
from thunder.testing.fakes.fuser import FUSER

FRONTENDS = ["functional", "dynamo"]


@pytest.fixture(autouse=True)
def fresh(monkeypatch, request):
    """Regions overwrite from their first run on, but for the test of how they are tried."""
    LIBRARY.clear()
    torch.manual_seed(0)
    if "when_it_first_runs" not in request.node.name:
        monkeypatch.setattr(library, "copied", lambda args, places: args)


def fused(fn, frontend="functional"):
    """The fuser overwrites whatever it may."""
    return thunder.jit(fn, executors=[FUSER], frontend=frontend)


def network() -> nn.Module:
    """Its saved values, and what its backward makes, are of few sizes."""
    return nn.Sequential(
        *(layer for _ in range(3) for layer in (nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Tanh()))
    )


def gradients(module, x, program, **options):
    out = program(x)
    return out.detach().clone(), *torch.autograd.grad(out.square().sum(), [x, *module.parameters()], **options)


def backward(jitted) -> Trace:
    return thunder.last_backward_traces(jitted)[-1]


def overwritten(trace: Trace) -> list:
    """The arguments that regions and matrix products overwrite."""
    found = [arg for op in trace.ops if op.fused for p, arg in zip(op.fused.params, op.args) if p in op.fused.spent]
    return found + [op.kwargs["out"] for op in trace.ops if "out" in op.kwargs]


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_a_step_overwrites_what_it_saved_and_what_it_made(frontend):
    module, x = network(), torch.randn(5, 8, requires_grad=True)
    jitted = fused(module, frontend)
    for _ in range(3):
        torch.testing.assert_close(gradients(module, x, jitted), gradients(module, x, module))
    trace = backward(jitted)
    assert set(trace.spent) <= set(overwritten(trace)) & set(trace.params)
    assert len(trace.spent) >= 5
    assert any("out" in op.kwargs for op in trace.ops)
    assert "may be overwritten" in str(trace)


def test_parameters_inputs_and_results_are_never_overwritten():
    module, x = network(), torch.randn(5, 8, requires_grad=True)
    jitted = fused(module)
    before = copy.deepcopy(module.state_dict()), x.detach().clone()
    out = jitted(x)
    kept = out.detach().clone()
    out.square().sum().backward()
    torch.testing.assert_close((module.state_dict(), x.detach()), before, rtol=0, atol=0)
    torch.testing.assert_close(out.detach(), kept, rtol=0, atol=0)
    named = {v.name for t in (thunder.last_traces(jitted)[-1], backward(jitted)) for v in overwritten(t)}
    assert not named & {"x", *(name.replace(".", "_") for name, _ in module.named_parameters())}


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_a_result_that_is_saved_is_the_callers(frontend):
    def f(x):
        y = torch.tanh(x) * 2
        return y, torch.sigmoid(y)

    x = torch.randn(6, requires_grad=True)
    y, z = fused(f, frontend)(x)
    kept = y.detach().clone(), z.detach().clone()
    (y.sum() + z.sum()).backward()
    torch.testing.assert_close((y.detach(), z.detach()), kept, rtol=0, atol=0)


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_a_graph_that_is_retained_can_be_used_again(frontend):
    module, x = network(), torch.randn(5, 8, requires_grad=True)
    inputs = [x, *module.parameters()]
    expected = torch.autograd.grad(module(x).square().sum(), inputs)
    loss = fused(module, frontend)(x).square().sum()
    for retained in (True, True, False):
        torch.testing.assert_close(torch.autograd.grad(loss, inputs, retain_graph=retained), expected)


def test_the_backward_of_a_backward():
    module, x = network(), torch.randn(5, 8, requires_grad=True)

    def penalty(program):
        (g,) = torch.autograd.grad(program(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(g.square().sum(), [x, *module.parameters()], allow_unused=True)

    torch.testing.assert_close(penalty(fused(module)), penalty(module))


def test_two_pieces_share_what_they_saved():
    def f(x, w):
        with torch.no_grad():
            h = torch.tanh(x @ w)
        return (h * x).exp(), (h * w).exp()

    def apart(program):
        first, second = program(x, w)
        return torch.autograd.grad(first.sum(), x), torch.autograd.grad(second.sum(), w)

    x, w = (torch.randn(8, 8, requires_grad=True) for _ in range(2))
    torch.testing.assert_close(apart(fused(f)), apart(f))


def test_tensors_that_a_hook_keeps_are_copied():
    module, x = network(), torch.randn(5, 8, requires_grad=True)
    kept, copies = [], []

    def pack(t):
        kept.append(t)
        copies.append(t.detach().clone())
        return t

    jitted = fused(module)
    expected = gradients(module, x, module)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = jitted(x)
    found = out.detach().clone(), *torch.autograd.grad(out.square().sum(), [x, *module.parameters()])
    torch.testing.assert_close(found, expected)
    assert backward(jitted).spent
    torch.testing.assert_close([t.detach() for t in kept], copies, rtol=0, atol=0)


def test_a_checkpointed_call():
    module, x = network(), torch.randn(5, 8, requires_grad=True)
    jitted = fused(module)
    expected = gradients(module, x, module)
    found = gradients(module, x, lambda x: checkpoint(jitted, x, use_reentrant=False))
    torch.testing.assert_close(found, expected)


def test_what_a_called_function_may_keep_is_not_overwritten():
    seen = []

    class Keep(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if not isinstance(x, FakeTensor):
                seen.append(x)
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return g

    def f(x):
        return Keep.apply(torch.tanh(x).exp()).sin().cos()

    x = torch.randn(6)
    torch.testing.assert_close(fused(f)(x), f(x))
    torch.testing.assert_close(seen[0].detach(), torch.tanh(x).exp())


def test_inference():
    module, x = network(), torch.randn(5, 8)
    jitted = fused(module)
    with torch.no_grad():
        expected = module(x)
        for _ in range(2):
            torch.testing.assert_close(jitted(x), expected)
    trace = thunder.last_traces(jitted)[-1]
    assert overwritten(trace)
    assert not set(overwritten(trace)) & {*trace.params, *trace.results}


def test_a_transformer():
    module = GPT(GPTConfig(vocab=20, context=8, layers=2, heads=2, width=16))
    tokens = torch.randint(0, 20, (2, 8))
    reference = copy.deepcopy(module)
    for program in (fused(module), reference):
        program(tokens, tokens).backward()
    torch.testing.assert_close([p.grad for p in module.parameters()], [p.grad for p in reference.parameters()])


def test_a_region_that_fails_when_it_first_runs_has_overwritten_nothing():
    module, x = network(), torch.randn(5, 8, requires_grad=True)
    expected = gradients(module, x, module)
    jitted = thunder.jit(module, executors=[FUSER], frontend="functional", options={"fakefuser.fails": "end"})
    with pytest.warns(RuntimeWarning, match="failed to run a region"):
        torch.testing.assert_close(gradients(module, x, jitted), expected)


@pytest.mark.slow
def test_random_programs():
    verdicts = [verdict(generate(Random(seed)), executors=[FUSER]) for seed in range(5000, 5150)]
    assert [reason for outcome, reason in verdicts if outcome == "wrong"] == []


def test_views_share_the_life_of_what_they_view():
    def f(x, w):
        h = (x @ w).tanh()
        a, b = h[:, :4], h[:, 4:]
        y = F.pad((a * b).exp(), (2, 2))
        return (y @ w).sin() + h.t().contiguous().cos()

    x, w = (torch.randn(8, 8, requires_grad=True) for _ in range(2))
    torch.testing.assert_close(fused(f)(x, w), f(x, w))
    found = torch.autograd.grad(fused(f)(x, w).sum(), (x, w))
    torch.testing.assert_close(found, torch.autograd.grad(f(x, w).sum(), (x, w)))


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_a_result_in_the_memory_of_another_value_is_the_callers_to_write(frontend):
    """For autograd it is no view, of whatever lay there."""

    def f(x, w):
        return (x @ w + x @ w.t()) * 2

    x, w = (torch.randn(8, 8, requires_grad=True) for _ in range(2))
    jitted = fused(f, frontend)
    assert jitted(x, w).add_(1).grad_fn is not None
    assert overwritten(thunder.last_traces(jitted)[-1])
    torch.testing.assert_close(jitted(x, w).mul_(3), f(x, w) * 3)


@pytest.mark.parametrize("fn", [
    lambda x, w: (x.exp().sin() @ w).tanh().repeat(16, 1)[:64] @ w,
    lambda x, w: sum((x.exp().sin() @ w).tanh().repeat(16, 1).split(64)) @ w.exp(),
    lambda x, w: ((x.view(4, 16, 64) @ w).tanh() @ w).view(64, 64).sigmoid() @ w,
    lambda x, w: ((x.repeat(16, 1) @ w)[:64] + x @ w.t()) * 2,
])  # fmt: skip
def test_what_leaves_a_program_is_no_new_view_and_keeps_no_more_memory_alive_than_its_own(fn):
    x, w = (torch.randn(64, 64, requires_grad=True) for _ in range(2))

    def results(program):
        out = program(x, w)
        return out, *torch.autograd.grad(out.sum(), (x, w))

    for found, expected in zip(results(fused(fn)), results(fn)):
        torch.testing.assert_close(found, expected)
        assert found._is_view() <= expected._is_view()
        assert found.untyped_storage().nbytes() == found.numel() * found.element_size()


def test_results_of_a_call_may_share_the_memory_that_it_makes():
    """One of them is dead before the other."""
    x, y, a, b = (Var(name, tensor_type(torch.empty(4))) for name in "xyab")
    parts = [
        BoundSymbol(Symbol("aten.exp"), (x,), outs=y),
        BoundSymbol(Symbol("aten.view"), (y, (4,)), outs=a),
        BoundSymbol(Symbol("aten.alias"), (a,), outs=b),
    ]

    class Two(Bodies):
        def prims(self, op, names):
            return parts

    call = BoundSymbol(Symbol("torch.two"), (x,), outs=(a, b))
    assert owned(Trace("f", (x,), (call,), (a,), Stage.SCHEDULED), Two()) == {a}
    assert owned(Trace("f", (x,), (call,), (a, b), Stage.SCHEDULED), Two()) == set()


@pytest.mark.parametrize("fn", [
    lambda z, u: ((z @ u).conj() @ u).imag.exp() + (z @ u).mH.real,
    lambda z, u: torch.view_as_real((z.exp() * 1j).conj() @ u).sum(-1).sin(),
])  # fmt: skip
def test_conjugates(fn):
    z, u = (torch.randn(4, 4, dtype=torch.complex64, requires_grad=True) for _ in range(2))
    found, expected = fused(fn)(z, u), fn(z, u)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(out.sum(), (z, u)) for out in (found, expected)))
