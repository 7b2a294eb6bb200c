"""Hugging Face architectures against eager: results in eval, then loss and every gradient of training steps."""

from __future__ import annotations

import pytest

from tests.core.models.architectures import ARCHITECTURES, DECLINED, build
from tests.core.models.check import FRONTENDS, check

SAMPLE = ("gpt2", "llama", "mixtral", "mamba", "bert", "deberta-v2", "t5", "swin")
"""What runs without being asked for: one architecture of every kind."""

NAMES = [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.slow) for name in ARCHITECTURES]


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("name", NAMES)
def test_architecture(name: str, frontend: str) -> None:
    module, inputs = build(name, ARCHITECTURES[name])
    check(module, (), inputs, frontend, declined=DECLINED.get(name, ""))
