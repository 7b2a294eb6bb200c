"""States: they are made anew, operations touch what they declare, closers run once per step."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from thunder.ir import tree
from thunder.ir.effects import Access, StateKind
from thunder.ir.symbol import Phase
from thunder.ir.trace import Trace
from thunder.ir.verify import verify_schedule
from thunder.plugins.spec import Claim, resolve
from thunder.testing.suite.samples import Sample
from thunder.testing.suite.subject import Subject, scheduled
from thunder.testing.suite.values import content, runs


def test_states_are_made_anew(subject: Subject, state: StateKind) -> None:
    """Each call of ``init`` makes another instance, equal in content to the first."""
    if state.init is None:
        pytest.skip("the state is ambient")
    first, second = (resolve(state.init)("a_call") for _ in range(2))
    assert first is not second, f"{state.init} returns one object twice: call sites would share it"
    assert content(first) == content(second)


def test_operations_touch_what_they_declare(subject: Subject, claim: Claim) -> None:
    """No operation changes a state that it declares only to read."""
    for sample in subject.taken(claim):
        for run in runs(subject, sample, watch=True):
            may = {e.handle for e in run.op.effects if e.access is not Access.READ}
            assert run.changed <= may, f"{run.op.sym} for {sample} changes a state that it declares only to read"


def test_closers_run_once_per_step(subject: Subject, claim: Claim) -> None:
    """With several states of a kind and a call whose result nobody uses: in training, twice, and in inference."""
    closers = {kind.close for kind in subject.executor.states if kind.close}
    if not closers:
        pytest.skip("the executor has no state that is closed")
    for sample in subject.taken(claim):
        jitted = subject.jit(_repeated(sample))
        for _ in range(2):
            outs = [out for out in jitted(*sample.inputs()) if out.requires_grad]
            torch.autograd.backward(outs, [torch.ones_like(out) for out in outs])
        _check(dict(zip((Phase.FORWARD, Phase.BACKWARD), scheduled(jitted))), closers)
        with torch.no_grad():
            jitted(*sample.inputs())
        _check(dict(zip((Phase.FORWARD,), scheduled(jitted))), closers)


def _check(traces: dict[Phase, Trace], closers: set[str]) -> None:
    verify_schedule(traces)
    counts = Counter(op.sym.name for trace in traces.values() for op in trace.ops)
    assert all(counts[closer] <= 1 for closer in closers), counts


def _repeated(sample: Sample) -> Sample:
    """The call three times: two results are added, one is not used."""

    def repeated(*tensors: torch.Tensor) -> list[torch.Tensor]:
        sample.program(*tensors)
        pair = [list(tree.leaves(sample.program(*tensors))) for _ in range(2)]
        return [first + second for first, second in zip(*pair) if isinstance(first, torch.Tensor)]

    return Sample.of(repeated, sample.tensors, {})
