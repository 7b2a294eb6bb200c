"""Finding the rule of a call: the selected executor's, else the derived one; each different call is asked for once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from types import MappingProxyType

import torch

from thunder.capture.fakes import result_types
from thunder.grad.claimed import claimed_rule, lowered_rule
from thunder.grad.derive import derive
from thunder.grad.rule import Instance, Layouts, Rule, formal_call
from thunder.ir import tree
from thunder.ir.effects import StateKind
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Names
from thunder.ir.types import TensorType


class Rules:
    """Memoised rules. A key holds all that a rule depends on: symbol, argument types and values, wanted gradients.

    states: the state kinds of all active executors, by name.
    """

    def __init__(self, states: Mapping[str, StateKind] = MappingProxyType({})) -> None:
        self._states = states
        self._memo: dict[Hashable, Rule] = {}
        self._types: dict[Hashable, TensorType] = {}

    def find(self, op: BoundSymbol, needs: tuple[bool, ...], arriving: Layouts) -> Rule:
        """The rule of a call. needs: for each different variable it reads, whether a gradient is wanted.

        arriving: for each leaf it returns, the type of the gradient that arrives there, if any.
        Raises whatever an executor's own rule raises while it is recorded; PluginError if it breaks the contract.
        """
        call, inputs = formal_call(op, needs)
        claim = op.selection.claim if op.selection is not None else None
        key = (op.sym.name, tree.freeze((call.args, call.kwargs)), arriving, _claimant(op), _global_flags())
        rule = self._memo.get(key)
        if rule is None:
            own = claim is not None and claim.grad is not None
            rule = (
                claimed_rule(call, inputs, op.outs, arriving, self._states) if own else derive(call, inputs, arriving)
            )
            self._memo[key] = rule
        return rule

    def type_of(self, op: BoundSymbol) -> TensorType:
        """The type of the one tensor that an ATen operation of variables makes."""
        key = (op.sym.name, tuple([v.type for v in op.inputs]))
        if key not in self._types:
            types = result_types(op)
            assert types is not None
            (self._types[key],) = types
        return self._types[key]

    def lowered(self, op: BoundSymbol) -> Rule:
        """What a call runs as where no gradient is wanted, by the ``lower`` of its claim. Raises as ``find`` does."""
        assert op.selection is not None
        call, inputs = formal_call(op, (False,) * len(op.inputs))
        key = (op.sym.name, tree.freeze((call.args, call.kwargs)), _claimant(op))
        rule = self._memo.get(key)
        if rule is None:
            rule = self._memo[key] = lowered_rule(call, inputs, op.outs, self._states)
        return rule

    def expanded(self, op: BoundSymbol, names: Names) -> list[BoundSymbol]:
        """What a call runs as where no gradient is wanted: the operations of its claim's ``lower``, else itself."""
        if op.selection is None or op.selection.claim is None or op.selection.claim.lower is None:
            return [op]
        rule, selection = self.lowered(op), op.selection.unclaimed
        instance = Instance.of(rule, op, names)
        parts = [instance.op(part, op, phase=op.phase, selection=selection) for part in rule.forward or ()]
        return parts + [replace(a, phase=op.phase, selection=selection) for a in instance.aliases(rule, op)]

    def __len__(self) -> int:
        return len(self._memo)


def _claimant(op: BoundSymbol) -> Hashable:
    """Whose rules a call runs by, and which of the candidates they are told."""
    if op.selection is None or op.selection.claim is None:
        return None
    return op.selection.executor, op.selection.claim, op.selection.context.choice


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
