"""Beside other executors: with states, and with fusers before and after."""

from __future__ import annotations

import copy
from itertools import permutations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import thunder
from tests.onednn.subjects import FRONT_ENDS, operations
from tests.onednn.test_training import gpt, gradients, near
from thunder.testing.fakes import FAKE
from thunder.testing.fakes.fuser import FUSER
from thunder_onednn.plugin import ONEDNN

ALWAYS = {"onednn.when": "always"}


def regions(jitted):
    return [op for op in thunder.last_traces(jitted)[-1].ops if op.fused is not None]


ORDERS = [*permutations([ONEDNN, FAKE, FUSER])]


@pytest.mark.parametrize("executors", ORDERS, ids=lambda order: " ".join(executor.name for executor in order))
def test_a_gpt(executors):
    """In every order: linear layers by whoever comes first, attention by oneDNN, the rest in regions."""
    model, batch = gpt()
    compiled = thunder.jit(copy.deepcopy(model), executors=list(executors), frontend="functional", options=ALWAYS)
    near(gradients(compiled, compiled, *batch), gradients(model, model, *batch))
    ran, names = operations(compiled), [executor.name for executor in executors]
    assert ("onednn.linear" in ran) == (names.index("onednn") < names.index("fake"))
    assert "onednn.attention" in ran
    assert regions(compiled)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*batch), model(*batch))


@pytest.mark.parametrize(("executors", "fused"), [((ONEDNN, FUSER), True), ((FUSER, ONEDNN), False)])
def test_an_activation_is_the_fusers_only_if_that_comes_first(executors, fused):
    layers, x = nn.Sequential(nn.Linear(16, 8), nn.GELU()), torch.randn(4, 16)
    compiled = thunder.jit(layers, executors=list(executors), frontend="functional", options=ALWAYS)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layers(x))
    assert (len(thunder.last_traces(compiled)[-1].ops) == 1) == fused


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_measured_beside_a_fuser(frontend, tmp_path, monkeypatch):
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))
    model, batch = gpt()
    compiled = thunder.jit(
        copy.deepcopy(model), executors=[ONEDNN, FUSER], frontend=frontend, options={"select": "measure"}
    )
    near(gradients(compiled, compiled, *batch), gradients(model, model, *batch))
    with torch.no_grad():
        torch.testing.assert_close(compiled(*batch), model(*batch))
    decisions = [decision for record in compiled._thunder_records for decision in record.decisions]
    assert {"measured"} == {decision.origin for decision in decisions if decision.costs}
    assert F.linear.__name__ in " ".join(decision.what for decision in decisions)
