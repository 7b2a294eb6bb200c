"""Fusers beside FP8: regions end where an FP8 operation begins, and nothing of what it keeps changes."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from torch import nn

import thunder
import thunder_te
from tests.te.networks import Network, Spec, specs, train
from tests.te.test_position import RECIPE, check_traces
from tests.te.test_training import batch, same, sgd, step
from thunder.plugins.needs import first_unmet
from thunder.testing.fakes.fuser import FUSER
from thunder_te.plugin import TE

FRONT_ENDS = ("functional", "dynamo")


def fused(jitted) -> list[list[str]]:
    """The symbols of the regions of the last compilation, forward and backward."""
    traces = thunder.last_traces(jitted)[-1], thunder.last_backward_traces(jitted)[-1]
    return [[part.sym.name for part in op.fused.ops] for trace in traces for op in trace.ops if op.fused]


@given(specs())
@settings(max_examples=15)
def test_a_fuser_changes_nothing(spec: Spec) -> None:
    """Results, gradients and scales are equal to the bit: the fuser of the tests runs the operators themselves."""
    found = []
    for executors in ([TE], [TE, FUSER]):
        jitted = thunder.jit(Network(spec), executors=executors, frontend="functional")
        with thunder_te.autocast(recipe=RECIPE):
            values = [train(jitted, spec, seed) for seed in range(2)]
        check_traces(jitted)
        found.append((values, jitted.executor_state_dict()))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 16))


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_what_lies_between_fp8_layers_is_fused(frontend):
    jitted, alone = (thunder.jit(network(), executors=[TE, *more], frontend=frontend) for more in ([FUSER], []))
    for seed in range(3):
        assert step(jitted, sgd(jitted), seed) == step(alone, sgd(alone), seed)
    regions = fused(jitted)
    assert any("aten.gelu" in region for region in regions)
    assert any("aten.gelu_backward" in region for region in regions)
    assert not any(symbol.startswith("te.") for region in regions for symbol in region)
    check_traces(jitted)
    with torch.no_grad(), thunder_te.autocast(recipe=RECIPE):
        same(jitted(batch(9)), alone(batch(9)))
    same(jitted.executor_state_dict(), alone.executor_state_dict())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("frontend", "recipe"),
    [("functional", "DelayedScaling"), ("dynamo", "DelayedScaling"), ("functional", "MXFP8BlockScaling")],
)
def test_inductor(frontend, recipe):
    """Losses and scales are those without it, up to what another order of sums may do to a rounding to FP8."""
    plugin = pytest.importorskip("thunder_inductor.plugin")
    if unmet := first_unmet(plugin.INDUCTOR.needs):
        pytest.skip(unmet.why)
    module = nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.LayerNorm(256), nn.Tanh(), nn.Linear(256, 32))
    jitted, alone = (
        thunder.jit(copy.deepcopy(module), executors=[TE, *more], frontend=frontend) for more in ([plugin.INDUCTOR], [])
    )
    optimizers = sgd(jitted), sgd(alone)
    for seed in range(4):
        x = torch.randn(1024, 32, generator=torch.Generator().manual_seed(seed))
        losses = []
        for model, optimizer in zip((jitted, alone), optimizers):
            optimizer.zero_grad()
            with thunder_te.autocast(recipe=getattr(thunder_te, recipe)()):
                loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=2e-3)
    assert fused(jitted)
    assert {op.selection.executor for op in thunder.last_traces(jitted)[-1].ops} >= {"te", "inductor"}
    torch.testing.assert_close(jitted.executor_state_dict(), alone.executor_state_dict(), rtol=1e-2, atol=1e-5)
    if recipe == "DelayedScaling":
        check_traces(jitted)
