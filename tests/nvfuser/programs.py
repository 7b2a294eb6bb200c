"""Programs to fuse, and what became of them."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F

import thunder
from thunder_nvfuser.plugin import NVFUSER

NVFUSER_HERE = replace(NVFUSER, needs=(), fuser=replace(NVFUSER.fuser, overhead=0.0))
"""The executor where the stand-in runs its fusions, and calls cost nothing: programs of tests are tiny."""


def regions(jitted):
    """The different regions of the last compilation, forward and backward."""
    traces = [thunder.last_traces(jitted)[-1], *thunder.last_backward_traces(jitted)[-1:]]
    return list(dict.fromkeys(op.fused for trace in traces for op in trace.ops if op.fused is not None))


def gated(x, w):
    return F.rms_norm(x, (x.shape[-1],), w) * F.gelu(x) * torch.sigmoid(x)


def layer_norm(x, w):
    return F.dropout(F.layer_norm(F.silu(x), (x.shape[-1],), w, w), 0.0)


def softmax(x, w):
    mask = torch.ones(x.shape[-1], x.shape[-1], dtype=torch.bool, device=x.device).tril()
    scores = (x.unsqueeze(-1) * w).masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, -1).sum(-1) + torch.log_softmax(x * 2, -1)


def rotary(x, w):
    half = x.shape[-1] // 2
    angle = torch.arange(half, device=x.device, dtype=torch.float32) * 0.1
    cos, sin = torch.cat([angle.cos()] * 2), torch.cat([angle.sin()] * 2)
    rotated = torch.cat([-x[..., half:], x[..., :half]], -1)
    return (x * cos + rotated * sin).to(x.dtype) * w


def loss(x, w):
    logits = x * w
    return F.cross_entropy(logits, torch.arange(x.shape[0], device=x.device) % x.shape[1]) + F.mse_loss(logits, x)


def shapes(x, w):
    a, b = (x + 1).chunk(2, -1)
    y = torch.stack([a * b, a - b], 1).transpose(1, 2).reshape(x.shape[0], -1)
    return F.pad(y, (1, 1))[:, 1:-1] * w.view(1, -1).expand_as(y)


def conditional(x, w):
    y = torch.where(x > 0, x * w, torch.clamp(x, -1.0, 1.0))
    return y.var(-1, keepdim=True) + y.amax(-1, keepdim=True) + y.abs().sqrt() + torch.maximum(y, w) ** 2


PROGRAMS = (gated, layer_norm, softmax, rotary, loss, shapes, conditional)
