"""Small models of every common kind. Each constructor returns ``(module, args)``, the same on every call.

All modules are in training mode, without dropout unless said; ``module(*args)`` gives one tensor, float32 on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from examples import models

Sample = tuple[nn.Module, tuple[Any, ...]]


def seeded(make: Callable[[], Sample]) -> Callable[[], Sample]:
    """Run a constructor from a fixed seed, and leave the generator of the caller as it was."""

    @wraps(make)
    def wrapped() -> Sample:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return make()

    return wrapped


class Transformer(nn.Module):
    """``nn.Transformer`` with a causal mask: (batch, time, 32) twice to (batch, time, 32)."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Transformer(32, 4, 2, 2, dim_feedforward=64, dropout=0.0, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.inner(source, target, tgt_mask=mask, tgt_is_causal=True)


class LSTMClassifier(nn.Module):
    """Tokens (batch, time) to logits (batch, 5), through a bidirectional two-layer LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 24, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(48, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(tokens))
        return self.head(states[:, -1])


class ConvNet(nn.Module):
    """Images (batch, 3, 16, 16) to logits (batch, 10). Batch norm updates its statistics at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
        )  # fmt: skip
        self.head = nn.Linear(16, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images).mean(dim=(2, 3)))


@seeded
def transformer() -> Sample:
    return Transformer(), (torch.randn(2, 7, 32), torch.randn(2, 5, 32))


@seeded
def lstm() -> Sample:
    return LSTMClassifier(), (torch.randint(0, 50, (3, 6)),)


@seeded
def convnet() -> Sample:
    return ConvNet(), (torch.randn(4, 3, 16, 16),)


@seeded
def gpt() -> Sample:
    """A GPT with its loss: ``module(*args)`` is a scalar."""
    module = models.GPT(models.GPTConfig(vocab=64, context=16, layers=2, heads=2, width=32))
    return module, (torch.randint(0, 64, (2, 16)), torch.randint(0, 64, (2, 16)))


@seeded
def llama() -> Sample:
    """Grouped-query attention, and the embedding tied to the head."""
    module = models.Llama(models.LlamaConfig(vocab=64, context=16, layers=2, heads=4, groups=2, width=32))
    module.head.weight = module.tokens.weight
    return module, (torch.randint(0, 64, (2, 12)),)


MODELS: dict[str, Callable[[], Sample]] = {
    "transformer": transformer,
    "lstm": lstm,
    "convnet": convnet,
    "gpt": gpt,
    "llama": llama,
}
