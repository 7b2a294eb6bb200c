"""Making an executor run calls in one of the ways that its checks name (``Yes.candidates``)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from thunder.plugins.spec import Claim, ClaimContext, Executor, No, Yes


@dataclass(frozen=True, kw_only=True)
class OneWay(Claim):
    """A claim that runs calls in the candidate of this number only, and refuses those that have none of it."""

    number: int

    def ask(self, cx: ClaimContext, *args: Any, **kwargs: Any) -> Yes | No:
        """The claim's own answer, with one candidate."""
        answer = super().ask(cx, *args, **kwargs)
        if isinstance(answer, No):
            return answer
        if self.number >= len(answer.candidates):
            return No(f"there is no candidate {self.number}")
        return replace(answer, candidates=(answer.candidates[self.number],))


def in_way(executor: Executor, number: int) -> Executor:
    """The executor with all claims running the candidate of this number, the first being 0."""
    claims = tuple(
        OneWay(target=c.target, check=c.check, lower=c.lower, grad=c.grad, number=number) for c in executor.claims
    )
    return replace(executor, claims=claims)
