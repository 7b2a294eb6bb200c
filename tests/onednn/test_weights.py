"""Packed weights: they give the same results, follow the parameter, and are dropped with it."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.onednn.subjects import FRONT_ENDS, jit, operations
from thunder_onednn import weights

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.fixture(autouse=True)
def _nothing_kept():
    weights._SEEN.clear()


def linear(input, weight, bias):
    return weights.linear(input, weight, bias, "none", [], "")


def packed() -> int:
    return sum(seen.packed is not None for seen in weights._SEEN.values())


@pytest.mark.parametrize("frontend", FRONT_ENDS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_generating(frontend, dtype):
    layer = nn.Linear(320, 200).to(dtype)
    compiled = jit(layer, frontend=frontend, pack=True)
    with torch.no_grad():
        for lead in ((1,), (2, 3), (128,), (1,)):
            x = torch.randn(*lead, 320).to(dtype)
            torch.testing.assert_close(compiled(x), layer(x), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    assert operations(compiled) == ["onednn.packed_linear"]
    assert packed() == 1


def test_a_weight_that_changes():
    layer, x = nn.Linear(32, 16), torch.randn(4, 32)
    compiled = jit(layer, pack=True)
    with torch.no_grad():
        for _ in range(4):
            for _ in range(3):
                torch.testing.assert_close(compiled(x), layer(x))
            layer.weight.add_(1.0)
        kept = layer.weight
        layer.weight = nn.Parameter(torch.randn(16, 32))
        for _ in range(3):
            torch.testing.assert_close(compiled(x), layer(x))
        kept.set_(torch.randn(16, 32))
        layer.weight = kept
        for _ in range(3):
            torch.testing.assert_close(compiled(x), layer(x))


def test_copies_go_with_their_weights():
    layer, x = nn.Linear(32, 16), torch.randn(4, 32)
    with torch.no_grad():
        for _ in range(2):
            linear(x, layer.weight, layer.bias)
    assert packed() == 1
    del layer
    gc.collect()
    assert not weights._SEEN


def test_what_is_made_for_one_call_is_not_packed():
    x = torch.randn(4, 32)
    for _ in range(3):
        weight = torch.randn(16, 32)
        torch.testing.assert_close(linear(x, weight, None), F.linear(x, weight))
        assert not packed()


def test_weights_without_a_version():
    with torch.inference_mode():
        weight, x = torch.randn(16, 32), torch.randn(4, 32)
        for _ in range(3):
            torch.testing.assert_close(linear(x, weight, None), F.linear(x, weight))
            weight.add_(1.0)
    assert not packed()


def test_training_does_not_pack():
    layer = nn.Linear(32, 16)
    compiled = jit(layer, pack=True)
    compiled(torch.randn(4, 32)).sum().backward()
    assert operations(compiled) == ["onednn.linear", "onednn.matmul"]
