"""Whole programs, forward and backward, fused by the core and evaluated by the stand-in, against eager PyTorch."""

from __future__ import annotations

import copy

import pytest
import torch

import thunder
from tests import models
from tests.nvfuser.programs import NVFUSER_HERE, PROGRAMS, gated, regions

pytestmark = pytest.mark.usefixtures("on_stand_in")

TOLERANCE = {torch.float32: {"rtol": 1e-4, "atol": 1e-5}, torch.bfloat16: {"rtol": 5e-2, "atol": 5e-2}}


def step(fn, x, w):
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    out = fn(x, w)
    return [out, *torch.autograd.grad(out, (x, w), torch.ones_like(out))]


@pytest.mark.parametrize(
    ("frontend", "dtype"), [("functional", torch.float32), ("functional", torch.bfloat16), ("dynamo", torch.float32)]
)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda fn: fn.__name__)
def test_results_and_gradients_equal_eager(program, dtype, frontend):
    x, w = torch.randn(6, 8, dtype=dtype), torch.randn(8, dtype=dtype)
    jitted = thunder.jit(program, executors=[NVFUSER_HERE], frontend=frontend)
    for found, want in zip(step(jitted, x, w), step(program, x, w), strict=True):
        torch.testing.assert_close(found, want, **TOLERANCE[dtype])
    assert regions(jitted)


@pytest.mark.parametrize("name", ["gpt", "llama", "convnet"])
def test_training_steps_of_models_equal_eager(name):
    module, args = getattr(models, name)()
    plain, fused = copy.deepcopy(module), thunder.jit(module, executors=[NVFUSER_HERE], frontend="functional")
    results = []
    for model in (plain, fused):
        torch.manual_seed(0)
        out = model(*args)
        out = out if isinstance(out, torch.Tensor) else out[0]
        out.float().square().mean().backward()
        results.append([out, *(p.grad for p in model.parameters())])
    for found, want in zip(*results, strict=True):
        torch.testing.assert_close(found, want, rtol=1e-3, atol=1e-5)
    assert regions(fused)


def test_a_weight_and_an_activation_are_saved():
    """Of ``rms_norm(x) * gelu(x) * sigmoid(x)``, beside one number for each row: the rest is computed again."""
    x, w = torch.randn(64, 32, requires_grad=True), torch.randn(32, requires_grad=True)
    jitted = thunder.jit(gated, executors=[NVFUSER_HERE], frontend="functional")
    jitted(x, w).sum().backward()
    _, _, saved = thunder.last_traces(jitted)[-1].result
    assert {"x", "w"} <= {v.name for v in saved}
    assert sum(v.type.numel for v in saved if v.name not in ("x", "w")) <= x.shape[0]
    assert len(regions(jitted)) == 2
