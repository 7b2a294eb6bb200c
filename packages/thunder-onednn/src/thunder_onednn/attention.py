"""Attention: probabilities are computed for blocks of queries, in backward again, so that none are kept.

A block of queries sees whole rows of scores, so that one softmax does; of the keys that a causal block cannot see,
nothing is computed. Memory is linear in the length of the sequence: q, k and v are kept for backward, and one block of
probabilities lives at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from thunder_onednn.entry import matmul

QUERIES = (64, 128)
"""Queries of a block, at least and at most: fewer mean more calls, more mean more scores that nobody sees."""

BLOCK = 2 << 20
"""Bytes that the scores of a block may take, if it is of more than one head: a core's caches hold them."""

_softmax, _softmax_backward = torch.ops.aten._softmax.out, torch.ops.aten._softmax_backward_data.out


@dataclass(frozen=True)
class Block:
    """Some queries of some heads, and the keys they see. heads: of all heads of the batch."""

    heads: slice
    queries: slice
    keys: slice


class Scores:
    """What the queries of each head make of the keys: its blocks, and their probabilities."""

    def __init__(self, q: Tensor, k: Tensor, mask: Tensor | None, causal: bool, scale: float) -> None:
        batch, self._heads, queries, _ = q.shape
        self.q, self.k = _by_head(q, self._heads), _by_head(k, self._heads)
        self._rows = min(queries, max(QUERIES[0], min(queries // 4, QUERIES[1])))
        self._mask = mask.expand(batch, self._heads, queries, k.shape[2]) if mask is not None else None
        self._scale = scale
        hidden = torch.full((self._rows, self._rows), -math.inf, device=q.device) if causal else None
        self._future = hidden.triu_(1) if hidden is not None else None

    def blocks(self) -> Iterator[Block]:
        """The blocks of each head in order. Where a block is of several sequences, it is of all their heads."""
        (all_heads, queries, _), keys = self.q.shape, self.k.shape[1]
        at_once = _together(BLOCK // (self._rows * keys * 4), self._heads)
        for head in range(0, all_heads, at_once):
            for start in range(0, queries, self._rows):
                stop = min(start + self._rows, queries)
                seen = keys if self._future is None else min(stop, keys)
                yield Block(slice(head, min(head + at_once, all_heads)), slice(start, stop), slice(seen))

    def operands(self, block: Block) -> tuple[Tensor, Tensor]:
        """The queries of a block and the keys they see, dense."""
        return self.q[block.heads, block.queries].contiguous(), self.k[block.heads, block.keys].contiguous()

    def probabilities(self, block: Block, q: Tensor, k: Tensor) -> Tensor:
        """How much each query of a block takes of each key that it sees [heads, queries, keys], from its operands.

        Scores are float32: of less precision, large ones would make probabilities wrong by a factor.
        """
        scores = q.new_empty(*q.shape[:2], k.shape[1], dtype=torch.float32)
        matmul(q.float(), k.float().transpose(1, 2), scores, alpha=self._scale)
        if self._mask is not None:
            masked = _masked(scores, self._mask_of(block))
            return torch._safe_softmax(masked, -1).to(q.dtype)  # a query may see nothing
        if self._future is not None:
            diagonal = scores[:, :, block.queries.start :]
            diagonal.add_(self._future[: diagonal.shape[1], : diagonal.shape[2]])
        return _softmax(scores, -1, False, out=scores).to(q.dtype)

    def _mask_of(self, block: Block) -> Tensor:
        assert self._mask is not None
        (first, row), (last, last_row) = (
            divmod(head, self._heads) for head in (block.heads.start, block.heads.stop - 1)
        )
        return self._mask[first : last + 1, row : last_row + 1, block.queries].flatten(0, 1)


def forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    """The result [batch, heads, queries, value size] of q [batch, heads, queries, size], k and v.

    k and v may have fewer heads, each shared by as many of q. mask: broadcast to [batch, heads, queries, keys]; where a
    boolean one is true a key is seen, others are added to the scores. Nothing may be empty, and a mask not be causal.
    """
    scores, values = Scores(q, k, mask, causal, scale), _by_head(v, q.shape[1])
    out = values.new_empty(*scores.q.shape[:2], values.shape[2])
    for block in scores.blocks():
        p = scores.probabilities(block, *scores.operands(block))
        matmul(p, values[block.heads, block.keys], out[block.heads, block.queries])
    return out.view(*q.shape[:3], -1)


def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, from that of the result and the arguments of ``forward``."""
    scores, values, grad = Scores(q, k, mask, causal, scale), _by_head(v, q.shape[1]), _by_head(grad, q.shape[1])
    of_q = torch.empty_like(scores.q)
    of_k, of_v = (torch.zeros_like(t, dtype=torch.float32) for t in (scores.k, values))
    for block in scores.blocks():
        queries, keys = scores.operands(block)
        p, g = scores.probabilities(block, queries, keys), grad[block.heads, block.queries].contiguous()
        _add_product(of_v[block.heads, block.keys], p.transpose(1, 2), g, 1.0)
        of_scores = torch.empty_like(p)
        matmul(g, values[block.heads, block.keys].transpose(1, 2), of_scores)
        _softmax_backward(of_scores, p, -1, p.dtype, grad_input=of_scores)
        matmul(of_scores, keys, of_q[block.heads, block.queries], alpha=scale)
        _add_product(of_k[block.heads, block.keys], of_scores.transpose(1, 2), queries, scale)
    return of_q.view(q.shape), _shared(of_k, k), _shared(of_v, v)


def _together(fitting: int, heads: int) -> int:
    """The most heads, no more than fit, of which whole sequences have a multiple, or a sequence has one; at least 1."""
    if fitting >= heads:
        return fitting - fitting % heads
    return max((n for n in range(1, fitting + 1) if heads % n == 0), default=1)


def _by_head(t: Tensor, heads: int) -> Tensor:
    """[batch, heads or a part of them, length, size] as dense [batch * heads, length, size]."""
    if t.shape[1] < heads:
        t = t.repeat_interleave(heads // t.shape[1], dim=1)
    return t.contiguous().flatten(0, 1)


def _add_product(total: Tensor, a: Tensor, b: Tensor, alpha: float) -> None:
    """``total += alpha * (a @ b)``, with the sum in float32 whatever the operands are."""
    if a.dtype == total.dtype:
        return matmul(a, b, total, beta=1.0, alpha=alpha)
    product = a.new_empty(total.shape)
    matmul(a, b, product, alpha=alpha)
    total.add_(product)


def _shared(gradient: Tensor, t: Tensor) -> Tensor:
    """The gradient of a key or value from those of the heads that share it."""
    shared = gradient.shape[0] // (t.shape[0] * t.shape[1])
    summed = gradient.view(*t.shape[:2], shared, *t.shape[2:]).sum(2) if shared > 1 else gradient.view(t.shape)
    return summed.to(t.dtype)


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill_(mask.logical_not(), -math.inf) if mask.dtype is torch.bool else scores.add_(mask)


def result_type(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    return q.new_empty(*q.shape[:3], v.shape[3])


def gradient_types(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)
