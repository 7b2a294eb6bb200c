"""Selecting who runs each operation: executors are asked in the user's order, and every refusal is kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch

from thunder.capture.bodies import is_python
from thunder.capture.source import warn_at
from thunder.grad.differentiate import arriving_at, carried
from thunder.grad.rules import Rules
from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol, Phase, Refusal, Selection
from thunder.ir.trace import Names, Stage, Trace
from thunder.ir.types import TensorType, Var
from thunder.lang.names import resolve_symbol
from thunder.lang.numbers import compiled
from thunder.lang.values import in_torch, to_torch
from thunder.passes.bodies import Bodies
from thunder.passes.chains import as_one, chains_in, target_of, title, told
from thunder.passes.costs import views
from thunder.passes.fusers import active_fusers
from thunder.passes.sites import Sites
from thunder.plugins.spec import Claim, ClaimContext, Executor, No, Yes

T = TypeVar("T")


class Selector:
    """Asks executors for operations.

    options: of each executor, by its name. Executors without claims (``torch``) run whatever reaches them.
    rules: what claimed calls run as: an executor whose rule for a call cannot be recorded does not get the call.
    """

    def __init__(self, executors: Sequence[Executor], options: Mapping[str, Mapping[str, Any]], rules: Rules) -> None:
        self._rules = rules
        self._claiming = [executor for executor in executors if executor.claims]
        self._targets = _targets(executors)
        self._chains = [target for target in self._targets if isinstance(target, tuple)]
        self._heads = {target[0] for target in self._chains}
        self._claims_prims = any(not name.startswith("torch.") for target in self._targets for name in _each(target))
        self._fusers = {fuser.name: fuser for fuser in active_fusers(executors, options, torch.is_grad_enabled())}
        self._order = [(executor, _targets(executors[place:])) for place, executor in enumerate(executors, 1)]
        self._options = {executor.name: options.get(executor.name, {}) for executor in self._claiming}
        self._keys = {executor.name: executor.key(self._options[executor.name]) for executor in self._claiming}
        self._grad_mode = torch.is_grad_enabled()
        self._bodies = Bodies()

    def choose(self, op: BoundSymbol, dependent: Set[Var] = frozenset(), site: str = "") -> Selection:
        """Who runs the operation. dependent: the variables through which gradients flow.

        site: the name of the call; an operator that a derivative or a decomposition made is no call of the program.
        """
        return next(self._candidates(op, dependent, site))

    def _candidates(
        self, op: BoundSymbol, dependent: Set[Var], site: str, *, measured: bool = False
    ) -> Iterator[Selection]:
        """Those that can run the operation, in the user's order; who runs it if nobody claims it comes last."""
        refusals: list[Refusal] = []
        for executor in self._claiming if measured else self._asked(op):
            claim = executor.claim(target_of(op))
            if claim is None:
                continue
            cx = self._context(executor, op, dependent, measured)
            answer = _unless_failing(executor, op, partial(_ask, claim, cx, op))
            if isinstance(answer, No):
                refusals.append(Refusal(executor.name, answer.reason))
                continue
            for choice in answer.candidates or ("",):
                detail = " ".join(filter(None, (answer.detail, choice)))
                chosen = Selection(executor.name, claim, tuple(refusals), site, replace(cx, choice=choice), detail)
                failed = _unless_failing(executor, op, partial(self._record, op, chosen, dependent))
                if failed is None:
                    yield chosen
                else:
                    refusals.append(Refusal(executor.name, failed.reason))
        yield Selection(native_executor(op), None, tuple(refusals))

    def _asked(self, op: BoundSymbol) -> Iterator[Executor]:
        """Those that may claim the operation: up to a fuser that can run it, for which it is left."""
        for executor, claimed_later in self._order:
            if executor.claims:
                yield executor
            if executor.name in self._fusers and target_of(op) in claimed_later and self._fuses(executor.name, op):
                return

    def _fuses(self, name: str, op: BoundSymbol) -> bool:
        """True if the fuser supports the operation, or some of what it is made of, beyond views."""
        parts = self._bodies.prims(op, Names(v.name for v in (*op.inputs, *op.outputs))) or [op]
        return any(self._fusers[name].supports(part) for part in parts if not views(part))

    def select(self, trace: Trace, parameters: Iterable[Var] = ()) -> Trace:
        """The trace with a selection on every operation; composites are opened where a part of them is claimed.

        parameters: the variables that call sites are named after.
        """
        dependent = {v for v in trace.params if v.requires_grad}
        ops = self._selected(trace.ops, trace.results, dependent, Names.of(trace), Sites(parameters))
        return trace.with_ops(ops, stage=Stage.SELECTED, made_by="select")

    def _selected(
        self, ops: Sequence[BoundSymbol], results: Iterable[Var], dependent: set[Var], names: Names, sites: Sites
    ) -> list[BoundSymbol]:
        chains = {run[-1]: run for run in chains_in(ops, results, self._chains)}
        named: list[str] = []
        selected: list[list[BoundSymbol]] = []
        for place, op in enumerate(ops):
            named.append(sites.name(op) if self._is_target(op) else "")
            selected.append(self._settled(op, named[-1], dependent, names, sites))
            run = chains.get(place, ())
            if not run or not dependent.isdisjoint(v for part in run for v in ops[part].outputs):
                continue
            chain, parts = as_one([ops[part] for part in run]), [op for part in run for op in selected[part]]
            selection = self._joined(chain, parts, named[run[0]])
            if selection.claim is None:
                selected[place] = told(selected[place], chain, selection.refusals)
                continue
            for part in run:
                selected[part] = []
            selected[place] = [replace(chain, selection=selection)]
        return [op for parts in selected for op in parts]

    def _settled(
        self, op: BoundSymbol, site: str, dependent: set[Var], names: Names, sites: Sites
    ) -> list[BoundSymbol]:
        """The operation with its selection, or the parts that stand for it with theirs."""
        selection = self.choose(op, dependent, site)
        parts = None
        if selection.claim is None and self._claiming and op.phase is Phase.FORWARD:
            parts = self._parts(op, dependent, names, sites)
        if parts is not None and not self._opened(op, selection, parts, dependent):
            parts = None
        sites.follow(op)
        dependent.update(carried(op, dependent))
        return [op.with_facts(selection=selection)] if parts is None else parts

    def _joined(self, chain: BoundSymbol, parts: Sequence[BoundSymbol], site: str) -> Selection:
        """Who runs a chain as one call; without a claim where its parts stand for it."""
        selection = next(self._candidates(chain, frozenset(), site))
        if selection.claim is None:
            return selection
        ranks = {executor.name: rank for rank, executor in enumerate(self._claiming)}
        takers = [part.selection.executor for part in parts if part.selection and part.selection.claim]
        earlier = next((name for name in takers if ranks[name] < ranks[selection.executor]), None)
        if earlier is None:
            return selection
        refusal = Refusal(selection.executor, f"{earlier} comes before it")
        return Selection(native_executor(chain), None, (*selection.refusals, refusal))

    def _is_target(self, op: BoundSymbol) -> bool:
        return op.sym.name in self._targets or op.sym.name in self._heads

    def _parts(self, op: BoundSymbol, dependent: Set[Var], names: Names, sites: Sites) -> list[BoundSymbol] | None:
        """The operations of a composite's body, if an executor claims one of them."""
        if op.sym.name.startswith("torch.") and not (self._claims_prims or is_python(resolve_symbol(op.sym.name))):
            return None  # a built-in is made of ATen operators
        body = self._bodies.open(op, names)
        if body is None or not any(self._is_target(part) or part.sym.name.startswith("torch._C.") for part in body):
            return None  # (a built-in behind a Python function is looked into)
        flows = bool(carried(op, dependent))
        if not flows and not dependent.isdisjoint(op.inputs) and any(p.sym.name.startswith("aten.") for p in body):
            return None  # recorded without gradients, which ATen operators could not tell
        if flows and any(part.draws and part.sym.name.startswith("aten.") for part in body):
            return None  # PyTorch differentiates a draw only as a part of the whole
        parts = self._selected(body, op.outputs, set(dependent) if flows else set(), names, sites)
        return parts if any(part.selection is not None and part.selection.claim for part in parts) else None

    def _opened(self, op: BoundSymbol, whole: Selection, parts: list[BoundSymbol], dependent: Set[Var]) -> bool:
        """Whether its parts stand for a composite."""
        return True

    def _context(self, executor: Executor, op: BoundSymbol, dependent: Set[Var], measured: bool) -> ClaimContext:
        wanted = dependent if carried(op, dependent) else frozenset()
        return ClaimContext(
            options=self._options[executor.name],
            needs_grad=tuple(v in wanted for v in _tensors(op)),
            cache_key=self._keys[executor.name],
            grad_mode=self._grad_mode,
            measured=measured,
        )

    def _record(self, op: BoundSymbol, chosen: Selection, dependent: Set[Var]) -> None:
        """Record the rules of a claim now, so that an executor that fails does not get the call."""
        op = op.with_facts(selection=chosen)
        if chosen.claim.lower is not None:
            self._rules.lowered(op)
        if chosen.claim.grad is not None and (flowing := carried(op, dependent)):
            self._rules.find(op, tuple(v in dependent for v in op.inputs), arriving_at(op, flowing))


def _ask(claim: Claim, cx: ClaimContext, op: BoundSymbol) -> Yes | No:
    return claim.ask(cx, *_described(op.args), **_described(op.kwargs))


def _unless_failing(executor: Executor, op: BoundSymbol, fn: Callable[[], T]) -> T | No:
    """What ``fn`` returns; no, with a warning, if the executor fails in it."""
    try:
        return fn()
    except Exception as error:
        if os.environ.get("THUNDER_STRICT") == "1" or compiled() is not None:
            raise  # it may be the symbolic sizes that it cannot take: the program is compiled without them
        warn_at(op.source, f"{executor.name} is not used for {title(op)} at {op.source}: {error}")
        return No(f"it failed: {getattr(error, 'why', '') or getattr(error, 'what', '') or error}")


def _targets(executors: Iterable[Executor]) -> frozenset[str | tuple[str, ...]]:
    return frozenset(claim.target for executor in executors for claim in executor.claims)


def _each(target: str | tuple[str, ...]) -> tuple[str, ...]:
    return (target,) if isinstance(target, str) else target


def native_executor(op: BoundSymbol) -> str:
    """Who runs an operation that nobody claims: ``python`` for structural prims, else ``torch``."""
    return "python" if op.sym.name.startswith("thunder.") else "torch"


def _tensors(op: BoundSymbol) -> list[Var]:
    """Its tensor arguments, one given twice counted twice."""
    return [leaf for leaf in tree.leaves((op.args, op.kwargs)) if isinstance(leaf, Var)]


def _described(value: Any) -> Any:
    """Arguments as a check sees them: a type for each tensor, torch's own constants for the rest.

    Sizes known only at run time are PyTorch's symbolic integers: what a check asks about them becomes a condition
    under which the program is valid.
    """

    def leaf(value: Any) -> Any:
        if not isinstance(value, Var):
            return to_torch(value)
        return in_torch(value.type) if isinstance(value.type, TensorType) else value.type

    return tree.map_tree(leaf, value)
