"""Measured selection: of those that can run a call, the fastest on this machine runs it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any

from thunder.grad.rule import formal_call
from thunder.grad.rules import Rules
from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol, Refusal, Selection
from thunder.ir.types import OpaqueType, Ref, Var
from thunder.passes.decisions import Decision
from thunder.passes.lower import Lowering, native_call
from thunder.passes.measure import Measurer
from thunder.passes.select import Selector
from thunder.plugins.spec import Executor
from thunder.runtime.trial import Subject, trial

OPENED = "its parts"
"""The label of what a composite, or a chain, is made of, where that runs in its place."""


class MeasuringSelector(Selector):
    """Lets those that can run a call race, PyTorch always among them; the order decides where nothing is measured."""

    def __init__(
        self,
        executors: Sequence[Executor],
        options: Mapping[str, Mapping[str, Any]],
        rules: Rules,
        measurer: Measurer,
    ) -> None:
        super().__init__(executors, options, rules)
        self._lowering = Lowering(self.choose, rules)
        self._measurer = measurer

    def choose(self, op: BoundSymbol, dependent: Set[Var] = frozenset(), site: str = "") -> Selection:
        """As ``Selector.choose``; an executor that is slower than the chosen one has its time as the refusal."""
        candidates = list(self._candidates(op, dependent, site, measured=True))
        if len(candidates) == 1:
            return candidates[0]
        by_label = {_label(candidate): candidate for candidate in candidates}
        decision = self._decide(op, {label: [op.with_facts(selection=s)] for label, s in by_label.items()}, dependent)
        if decision is None or not decision.costs:
            return super().choose(op, dependent, site)
        return _with_times(by_label[decision.chosen], decision)

    def _joined(self, chain: BoundSymbol, parts: Sequence[BoundSymbol], site: str) -> Selection:
        *able, native = self._candidates(chain, frozenset(), site, measured=True)
        if not able:
            return native
        by_label = {**{_label(candidate): candidate for candidate in able}, OPENED: native}
        ops = {label: [replace(chain, selection=s)] if s.claim else parts for label, s in by_label.items()}
        decision = self._decide(chain, ops, frozenset())
        if decision is None or not decision.costs:
            return super()._joined(chain, parts, site)
        return _with_times(by_label[decision.chosen], decision)

    def _opened(self, op: BoundSymbol, whole: Selection, parts: list[BoundSymbol], dependent: Set[Var]) -> bool:
        decision = self._decide(op, {OPENED: parts, whole.executor: [op.with_facts(selection=whole)]}, dependent)
        return decision is None or decision.chosen == OPENED

    def _decide(
        self, op: BoundSymbol, candidates: Mapping[str, Sequence[BoundSymbol]], dependent: Set[Var]
    ) -> Decision | None:
        """What was measured, now or before; None for calls that cannot be.

        They touch state, have sizes known only at run time, or take what no text spells.
        """
        if op.effects or op.is_symbolic:
            return None
        subject = Subject.of(op, dependent)
        signature = _signature(subject)
        if signature is None:
            return None
        builders = {
            label: partial(
                trial, subject, [_running(part, subject) for part in ops], self._lowering, self._rules, self._is_fused
            )
            for label, ops in candidates.items()
        }
        return self._measurer.decide(op.sym.name, signature, builders, subject.types)

    def _is_fused(self, op: BoundSymbol) -> bool:
        """True if a fuser may run a call."""
        return any(self._fuses(name, op) for name in self._fusers)


def _label(selection: Selection) -> str:
    choice = selection.context.choice if selection.context is not None else ""
    return f"{selection.executor} ({choice})" if choice else selection.executor


def _running(op: BoundSymbol, subject: Subject) -> BoundSymbol:
    """The operation, settled where lowering would ask again who runs it."""
    native = op.sym.name.startswith("aten.") and op.selection is not None and op.selection.claim is None
    return op.with_facts(call=native_call(op)) if native and not subject.roots else op


def _with_times(chosen: Selection, decision: Decision) -> Selection:
    """The selection, with the candidates before it that are slower among the refusals."""
    before = itertools.takewhile(lambda label: label != decision.chosen, decision.costs)
    slower = tuple(Refusal(label, f"measured: {decision.told(label)}") for label in before)
    return replace(chosen, refusals=(*chosen.refusals, *slower)) if slower else chosen


def _signature(subject: Subject) -> str | None:
    """Text for all that the work of a call depends on; None if it takes what no text spells."""
    needs = tuple(v.requires_grad for v in subject.inputs)
    call, inputs = formal_call(subject.call, needs)
    leaves = [*tree.leaves((call.args, call.kwargs))]
    if any(isinstance(leaf, Ref) or isinstance(getattr(leaf, "type", None), OpaqueType) for leaf in leaves):
        return None
    types = ", ".join(f"{v.name}: {_typed(v.type)}" for v in inputs)
    arriving = ", ".join(map(_typed, subject.cotangents))
    args = ", ".join([*map(repr, call.args), *(f"{key}={value!r}" for key, value in call.kwargs.items())])
    return f"({args}) where {types}" + (f", for gradients {arriving}" if arriving else "")


def _typed(type: Any) -> str:
    """A type with its strides, if they are unusual."""
    return str(type) if type.is_contiguous else f"{type} strides {list(type.stride or ())}"
