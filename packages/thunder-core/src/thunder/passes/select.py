"""Selecting who runs each operation: executors are asked in the user's order, and every refusal is kept."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from thunder.errors import PluginError
from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol, Phase, Refusal, Selection
from thunder.ir.trace import Names, Stage, Trace
from thunder.ir.types import TensorType, Var
from thunder.lang.values import to_torch
from thunder.passes.bodies import Bodies
from thunder.plugins.spec import ClaimContext, Executor, No


class Selector:
    """Asks executors for operations.

    options: of each executor, by its name. Executors without claims (``torch``) run whatever reaches them.
    """

    def __init__(self, executors: Sequence[Executor], options: Mapping[str, Mapping[str, Any]]) -> None:
        self._claiming = [executor for executor in executors if executor.claims]
        self._options = {executor.name: options.get(executor.name, {}) for executor in self._claiming}
        self._keys = {executor.name: executor.key(self._options[executor.name]) for executor in self._claiming}
        self._bodies = Bodies()

    def choose(self, op: BoundSymbol, needs: tuple[bool, ...]) -> Selection:
        """Who runs the operation. needs: for each of its tensor arguments, whether a gradient is wanted."""
        refusals = []
        for executor in self._claiming:
            claim = executor.claim(op.sym.name)
            if claim is None:
                continue
            refusal = self._ask(executor, op, needs)
            if refusal is None:
                return Selection(executor.name, claim, tuple(refusals))
            refusals.append(Refusal(executor.name, refusal))
        return Selection(native_executor(op), None, tuple(refusals))

    def select(self, trace: Trace, dependent: frozenset[Var]) -> Trace:
        """The trace with a selection on every operation; composites are opened where a part of them is claimed.

        dependent: the variables through which gradients flow.
        """
        names = Names.of(trace)
        ops = self._selected(trace.ops, dependent, names)
        return trace.with_ops(ops, stage=Stage.SELECTED, made_by="select")

    def _selected(self, ops: Iterable[BoundSymbol], dependent: frozenset[Var], names: Names) -> list[BoundSymbol]:
        selected: list[BoundSymbol] = []
        for op in ops:
            selection = self.choose(op, _needs(op, dependent))
            if selection.claim is None and self._claiming and op.phase is Phase.FORWARD:
                parts = self._parts(op, dependent, names)
                if parts is not None:
                    selected += parts
                    continue
            selected.append(replace(op, selection=selection))
        return selected

    def _parts(self, op: BoundSymbol, dependent: frozenset[Var], names: Names) -> list[BoundSymbol] | None:
        """The operations of a composite's body, if an executor claims one of them."""
        body = self._bodies.open(op, names)
        if body is None or not any(executor.claim(part.sym.name) for executor in self._claiming for part in body):
            return None
        inner = dependent | {v for part in body for v in part.outputs if isinstance(v.type, TensorType) and v.type.requires_grad}
        parts = self._selected(body, inner, names)
        return parts if any(part.selection is not None and part.selection.claim for part in parts) else None

    def _ask(self, executor: Executor, op: BoundSymbol, needs: tuple[bool, ...]) -> str | None:
        """The executor's reason not to run the operation, or None if it does."""
        claim = executor.claim(op.sym.name)
        assert claim is not None
        cx = ClaimContext(
            options=self._options[executor.name], needs_grad=needs, cache_key=self._keys[executor.name]
        )
        try:
            answer = claim.ask(cx, *_described(op.args), **_described(op.kwargs))
        except PluginError as error:
            if os.environ.get("THUNDER_STRICT") == "1":
                raise
            warnings.warn(f"{executor.name} is not used for {op.sym} at {op.source}: {error}", RuntimeWarning, stacklevel=2)
            return f"its check failed: {error.why or error.what}"
        return answer.reason if isinstance(answer, No) else None


def native_executor(op: BoundSymbol) -> str:
    """Who runs an operation that nobody claims: ``python`` for structural prims, else ``torch``."""
    return "python" if op.sym.name.startswith("thunder.") else "torch"


def _needs(op: BoundSymbol, dependent: frozenset[Var]) -> tuple[bool, ...]:
    return tuple(leaf in dependent for leaf in tree.leaves((op.args, op.kwargs)) if isinstance(leaf, Var))


def _described(value: Any) -> Any:
    """Arguments as a check sees them: a type for each tensor, torch's own constants for the rest."""
    return tree.map_tree(lambda leaf: leaf.type if isinstance(leaf, Var) else to_torch(leaf), value)
