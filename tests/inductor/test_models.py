"""Whole models, fused: as in eager PyTorch under both front ends, in lower precision, with checkpoints."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import thunder
from thunder.extend import ClaimContext
from thunder.ir.trace import Stage
from thunder_inductor.plugin import INDUCTOR
from thunder_inductor.regions import compile, show

FRONT_ENDS = ("functional", "dynamo")
WIDTH = 32


class Block(nn.Module):
    """Attention and a gated MLP: (batch, time, WIDTH) to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.gate, self.up, self.down = (nn.Linear(*pair) for pair in ((WIDTH, 64), (WIDTH, 64), (64, WIDTH)))

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = (part.view(b, t, 2, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.proj(y)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Network(nn.Module):
    """Blocks and a loss: (batch, time) of tokens to a number."""

    def __init__(self, layers: int, checkpointed: bool = False) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, WIDTH), nn.Linear(WIDTH, 50)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.checkpointed = checkpointed

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1).float(), tokens.flatten())


class Convolutions(nn.Module):
    """A residual block: (batch, 3, height, width) to (batch, 8, height, width)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm1, self.norm2 = nn.BatchNorm2d(8), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm1(self.first(x)))
        return F.relu(x + self.norm2(self.second(x)))


def tokens() -> Tensor:
    return torch.randint(0, 50, (2, 8), generator=torch.Generator().manual_seed(1))


def jit(module, frontend="functional", executors=(INDUCTOR,), **options):
    return thunder.jit(module, executors=list(executors), frontend=frontend, options=options)


def step(module, *args) -> list[Tensor]:
    """The result and all gradients of a training step."""
    module.zero_grad()
    out = module(*args)
    out.float().square().mean().backward()
    return [out.detach(), *(p.grad for p in module.parameters())]


def regions(jitted) -> list:
    """The regions of the last compilation, one for each call of one."""
    backward = [t for t in thunder.last_backward_traces(jitted) if t.stage is Stage.SCHEDULED]
    return [op.fused for t in (thunder.last_traces(jitted)[-1], *backward) for op in t.ops if op.fused is not None]


def compare(module, *args, frontend="functional", rtol=1e-4, atol=1e-5):
    """Two training steps, fused and in eager PyTorch; the jitted module."""
    reference = copy.deepcopy(module)
    jitted = jit(module, frontend)
    for _ in range(2):
        for got, want in zip(step(jitted, *args), step(reference, *args), strict=True):
            assert got.stride() == want.stride()
            torch.testing.assert_close(got, want, rtol=rtol, atol=atol)
    assert regions(jitted)
    return jitted


def test_a_region_can_be_shown():
    """Before it is compiled for the second time as well: both are given one module by Inductor."""
    x, jitted = torch.randn(64), jit(lambda x: x.sin() * 3 + x.cos())
    jitted(x)
    (region,) = regions(jitted)
    cx = ClaimContext(cache_key=1)
    assert "cpp_fused" in show(cx, region)
    first, second = compile(cx, region), compile(cx, region)
    for compiled in (second, first):
        torch.testing.assert_close(compiled.result()(x)[0], x.sin() * 3 + x.cos())


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_a_transformer(frontend):
    compare(Network(2), tokens(), frontend=frontend)


def test_layers_share_regions():
    """Twice as many layers have more calls of regions, and no new region but those of the ends."""
    counts = []
    for layers in (4, 24):
        jitted = jit(Network(layers))
        step(jitted, tokens())
        found = regions(jitted)
        counts.append((len(found), len(set(map(id, found)))))
    (few, different), (many, still) = counts
    assert still == different
    assert many >= 5 * few


@pytest.mark.slow
@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_bfloat16(frontend):
    compare(Network(1).bfloat16(), tokens(), frontend=frontend, rtol=5e-2, atol=5e-2)


@pytest.mark.slow
@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_autocast(frontend):
    with torch.autocast("cpu", torch.bfloat16):
        compare(Network(1), tokens(), frontend=frontend, rtol=5e-2, atol=5e-2)


@pytest.mark.slow
@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_checkpointing(frontend):
    compare(Network(2, checkpointed=True), tokens(), frontend=frontend)


@pytest.mark.slow
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_convolutions(format):
    """Results keep the layouts of eager, and running statistics are written."""
    module = Convolutions().to(memory_format=format)
    x = torch.randn(2, 3, 6, 6).to(memory_format=format)
    reference = copy.deepcopy(module)
    compare(module, x)
    for _ in range(2):
        step(reference, x)
    for got, want in zip(module.buffers(), reference.buffers(), strict=True):
        torch.testing.assert_close(got, want)


def test_inference_and_training_results_have_their_own_memory():
    def program(x):
        y = x.sin() + 1
        return y, y * 2, (y * 2).cos(), x.sin() + 1

    x = torch.randn(64)
    jitted = jit(program)
    results = jitted(x)
    assert len({t.data_ptr() for t in (x, *results)}) == 5
    for got, want in zip(results, program(x), strict=True):
        torch.testing.assert_close(got, want)
    assert regions(jitted)


def test_fuel():
    """At most so many regions are fused, and the results stay what they are."""
    found = []
    for fuel in (0, 1, None):
        module = Network(1)
        jitted = jit(module, **({} if fuel is None else {"inductor.fuel": fuel}))
        got, want = step(jitted, tokens()), step(module, tokens())
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        found.append(len(regions(jitted)))
    assert found[0] == 0
    assert found[1] in (1, 2)  # one for the forward program, at most one more for backward
    assert found[2] > 2


def test_another_number_of_threads_is_another_compilation():
    """Kernels divide their work among as many threads as there were when they were compiled."""
    x, jitted = torch.randn(64), jit(lambda x: x.sin() + x.cos())
    before = torch.get_num_threads()
    jitted(x)
    try:
        torch.set_num_threads(before + 1)
        torch.testing.assert_close(jitted(x), x.sin() + x.cos())
    finally:
        torch.set_num_threads(before)
    jitted(x)
    assert thunder.cache_misses(jitted) == 2
