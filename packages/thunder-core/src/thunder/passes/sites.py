"""Names of call sites: what states of executors belong to, the same in every specialisation of a program."""

from __future__ import annotations

from collections.abc import Iterable

from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Names
from thunder.ir.types import Var


class Sites:
    """Names calls after the first parameter they apply (``fc1_weight``), else after their symbol (``linear``).

    Later calls of the same name are ``fc1_weight_1``, … in program order. What is computed from parameters alone (a
    cast, a chunk) counts as the first of them. parameters: the variables of the trace that are parameters of a module.
    """

    def __init__(self, parameters: Iterable[Var]) -> None:
        self._homes = {v: v.name for v in parameters}
        self._names = Names()

    def follow(self, op: BoundSymbol) -> None:
        """Take note of an operation; they must come in program order."""
        if op.inputs and all(v in self._homes for v in op.inputs):
            home = self._homes[op.inputs[0]]
            self._homes.update((v, home) for v in op.outputs)

    def name(self, op: BoundSymbol) -> str:
        """The name of a call."""
        homes = (self._homes[v] for v in op.inputs if v in self._homes)
        return self._names.fresh(next(homes, op.sym.name.rpartition(".")[2]))
