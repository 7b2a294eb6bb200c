"""Running cases and judging them: right, declined, wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

import thunder
from tests.core.semantics.op_db.cases import WRITING, Call, Case, calls, operator_name, program
from tests.core.semantics.op_db.known_differences import UNINITIALISED, explained
from tests.core.semantics.op_db.observe import Difference, Observation, differences, observe
from thunder.errors import CaptureError


class Verdict(Enum):
    """What became of one sample.

    RAISES: eager and Thunder both raise. DECLINED: a CaptureError on the functional front end, and right through the
    dynamo front end.
    """

    RIGHT = "right"
    RAISES = "both raise"
    DECLINED = "declined"
    WRONG = "wrong"


@dataclass(frozen=True)
class Outcome:
    """The verdict on one sample, and why."""

    case: Case
    index: int
    verdict: Verdict
    found: tuple[Difference, ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        details = self.reason or "; ".join(f"[{d.kind}] {d.text}" for d in self.found)
        return f"{self.case}[{self.index}] {self.verdict.value} {details}".rstrip()


def functional(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The program under the functional front end."""
    return thunder.jit(fn, frontend="functional")


def dynamo(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The program under the dynamo front end, from a clean state."""
    torch.compiler.reset()
    return thunder.jit(fn)


def judge(case: Case, index: int, call: Call, *, other: bool = True) -> Outcome:
    """Run one sample eagerly and compiled. other: try the dynamo front end where the functional one declines."""
    eager = _observed(case, call, lambda fn: fn)
    found = _observed(case, call, functional)
    declined = isinstance(found.failure, CaptureError) and eager.failure is None
    if not declined:
        return _compared(case, index, eager, found)
    reason = str(found.failure)
    if other:
        outcome = _compared(case, index, eager, _observed(case, call, dynamo))
        if outcome.verdict is Verdict.WRONG:
            return Outcome(case, index, Verdict.WRONG, outcome.found, "dynamo: " + str(outcome.found))
    return Outcome(case, index, Verdict.DECLINED, (), reason)


def _observed(case: Case, call: Call, compiled: Callable[[Any], Any]) -> Observation:
    leaf = not (case.grad and case.variant in WRITING)
    with torch.set_grad_enabled(case.grad or not case.info.supports_autograd):
        return observe(compiled(program(case)), call, leaf=leaf, seed=case.seed)


def _compared(case: Case, index: int, eager: Observation, found: Observation) -> Outcome:
    name = operator_name(case.info)
    every = differences(eager, found, values=name not in UNINITIALISED)
    differing = tuple(d for d in every if not explained(name, d.kind))
    if any(not d.kind.endswith("bits") for d in differing):
        return Outcome(case, index, Verdict.WRONG, differing)
    verdict = Verdict.RAISES if eager.failure else Verdict.RIGHT
    return Outcome(case, index, verdict, differing)


def sweep(chosen: Iterable[Case], limit: int, *, other: bool = True) -> Iterable[Outcome]:
    """The outcome of every sample of the cases."""
    for case in chosen:
        for index, call in calls(case, limit):
            yield judge(case, index, call, other=other)


def table(outcomes: Iterable[Outcome]) -> Counter[str]:
    """Counts of the verdicts, and of right ones that are bitwise equal to eager."""
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        counts[outcome.verdict.value] += 1
        if outcome.verdict is Verdict.RIGHT and not outcome.found:
            counts["bitwise"] += 1
    return counts
