"""Checks: what they answer, and that it is true."""

from __future__ import annotations

from thunder.plugins.options import resolve_options
from thunder.plugins.spec import Claim
from thunder.testing.suite.subject import Subject, selected


def test_what_a_check_answers(subject: Subject, claim: Claim) -> None:
    """For every call of its target, with and without gradients: yes, and then it runs; or no, with a reason."""
    for sample in subject.samples(claim.target):
        for wanted in (None, [False] * len(sample.tensors)):
            jitted = subject.jit(sample)
            jitted(*sample.inputs(wanted))  # raises what a check, a rule or a kernel raises
            refusals = [r for op in selected(jitted).ops if op.selection for r in op.selection.refusals]
            assert all(refusal.reason for refusal in refusals), f"{sample} is refused without a reason"


def test_every_claim_is_taken_somewhere(subject: Subject, claim: Claim) -> None:
    """Otherwise nothing of it is tested: SAMPLES must have a call that the check accepts."""
    assert any(subject.taken(claim)), f"no sample of {claim.target} is accepted; give some in SAMPLES"


def test_the_cache_key_is_a_key(subject: Subject) -> None:
    """Hashable, and the same while nothing changes."""
    executor = subject.executor
    options = resolve_options(subject.options, [executor])[executor.name]
    assert hash(executor.key(options)) == hash(executor.key(options))
    assert executor.key(options) == executor.key(options)
