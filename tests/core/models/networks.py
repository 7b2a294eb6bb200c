"""Networks with what layers alone do not show: skips, statistics, scattered messages, bags of indices, fast paths.

As in ``tests.models``: each constructor returns ``(module, args)``, the same on every call.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.models import MODELS, Sample, seeded


class UNet(nn.Module):
    """Two levels down and up, with skips: images (batch, 3, 16, 16) to (batch, 2, 16, 16)."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([double_convolution(3, 8), double_convolution(8, 16)])
        self.bottom = double_convolution(16, 32)
        self.grow = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, stride=2), nn.ConvTranspose2d(16, 8, 2, stride=2)])
        self.up = nn.ModuleList([double_convolution(32, 16), double_convolution(16, 8)])
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for block in self.down:
            skips.append(block(x))
            x = F.max_pool2d(skips[-1], 2)
        x = self.bottom(x)
        for grow, block in zip(self.grow, self.up):
            x = block(torch.cat([skips.pop(), grow(x)], dim=1))
        return self.head(x)


def double_convolution(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
    )  # fmt: skip


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.skip = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = self.body(x)
        out += self.skip(x)
        return F.relu(out, inplace=True)


class ResNet(nn.Module):
    """Images (batch, 3, 16, 16) to logits (batch, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.stages = nn.Sequential(Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 16, 1))
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.flatten(F.adaptive_avg_pool2d(self.stages(self.stem(x)), 1), 1))


class GraphNet(nn.Module):
    """Two rounds of mean and attention messages along edges (2, count): nodes (count, 8) to (count, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.own, self.score = nn.Linear(16, 16), nn.Linear(8, 16), nn.Linear(32, 1)
        self.head = nn.Linear(16, 4)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        messages = F.relu(self.message(torch.cat([nodes[source], nodes[target]], dim=-1)))
        total = torch.zeros(len(nodes), 16).index_add_(0, target, messages)
        degree = torch.zeros(len(nodes)).scatter_add_(0, target, torch.ones(len(target))).clamp(min=1)
        hidden = F.relu(self.own(nodes) + total / degree[:, None])
        score = self.score(torch.cat([hidden[source], hidden[target]], dim=-1)).squeeze(-1)
        best = torch.full((len(nodes),), -torch.inf).scatter_reduce(0, target, score, "amax")
        weight = (score - best[target].detach()).exp()
        norm = torch.zeros(len(nodes)).index_add(0, target, weight).clamp(min=1e-6)
        out = torch.zeros_like(hidden).index_add(0, target, (weight / norm[target])[:, None] * hidden[source])
        return self.head(hidden + out)


class RecommendationNet(nn.Module):
    """Dense features (batch, 6) and one bag of indices per table to a click probability (batch,)."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.tables = nn.ModuleList([nn.EmbeddingBag(20, 8, mode=mode) for mode in ("sum", "mean", "max")])
        self.top = nn.Sequential(nn.Linear(8 + 6, 16), nn.ReLU(), nn.Linear(16, 1))
        self.register_buffer("upper", torch.triu(torch.ones(4, 4), 1).bool(), persistent=False)

    def forward(self, dense: Tensor, indices: list[Tensor], offsets: list[Tensor]) -> Tensor:
        x = self.bottom(dense)
        bags = [table(i, o) for table, i, o in zip(self.tables, indices, offsets)]
        features = torch.stack([x, *bags], dim=1)
        rows, columns = torch.triu_indices(4, 4, 1)
        pairs = (features @ features.mT)[:, rows, columns]
        return self.top(torch.cat([x, pairs], dim=1)).squeeze(1).sigmoid()


class Encoder(nn.Module):
    """``nn.TransformerEncoder`` with a causal mask: (batch, time, 32) to the same; its fast path runs in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, activation="gelu", batch_first=True)
        self.inner = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(32))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1]), is_causal=True)


class Attention(nn.Module):
    """``nn.MultiheadAttention`` in both of its forms, with the weights: (batch, time, 32) to (batch, time, 32)."""

    def __init__(self) -> None:
        super().__init__()
        self.same = nn.MultiheadAttention(32, 4, dropout=0.1, batch_first=True)
        self.cross = nn.MultiheadAttention(32, 4, kdim=8, vdim=8, bias=False, add_zero_attn=True, batch_first=True)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        y, _ = self.same(x, x, x, attn_mask=mask, need_weights=False)
        z, weights = self.cross(x + y, memory, memory, average_attn_weights=False)
        return z + weights.mean()


class Recurrent(nn.Module):
    """A recurrent layer over (batch, time, 8), with its final state: (batch, 5)."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(layer.hidden_size * (1 + layer.bidirectional), 5)

    def forward(self, x: Tensor) -> Tensor:
        states, last = self.layer(x)
        hidden = last[0] if isinstance(last, tuple) else last
        return self.head(states[:, -1]) + hidden.mean()


class PackedRecurrent(nn.Module):
    """A GRU over padded sequences, packed: lengths are numbers, so the program does not depend on data."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(8, 12, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, [5, 3, 2], batch_first=True)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        return states.sum(1)


def images() -> Tensor:
    return torch.randn(2, 3, 16, 16)


@seeded
def unet() -> Sample:
    return UNet(), (images(),)


@seeded
def resnet() -> Sample:
    return ResNet(), (images(),)


@seeded
def resnet_channels_last() -> Sample:
    return ResNet().to(memory_format=torch.channels_last), (images().to(memory_format=torch.channels_last),)


@seeded
def graph_net() -> Sample:
    return GraphNet(), (torch.randn(7, 8), torch.randint(0, 7, (2, 20)))


@seeded
def recommendation() -> Sample:
    indices = [torch.randint(0, 20, (9,)) for _ in range(3)]
    return RecommendationNet(), (torch.randn(3, 6), indices, [torch.tensor([0, 2, 6])] * 3)


@seeded
def encoder() -> Sample:
    return Encoder(), (torch.randn(2, 6, 32),)


@seeded
def attention() -> Sample:
    return Attention(), (torch.randn(2, 6, 32), torch.randn(2, 5, 8))


@seeded
def gru() -> Sample:
    return Recurrent(nn.GRU(8, 12, num_layers=2, batch_first=True, bidirectional=True)), (torch.randn(3, 6, 8),)


@seeded
def lstm_with_dropout() -> Sample:
    layer = nn.LSTM(8, 12, num_layers=2, batch_first=True, dropout=0.3)
    return Recurrent(layer), (torch.randn(3, 6, 8),)


@seeded
def plain_rnn() -> Sample:
    return Recurrent(nn.RNN(8, 12, nonlinearity="relu", batch_first=True)), (torch.randn(3, 6, 8),)


@seeded
def packed() -> Sample:
    return PackedRecurrent(), (torch.randn(3, 5, 8),)


NETWORKS: dict[str, Callable[[], Sample]] = {
    **MODELS,
    "unet": unet,
    "resnet": resnet,
    "resnet, channels last": resnet_channels_last,
    "graph network": graph_net,
    "recommendation": recommendation,
    "transformer encoder": encoder,
    "attention": attention,
    "gru": gru,
    "lstm with dropout": lstm_with_dropout,
    "rnn": plain_rnn,
    "packed sequences": packed,
}
