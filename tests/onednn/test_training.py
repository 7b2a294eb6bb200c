"""Whole models: training through oneDNN, by itself and with what else changes how a program runs."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import thunder
from examples.models import GPT, GPTConfig
from tests.onednn.subjects import FRONT_ENDS, distance, jit, operations
from thunder_onednn.plugin import ONEDNN


def gpt():
    torch.manual_seed(0)
    config = GPTConfig(vocab=61, context=24, layers=2, heads=2, width=32)
    return GPT(config), (torch.randint(0, 61, (3, 24)), torch.randint(0, 61, (3, 24)))


def gradients(model, program, *args):
    model.zero_grad()
    loss = program(*args)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


def near(found, expected, tolerance=1e-5):
    for ours, theirs in zip(found, expected, strict=True):
        assert distance(ours, theirs.double(), theirs) < tolerance


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_a_gpt(frontend):
    model, batch = gpt()
    compiled = jit(model, frontend=frontend)
    near(gradients(model, compiled, *batch), gradients(model, model, *batch))
    ran = operations(compiled)
    assert ran.count("onednn.attention") == ran.count("onednn.attention_backward") == 2
    assert ran.count("onednn.matmul") == 2 * 4 + 1
    assert ran.count("onednn.linear") == 2 * (2 * 4 + 1)


def test_as_a_backend_of_torch_compile():
    model, batch = gpt()
    compiled = torch.compile(model, backend="thunder", options={"executors": [ONEDNN]})
    near(gradients(model, compiled, *batch), gradients(model, model, *batch))


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_autocast(frontend):
    """Linear layers and attention run in bfloat16; what has no bias PyTorch multiplies."""
    model, batch = gpt()
    compiled = jit(model, frontend=frontend)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = gradients(model, compiled, *batch), gradients(model, model, *batch)
    near(found, expected, tolerance=0.05)
    layer = ["onednn.attention", *["onednn.linear"] * 4, "onednn.attention_backward", *["onednn.linear"] * 4]
    assert sorted(operations(compiled)) == sorted(layer * 2)


class Checkpointed(nn.Module):
    """Two layers around attention, recomputed in backward."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 48), nn.Linear(16, 16)

    def block(self, x):
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.up(x).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.down(attended.transpose(1, 2).flatten(2))

    def forward(self, x):
        return (
            checkpoint(self.block, checkpoint(self.block, x, use_reentrant=False), use_reentrant=False).square().mean()
        )


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_checkpointing(frontend):
    model, x = Checkpointed(), torch.randn(2, 9, 16)
    compiled = jit(model, frontend=frontend)
    near(gradients(model, compiled, x), gradients(model, model, x))
    assert operations(compiled).count("onednn.attention") == 4  # in forward, and again in backward


def test_double_backward():
    x, w = torch.randn(4, 16, requires_grad=True), torch.randn(8, 16, requires_grad=True)

    def second(program):
        (g,) = torch.autograd.grad(program(x, w).tanh().sum(), x, create_graph=True)
        return torch.autograd.grad(g.square().sum(), (x, w))

    near(second(jit(F.linear)), second(F.linear))


def test_function_transforms():
    """Under ``vmap`` a program runs eagerly: no wrapper of a tensor reaches the library."""
    x, w = torch.randn(3, 4, 16), torch.randn(8, 16)
    compiled = jit(F.linear)
    torch.testing.assert_close(torch.vmap(compiled, in_dims=(0, None))(x, w), F.linear(x, w))


def test_two_threads_of_the_interpreter():
    from concurrent.futures import ThreadPoolExecutor

    compiled, pairs = jit(torch.bmm), [[torch.randn(4, 32, 32) for _ in range(2)] for _ in range(40)]
    compiled(*pairs[0])
    with ThreadPoolExecutor(2) as pool:
        for found, pair in zip(pool.map(lambda pair: compiled(*pair), pairs), pairs, strict=True):
            torch.testing.assert_close(found, torch.bmm(*pair))


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_measured_selection(frontend, tmp_path, monkeypatch):
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))
    model, batch = gpt()
    compiled = thunder.jit(model, executors=[ONEDNN], frontend=frontend, options={"select": "measure"})
    near(gradients(model, compiled, *batch), gradients(model, model, *batch))
    timed = {decision.what for decision in compiled._thunder_records[-1].decisions if "onednn" in decision.costs}
    assert timed >= {"torch.nn.functional.linear", "torch.nn.functional.scaled_dot_product_attention"}
