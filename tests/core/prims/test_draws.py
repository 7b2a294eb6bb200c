"""Which calls draw random numbers: those that move PyTorch's generator."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from thunder.prims.facts import draws

X = torch.linspace(-1, 1, 2 * 2 * 8 * 4).reshape(2, 2, 8, 4)


class Said(TorchDispatchMode):
    """Whether an operator that ran is said to draw."""

    drew = False

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.drew |= draws(op, args, kwargs or {})
        return op(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("call", "drawing"),
    [
        (lambda: torch.nn.functional.scaled_dot_product_attention(X, X, X), False),
        (lambda: torch.nn.functional.scaled_dot_product_attention(X, X, X, is_causal=True), False),
        (lambda: torch.nn.functional.scaled_dot_product_attention(X, X, X, dropout_p=0.5), True),
        (lambda: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(X, X, X, dropout_p=0.0), False),
        (lambda: torch.nn.functional.dropout(X, 0.5), True),
        (lambda: torch.nn.functional.dropout(X, 0.5, training=False), False),
        (lambda: torch.bernoulli(X.abs()), True),
        (lambda: torch.randn(3), True),
        (lambda: torch.mm(X[0, 0], X[0, 0].t()), False),
    ],
)
def test_what_moves_the_generator_draws(call, drawing):
    before = torch.get_rng_state()
    with Said() as said:
        call()
    moved = not torch.equal(before, torch.get_rng_state())
    assert said.drew == moved == drawing
