"""The TransformerEngine engine calls the library as it is to be called; results are those of the reference engine."""

from __future__ import annotations

import copy
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import thunder
import thunder_te
from tests.te import fake_library
from tests.te.test_training import same
from thunder_te import library
from thunder_te.claims import engine_for
from thunder_te.plugin import RECIPES, TE


@pytest.fixture
def fake(monkeypatch):
    for name, module in fake_library.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(library, "missing", lambda: "")
    monkeypatch.setattr(library, "refusal", lambda recipe: "")


def trained(module, engine, recipe):
    jitted = thunder.jit(module, executors=[TE, ...], frontend="functional", options={"te.engine": engine})
    optimizer = torch.optim.SGD(jitted.parameters(), lr=0.1)
    losses = []
    for seed in range(3):
        x = torch.randn(2, 32, 32, generator=torch.Generator().manual_seed(seed))
        optimizer.zero_grad()
        with thunder_te.autocast(recipe=recipe):
            loss = jitted(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, list(jitted.parameters()), jitted.executor_state_dict(), jitted


@pytest.mark.parametrize("recipe", RECIPES)
def test_both_engines_give_the_same(fake, recipe):
    module = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32, bias=False))
    make = getattr(thunder_te, recipe)
    *expected, _ = trained(copy.deepcopy(module), "reference", make())
    *actual, jitted = trained(copy.deepcopy(module), "transformer_engine", make())
    same(actual, expected)
    names = {op.sym.name for op in thunder.last_traces(jitted)[-1].ops}
    assert "te.transformer_engine.linear_fwd" in names
    assert not any(name.startswith("te.reference") for name in names)


def test_frozen_parts(fake):
    module = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32))
    module[2].weight.requires_grad_(False)
    *expected, _ = trained(copy.deepcopy(module), "reference", thunder_te.DelayedScaling())
    *actual, _ = trained(copy.deepcopy(module), "transformer_engine", thunder_te.DelayedScaling())
    same(actual, expected)


def test_the_engine_follows_the_device(monkeypatch):
    assert engine_for("cuda:0", {}) == engine_for("cpu", {}) == "reference"
    monkeypatch.setattr(library, "missing", lambda: "")
    assert engine_for("cuda:0", {}) == "transformer_engine"
    assert engine_for("cpu", {}) == "reference"
    assert engine_for("cuda:0", {"engine": "reference"}) == "reference"


def test_the_reason_of_a_device_that_lacks_a_recipe(fake, monkeypatch):
    answers = {"is_fp8_available": (True, ""), "is_mxfp8_available": (False, "Blackwell is needed")}
    manager = SimpleNamespace(**{name: lambda answer=answer: answer for name, answer in answers.items()})
    quantization = SimpleNamespace(FP8GlobalStateManager=manager)
    monkeypatch.setattr(sys.modules["transformer_engine.pytorch"], "quantization", quantization, raising=False)
    assert library._unsupported("is_fp8_available") == ""
    assert library._unsupported("is_mxfp8_available") == "Blackwell is needed"
    assert "does not work here" in library._unsupported("is_no_question")
