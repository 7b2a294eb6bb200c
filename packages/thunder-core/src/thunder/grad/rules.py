"""Finding the rule of a call: the selected executor's, else the derived one; each different call is asked for once."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch

from thunder.grad.derive import derive
from thunder.grad.rule import Layouts, Rule, formal_call
from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol
from thunder.ir.types import Var

RuleMaker = Callable[[BoundSymbol, tuple[Var, ...], Layouts], Rule]
"""``(call over formal inputs, formal inputs, arriving gradients) -> rule``."""


class Rules:
    """Memoised rules. A key holds all that a rule depends on: symbol, argument types and values, wanted gradients.

    claimed: makes the rule of a call that an executor claimed with a rule pair of its own.
    """

    def __init__(self, claimed: RuleMaker | None = None) -> None:
        self._claimed = claimed
        self._memo: dict[Hashable, Rule] = {}

    def find(self, op: BoundSymbol, needs: tuple[bool, ...], arriving: Layouts) -> Rule:
        """The rule of a call. needs: for each different variable it reads, whether a gradient is wanted.

        arriving: for each leaf it returns, the type of the gradient that arrives there, if any.
        """
        call, inputs = formal_call(op, needs)
        claim = op.selection.claim if op.selection is not None else None
        key = (op.sym.name, tree.freeze((call.args, call.kwargs)), arriving, claim, _global_flags())
        rule = self._memo.get(key)
        if rule is None:
            own = self._claimed if claim is not None and claim.grad is not None else None
            rule = self._memo[key] = (own or derive)(call, inputs, arriving)
        return rule

    def __len__(self) -> int:
        return len(self._memo)


def _global_flags() -> Hashable:
    """The process-wide switches that PyTorch's choice of operators depends on."""
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cuda.mem_efficient_sdp_enabled(),
        torch.backends.cuda.math_sdp_enabled(),
        torch.backends.cudnn.enabled,
        torch.backends.mkldnn.enabled,
    )
