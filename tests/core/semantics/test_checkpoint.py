"""Activation checkpointing, against eager: gradients, dropout masks, what is kept."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import thunder

FRONTENDS = ["functional", "dynamo"]


def block(x, w):
    return F.dropout(torch.tanh(x @ w), 0.5) @ w


def inputs():
    g = torch.Generator().manual_seed(3)
    return [torch.randn(8, 8, generator=g).requires_grad_() for _ in range(2)]


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradients_and_masks(frontend, reentrant):
    def program(x, w):
        for _ in range(2):
            x = checkpoint(block, x, w, use_reentrant=reentrant)
        return x

    found = []
    for f in (program, thunder.jit(program, frontend=frontend)):
        x, w = inputs()
        torch.manual_seed(11)
        out = f(x, w)
        out.square().sum().backward()
        found.append((out.detach(), x.grad, w.grad))
    assert_close(found[1], found[0])


def _note(kept, t):
    kept.append(t)
    return t


def test_less_is_saved():
    def plain(x, w):
        for _ in range(4):
            x = torch.sin(torch.tanh(x @ w).exp())
        return x

    def checkpointed(x, w):
        for _ in range(4):
            x = checkpoint(lambda y: torch.sin(torch.tanh(y @ w).exp()), x, use_reentrant=False)
        return x

    saved = []
    for program in (plain, checkpointed):
        kept: list[torch.Tensor] = []
        pack = functools.partial(_note, kept)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            thunder.jit(program, frontend="functional")(*inputs())
        saved.append(sum(t.numel() for t in kept))
    assert saved[1] < saved[0] / 2
