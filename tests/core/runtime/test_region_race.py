"""Fused regions race against their operations one by one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import thunder
from thunder.passes import measure
from thunder.passes.measure import Candidate
from thunder.runtime import region_race
from thunder.testing.fakes import fuser

MEASURE = {"select": "measure", "measure_budget": 1e9}


@pytest.fixture(autouse=True)
def _fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("THUNDER_STRICT", "1")
    torch.manual_seed(0)
    fuser.RUNS.clear()


@pytest.fixture
def priced(monkeypatch):
    """Seconds that a fused and an unfused region take, on a clock of ours."""

    def use(fused: float, unfused: float) -> None:
        clock = {"now": 0.0}

        def candidate(run):
            price = fused if "__thunder_trace__" not in vars(run) else unfused

            def priced_run(*tensors):
                clock["now"] += price

            return Candidate(priced_run)

        monkeypatch.setattr(region_race, "Candidate", candidate)
        monkeypatch.setattr(measure, "clock_for", lambda types: lambda: clock["now"])

    return use


def gradients(module, x):
    out = module(x)
    return out, *torch.autograd.grad(out.square().sum(), [x, *module.parameters()])


def network():
    block = nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.LayerNorm(6), nn.Tanh(), nn.Sigmoid())
    return nn.Sequential(block, block), torch.randn(5, 6, requires_grad=True)


@pytest.mark.parametrize(("prices", "fuses"), [((1.0, 2.0), True), ((1.0, 0.99), True), ((2.0, 1.0), False)])
def test_a_region_that_loses_is_not_fused(prices, fuses, priced):
    priced(*prices)
    module, x = network()
    expected = gradients(module, x)
    for origin in ("measured", "kept"):
        jitted = thunder.jit(module, executors=[fuser.FUSER], frontend="functional", options=MEASURE)
        fuser.RUNS.clear()
        torch.testing.assert_close(gradients(jitted, x), expected)
        assert bool(fuser.RUNS) == fuses
        decisions = jitted.forward._thunder_records[-1].decisions
        if fuses or origin == "measured":
            assert {(d.chosen, d.origin) for d in decisions} == {("fakefuser" if fuses else "torch", origin)}
            assert "fakefuser.region(" in str(thunder.explain(jitted)(x))
    symbols = {op.sym.name for op in thunder.last_traces(jitted)[-1].ops}
    assert ("fakefuser.region" in symbols) == fuses


def test_regions_of_a_slow_fuser_lose_on_a_real_clock():
    module, x = network()
    expected = gradients(module, x)
    jitted = thunder.jit(module, executors=[fuser.FUSER], frontend="functional", options=MEASURE)
    torch.testing.assert_close(gradients(jitted, x), expected)
    decisions = jitted.forward._thunder_records[-1].decisions
    assert decisions
    assert {decision.chosen for decision in decisions} == {"torch"}


def test_random_regions_are_not_measured_and_equal_ones_once(priced):
    priced(1.0, 2.0)
    module, x = network()
    drop = nn.Sequential(module, nn.Dropout(0.5), nn.Tanh())
    jitted = thunder.jit(drop, executors=[fuser.FUSER], frontend="functional", options=MEASURE)
    torch.manual_seed(1)
    expected = gradients(drop, x)
    torch.manual_seed(1)
    torch.testing.assert_close(gradients(jitted, x), expected)
    record = jitted.forward._thunder_records[-1]
    signatures = [decision.signature for decision in record.decisions]
    assert len(signatures) == len(set(signatures))
    assert not any("dropout" in signature or "bernoulli" in signature for signature in signatures)
