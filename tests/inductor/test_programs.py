"""Random programs do fused what they do in eager PyTorch: results, gradients, shared memory."""

from __future__ import annotations

from random import Random

import pytest

from tests.fuzz.check import verdict
from tests.fuzz.generate import generate
from thunder_inductor.plugin import INDUCTOR


def wrong(seeds: range, frontend: str = "functional") -> list[str]:
    found = []
    for seed in seeds:
        program = generate(Random(seed))
        outcome, reason = verdict(program, frontend, executors=[INDUCTOR])
        if outcome == "wrong":
            found.append(f"{seed}: {reason}\n{program.text}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_a_sample_of_programs(block):
    assert not wrong(range(4 * block, 4 * block + 4))


@pytest.mark.exhaustive
@pytest.mark.parametrize("block", range(50))
def test_programs(block):
    assert not wrong(range(1000 + 20 * block, 1000 + 20 * block + 20))
