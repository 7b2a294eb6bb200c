"""A small GPT learns in FP8 as it does in bfloat16."""

from __future__ import annotations

import pytest

from examples import fp8_training
from examples.fp8_training import end_of_backward, final, train
from examples.models import GPTConfig
from examples.train_char_gpt import CONTEXT, Text
from thunder.plugins import registry
from thunder_te.plugin import TE


@pytest.mark.slow
def test_the_loss_is_that_of_bfloat16(monkeypatch):
    monkeypatch.delenv("THUNDER_VERIFY")
    monkeypatch.setattr(fp8_training, "WATCHED", "blocks.1.attention.qkv.weight")
    registry().register(TE)
    text = Text.english()
    config = GPTConfig(vocab=-(-len(text.alphabet) // 16) * 16, context=CONTEXT, layers=2, heads=2, width=64)
    expected, actual = (train(config, text, 300, precision) for precision in ("bfloat16", "fp8"))
    assert actual.losses[0] > 1.5 * final(actual)
    assert abs(final(actual) / final(expected) - 1) < 0.02
    assert len(actual.scales) == 300
    assert len(actual.scales[0]) == 3
    assert len(set(actual.scales)) > 10
    lines = end_of_backward(actual.model).splitlines()
    assert "sync_fp8_meta_bwd" in lines[-2] + lines[-3]
    assert lines[-1].startswith("return ")
