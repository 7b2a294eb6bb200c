"""The fuzzer finds planted faults and makes them small; a sample of its programs agrees with eager."""

from __future__ import annotations

from random import Random

import pytest
import torch

from tests.fuzz import check
from tests.fuzz.compare import difference
from tests.fuzz.generate import generate
from tests.fuzz.minimise import minimise
from tests.fuzz.program import Program


@pytest.mark.parametrize("block", range(4))
def test_a_sample_agrees_with_eager(block):
    verdicts = [check.verdict(generate(Random(seed))) for seed in range(block * 50, block * 50 + 50)]
    assert [reason for outcome, reason in verdicts if outcome == "wrong"] == []
    assert sum(outcome == "declined" for outcome, _ in verdicts) < 10


def test_generated_programs_run_in_eager():
    for seed in range(50):
        make, program = generate(Random(seed)).functions()
        assert difference(make, program, program, torch.enable_grad) is None


SAMPLE = Program(
    setup=("a0 = torch.randn(3, 4, generator=g).requires_grad_()", "a1 = torch.randn(3, 4, generator=g)"),
    leaves=("a0",),
    args=("a0", "a1"),
    body=("b0 = a0.sin()", "a1.mul_(2)", "b1 = a1.t()", "b2 = b0 * a1"),
    results=("b0", "b1", "b2"),
)


def without_aliases(program):
    return lambda *args: [t.clone() for t in program(*args)]


def without_writes(program):
    return lambda *args: program(*[t * 1 for t in args])


def without_gradients(program):
    return lambda *args: [t.detach() for t in program(*args)]


@pytest.mark.parametrize(
    ("broken", "symptom"),
    [(without_aliases, "memory"), (without_writes, "argument 1"), (without_gradients, "gradient")],
)
def test_planted_faults_are_found(broken, symptom):
    make, program = SAMPLE.functions()
    assert symptom in difference(make, program, broken(program), torch.enable_grad)


def test_a_failing_program_is_made_small(monkeypatch):
    monkeypatch.setattr(check.thunder, "jit", lambda fn, frontend: without_writes(fn))
    outcome, reason = check.verdict(SAMPLE)
    assert outcome == "wrong"
    small = minimise(SAMPLE, check.fails_like(reason))
    assert (small.body, small.args, small.results) == (("a1.mul_(2)",), ("a1",), ())
    assert "def test_program_is_as_in_eager" in small.as_test(reason)
