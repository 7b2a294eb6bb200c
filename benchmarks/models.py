"""The models that executors are measured on. Each constructor gives a module with its loss, and a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from examples.models import GPT, GPTConfig, Llama, LlamaConfig

Sample = tuple[nn.Module, tuple[Any, ...]]
VOCAB = 1000


class Residual(nn.Module):
    """Two 3x3 convolutions with batch norm, around a residual connection: (batch, width, h, w) to the same."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(y)))


class ResNet(nn.Module):
    """Images (batch, 3, h, w) and classes (batch,) to the mean cross entropy over 100 classes."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for width in widths:
            layers += [nn.Conv2d(before, width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            layers += [Residual(width), Residual(width)]
            before = width
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(before, 100)

    def forward(self, images: Tensor, classes: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.features(images).mean(dim=(2, 3))), classes)


@dataclass(frozen=True)
class DLRMConfig:
    """Sizes of a recommendation model: ``tables`` embedding tables of ``rows`` rows beside ``dense`` numbers."""

    tables: int = 8
    rows: int = 1000
    dense: int = 13
    width: int = 64


class DLRM(nn.Module):
    """Numbers (batch, dense), ids (tables, batch) and clicks (batch,) to the mean binary cross entropy."""

    def __init__(self, config: DLRMConfig) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(config.rows, config.width) for _ in range(config.tables))
        self.bottom = _mlp(config.dense, 256, config.width)
        pairs = (config.tables + 1) * config.tables // 2
        self.top = _mlp(config.width + pairs, 256, 1)
        upper = torch.triu_indices(config.tables + 1, config.tables + 1, offset=1)
        self.register_buffer("upper", upper[0] * (config.tables + 1) + upper[1], persistent=False)

    def forward(self, numbers: Tensor, ids: Tensor, clicks: Tensor) -> Tensor:
        dense = self.bottom(numbers)
        rows = torch.stack([dense, *(table(one[:, None]) for table, one in zip(self.tables, ids))], dim=1)
        products = torch.bmm(rows, rows.transpose(1, 2)).flatten(1).index_select(1, self.get_buffer("upper"))
        return F.binary_cross_entropy_with_logits(self.top(torch.cat([dense, products], dim=1))[:, 0], clicks)


def _mlp(start: int, hidden: int, end: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(start, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, end)
    )


def gpt(layers: int) -> Sample:
    """A GPT of width 128 and 4 heads, and 4 sequences of 64 tokens."""
    torch.manual_seed(0)
    return GPT(GPTConfig(vocab=VOCAB, context=64, layers=layers, heads=4, width=128)), _tokens(4, 64)


def llama(layers: int, width: int = 256, dtype: torch.dtype = torch.float32) -> Sample:
    """A Llama with 8 heads, and 4 sequences of 256 tokens."""
    torch.manual_seed(0)
    config = LlamaConfig(vocab=VOCAB, context=256, layers=layers, width=width)
    return Llama(config).to(dtype), _tokens(4, 256)


def resnet() -> Sample:
    """A residual network, and 8 images of 64 x 64."""
    torch.manual_seed(0)
    return ResNet(), (torch.randn(8, 3, 64, 64), torch.randint(100, (8,)))


def dlrm() -> Sample:
    """A recommendation model, and a batch of 512."""
    torch.manual_seed(0)
    config = DLRMConfig()
    ids = torch.randint(config.rows, (config.tables, 512))
    return DLRM(config), (torch.randn(512, config.dense), ids, torch.randint(2, (512,)).float())


def _tokens(batch: int, time: int) -> tuple[Tensor, Tensor]:
    return torch.randint(VOCAB, (batch, time)), torch.randint(VOCAB, (batch, time))


MODELS: dict[str, Callable[[], Sample]] = {
    "gpt 12 d128": partial(gpt, 12),
    "llama 4 d256": partial(llama, 4),
    "llama 4 d256 bf16": partial(llama, 4, dtype=torch.bfloat16),
    "llama 2 d512": partial(llama, 2, width=512),
    "llama 16 d256": partial(llama, 16),
    "llama 16 d256 bf16": partial(llama, 16, dtype=torch.bfloat16),
    "gpt 48 d128": partial(gpt, 48),
    "resnet": resnet,
    "dlrm": dlrm,
}
