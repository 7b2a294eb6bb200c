"""A layer trains as one written in Python floats, and FP8 composes with what training loops do."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import thunder
import thunder_te
from tests.te import fp8
from thunder_te.plugin import TE

FRONT_ENDS = ("functional", "dynamo")
RECIPE = thunder_te.DelayedScaling(amax_history_len=3)


def jit(module, frontend="functional"):
    return thunder.jit(module, executors=[TE, ...], frontend=frontend)


def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))


def batch(seed, rows=8):
    return torch.randn(rows, 16, generator=torch.Generator().manual_seed(seed))


def step(jitted, optimizer, seed, recipe=RECIPE):
    optimizer.zero_grad()
    with thunder_te.autocast(recipe=recipe):
        loss = jitted(batch(seed)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def sgd(module):
    return torch.optim.SGD(module.parameters(), lr=0.1)


def states(jitted, kind="te.forward"):
    return thunder.executor_state(jitted).get(kind, {})


def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("frontend", FRONT_ENDS)
@pytest.mark.parametrize("margin", [0, 1])
def test_a_layer_trains_as_in_python(frontend, margin):
    recipe = thunder_te.DelayedScaling(amax_history_len=3, margin=margin)
    expected = fp8.Layer(16, 32, steps=3, margin=margin)
    module = nn.Linear(16, 32)
    module.load_state_dict(expected.state_dict())
    jitted = jit(module, frontend)
    optimizers = sgd(expected), sgd(module)
    for seed in range(5):
        x = batch(seed) * 2.0**seed
        wanted, actual = x.clone().requires_grad_(), x.clone().requires_grad_()
        expected.zero_grad(), module.zero_grad()
        (expected(wanted) * 0.01).sum().backward()
        with thunder_te.autocast(recipe=recipe):
            (jitted(actual) * 0.01).sum().backward()
        torch.testing.assert_close(actual.grad, wanted.grad, rtol=2**-7, atol=1e-6)
        for p, q in zip(module.parameters(), expected.parameters()):
            torch.testing.assert_close(p.grad, q.grad, rtol=2**-7, atol=1e-5)
            p.grad.copy_(q.grad)  # the same weights for both: scales can then be equal to the bit
        (state,), (of_grad,) = states(jitted).values(), states(jitted, "te.backward").values()
        assert state.scale.tolist() == [expected.of_input.scale, expected.of_weight.scale]
        assert state.history.t().tolist() == [expected.of_input.values, expected.of_weight.values]
        assert of_grad.scale.tolist() == [expected.of_grad.scale]
        assert of_grad.history[:, 0].tolist() == expected.of_grad.values
        for optimizer in optimizers:
            optimizer.step()


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_frozen_weights_and_inputs_cost_no_gradient(frontend):
    jitted = jit(mlp(), frontend)
    jitted[0].weight.requires_grad_(False)
    with thunder_te.autocast(recipe=RECIPE):
        jitted(batch(0)).sum().backward()
    backward = thunder.last_backward_traces(jitted)[-1]
    calls = [op for op in backward.ops if op.sym.name == "te.reference.linear_bwd"]
    assert [tuple(out is not None for out in op.outs) for op in calls] == [(True, True, True)]
    assert list(states(jitted)) == ["_0_weight", "_2_weight"]
    assert list(states(jitted, "te.backward")) == ["_2_weight"]
    jitted.requires_grad_(False)
    x = batch(0).requires_grad_()
    with thunder_te.autocast(recipe=RECIPE):
        jitted(x).sum().backward()
    backward = thunder.last_backward_traces(jitted)[-1]
    calls = [op for op in backward.ops if op.sym.name == "te.reference.linear_bwd"]
    assert [tuple(out is not None for out in op.outs) for op in calls] == [(True, False, True)] * 2
    assert x.grad is not None


def test_only_a_bias_that_trains_needs_no_fp8_backward():
    jitted = jit(nn.Linear(16, 16).requires_grad_(False))
    jitted.bias.requires_grad_(True)
    with thunder_te.autocast(recipe=RECIPE):
        jitted(batch(0)).sum().backward()
    same(jitted.bias.grad, torch.full((16,), 8.0))
    assert states(jitted, "te.backward") == {}
    assert [op.sym.name for op in thunder.last_backward_traces(jitted)[-1].ops] == ["torch.sum"]


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_weights_are_quantised_once_per_optimizer_step(frontend, monkeypatch):
    from thunder_te.reference import engine

    quantised = []
    monkeypatch.setattr(engine, "weight_parts", lambda *args, f=engine.weight_parts: quantised.append(1) or f(*args))
    jitted = jit(mlp(), frontend)
    step(jitted, sgd(jitted), 0)  # compiles
    for make in (
        sgd,
        lambda m: torch.optim.AdamW(m.parameters()),
        lambda m: torch.optim.Adam(m.parameters(), fused=True),
    ):
        optimizer = make(jitted)
        quantised.clear()
        for micro in range(3):
            with thunder_te.autocast(recipe=RECIPE):
                jitted(batch(micro)).sum().backward()
        with torch.no_grad(), thunder_te.autocast(recipe=RECIPE):
            jitted(batch(9))
        assert sum(quantised) in (2, 0)
        optimizer.step()
    assert all((state.history != 0).any() for state in states(jitted).values())


def test_gradients_accumulate():
    module = mlp()
    jitted, alone = jit(module), jit(copy.deepcopy(module))
    separate = []
    with thunder_te.autocast(recipe=RECIPE):
        for seed in range(3):
            jitted(batch(seed)).square().mean().backward()
            alone.zero_grad()
            alone(batch(seed)).square().mean().backward()
            separate.append([p.grad.clone() for p in alone.parameters()])
    for p, *parts in zip(jitted.parameters(), *separate):
        torch.testing.assert_close(p.grad, sum(parts))
    same(jitted.executor_state_dict(), alone.executor_state_dict())


@pytest.mark.parametrize("frontend", FRONT_ENDS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_evaluation_does_not_disturb_training(frontend, mode):
    module = mlp()
    jitted, alone = jit(module, frontend), jit(copy.deepcopy(module), frontend)
    optimizers = sgd(jitted), sgd(alone)
    for seed in range(4):
        with mode(), thunder_te.autocast(recipe=RECIPE):
            out = jitted(batch(seed + 10) * 100)
            assert not out.requires_grad
        assert step(jitted, optimizers[0], seed) == step(alone, optimizers[1], seed)
        same(jitted.executor_state_dict(), alone.executor_state_dict())
    same(list(jitted.parameters()), list(alone.parameters()))


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_inference_calibrates_a_layer_that_was_never_trained(frontend):
    module = mlp()
    jitted = jit(module, frontend)
    exact, errors = module(batch(0)).detach(), []
    for _ in range(2):
        with torch.no_grad(), thunder_te.autocast(recipe=RECIPE):
            errors.append(((jitted(batch(0)) - exact).norm() / exact.norm()).item())
    assert errors[1] < 0.06
    forward = thunder.last_traces(jitted)[-1]
    assert forward.ops[-1].sym.name == "te.sync_fp8_meta_fwd"
    assert states(jitted, "te.backward") == {}


def test_several_backward_calls():
    jitted = jit(nn.Linear(16, 16))
    with thunder_te.autocast(recipe=RECIPE):
        out = jitted(batch(0))
    (state,) = states(jitted).values()
    before = state.scale.clone()
    gradients = [torch.autograd.grad(out.sum() / 2**n, jitted.weight, retain_graph=True)[0] for n in range(2)]
    assert torch.equal(before, state.scale)
    (of_grad,) = states(jitted, "te.backward").values()
    assert of_grad.history[:, 0].tolist() == [0, 1, 0.5]
    torch.testing.assert_close(gradients[0], 2 * gradients[1], rtol=2**-7, atol=0)


def test_backward_uses_the_scales_of_its_forward():
    """Also if another forward, or a change of the recipe, comes between them."""
    module = nn.Linear(16, 16)
    gradients = []
    for between in (False, True):
        jitted = jit(copy.deepcopy(module))
        with thunder_te.autocast(recipe=RECIPE):
            out = jitted(batch(0))
            if between:
                jitted(batch(1) * 50)
        with thunder_te.autocast(recipe=thunder_te.MXFP8BlockScaling()):
            out.square().sum().backward()
        gradients.append(jitted.weight.grad)
    same(*gradients)


def test_two_models_in_one_context():
    modules = mlp(), mlp()
    together, apart = [jit(copy.deepcopy(m)) for m in modules], [jit(copy.deepcopy(m)) for m in modules]
    optimizers = [sgd(m) for m in together]
    for seed in range(3):
        with thunder_te.autocast(recipe=RECIPE):
            loss = sum(m(batch(seed)).square().mean() for m in together)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    for jitted, alone in zip(together, apart):
        optimizer = sgd(alone)
        for seed in range(3):
            step(alone, optimizer, seed)
        same(list(jitted.parameters()), list(alone.parameters()))
        same(jitted.executor_state_dict(), alone.executor_state_dict())


@pytest.mark.parametrize("frontend", FRONT_ENDS)
@pytest.mark.parametrize("recipe", ["DelayedScaling", "Float8CurrentScaling", "MXFP8BlockScaling"])
@pytest.mark.parametrize("cast", ["parameters", "autocast"])
def test_bfloat16(frontend, recipe, cast):
    module = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
    x = torch.randn(32, 32)
    if cast == "parameters":
        module, x = module.bfloat16(), x.bfloat16()
    jitted = jit(module, frontend)
    context = torch.autocast("cpu", torch.bfloat16, enabled=cast == "autocast")
    for _ in range(2):
        module.zero_grad()
        with thunder_te.autocast(recipe=getattr(thunder_te, recipe)()), context:
            out = jitted(x)
        out.float().square().mean().backward()
    assert out.dtype is torch.bfloat16
    assert any(op.sym.name == "te.reference.linear_fwd" for op in thunder.last_traces(jitted)[-1].ops)
    actual = [p.grad.float() for p in module.parameters()]
    module.zero_grad()
    with context:
        module(x).float().square().mean().backward()
    for p, grad in zip(module.parameters(), actual):
        assert (grad - p.grad.float()).norm() / p.grad.float().norm() < 0.15


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_linears_inside_attention(frontend):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x, need_weights=False)[0]

    module = Attention()
    jitted, x = jit(module, frontend), torch.randn(2, 8, 32)
    with thunder_te.autocast(recipe=RECIPE):
        jitted(x).sum().backward()
    exact = module(x)
    sites = list(states(jitted))
    assert sites
    assert {site.rpartition("_weight")[0].removeprefix("attention_") for site in sites} == {"in_proj", "out_proj"}
    with thunder_te.autocast(recipe=RECIPE):
        assert (jitted(x) - exact).norm() / exact.norm() < 0.1


def test_another_recipe_in_the_same_model():
    """Scales of delayed scaling stay while other recipes run, and histories take on another length."""
    jitted = jit(mlp())
    optimizer = sgd(jitted)
    step(jitted, optimizer, 0)
    before = jitted.executor_state_dict()
    for recipe in (thunder_te.Float8CurrentScaling(),):
        step(jitted, optimizer, 1, recipe)
    same(jitted.executor_state_dict(), before)
    step(jitted, optimizer, 2, thunder_te.DelayedScaling(amax_history_len=6))
    for state in states(jitted).values():
        assert state.history.shape == (6, 2)
        assert (state.history != 0).sum(0).tolist() == [2, 2]
