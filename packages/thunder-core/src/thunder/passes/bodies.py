"""Opening composites: the torch calls, or ATen operators, that a call is made of, over the program's variables."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import torch

from thunder.capture.bodies import is_python, opened
from thunder.capture.record import record
from thunder.errors import CaptureError
from thunder.grad.derive import body as aten_body
from thunder.grad.rule import Instance, Rule, formal_call
from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Names
from thunder.ir.types import TensorType, Var
from thunder.lang.names import resolve_symbol
from thunder.lang.values import to_torch
from thunder.passes.chains import CHAIN
from thunder.passes.functionalize import Memory


class Bodies:
    """Bodies of composites, each different one recorded once."""

    def __init__(self) -> None:
        self._memo: dict[Hashable, Rule | None] = {}

    def open(self, op: BoundSymbol, names: Names) -> list[BoundSymbol] | None:
        """The operations the call is made of; None for prims and calls that cannot be opened."""
        if not op.inputs:
            return None
        needs = tuple(v.requires_grad for v in op.inputs)
        return self._opened(op, needs, names, _body)

    def prims(self, op: BoundSymbol, names: Names) -> list[BoundSymbol] | None:
        """The ATen operators that the call runs where grad mode is off; None as for ``open``.

        None for calls on complex numbers: which they run depends on whether those are conjugates, which no type says.
        """
        if any(isinstance(v.type, TensorType) and v.type.dtype.startswith("complex") for v in op.inputs):
            return None
        return self._opened(op, (False,) * len(op.inputs), names, _prims)

    def _opened(
        self, op: BoundSymbol, needs: tuple[bool, ...], names: Names, record: Callable[..., Rule | None]
    ) -> list[BoundSymbol] | None:
        if not op.sym.name.startswith("torch.") and op.sym.name != CHAIN:
            return None
        call, inputs = formal_call(op, needs)
        key = (record, op.sym.name, tree.freeze((call.args, call.kwargs)))
        if key not in self._memo:
            self._memo[key] = record(call, inputs)
        rule = self._memo[key]
        return _instance(op, rule, names) if rule is not None and rule.forward else None


def _prims(call: BoundSymbol, inputs: tuple[Var, ...]) -> Rule | None:
    try:
        return aten_body(call, inputs)
    except (CaptureError, RuntimeError):
        return None


def _body(call: BoundSymbol, inputs: tuple[Var, ...]) -> Rule | None:
    fn = resolve_symbol(call.sym.name)
    try:
        return _python_body(fn, call, inputs) if is_python(fn) else aten_body(call, inputs)
    except CaptureError:
        return None


def _python_body(fn: Any, call: BoundSymbol, inputs: tuple[Var, ...]) -> Rule:
    def run(*tensors: torch.Tensor) -> list[Any]:
        values = dict(zip(inputs, tensors, strict=True))

        def value(leaf: Any) -> Any:
            return values[leaf] if isinstance(leaf, Var) else to_torch(leaf)

        with torch.enable_grad():
            return [opened(fn)(*tree.map_tree(value, call.args), **tree.map_tree(value, call.kwargs))]

    types = [(v.name, v.type) for v in inputs if isinstance(v.type, TensorType)]
    with torch._C._DisableAutocast():
        capture = record(run, types, "body")
    memory = Memory(capture)
    for index, op in enumerate(capture.trace.ops):
        memory.run(index, op)
    outs = tuple(memory.read(v) if isinstance(v, Var) else None for v in tree.leaves(capture.trace.result[0]))
    return Rule(capture.trace.params, outs, tuple(memory.ops))


def _instance(op: BoundSymbol, rule: Rule, names: Names) -> list[BoundSymbol] | None:
    """The body over the program's variables; None if a result of the call is no new value of the body."""
    variables = dict(zip(rule.inputs, op.inputs))
    outs = [leaf if isinstance(leaf, Var) else None for leaf in tree.leaves(op.outs)]
    for formal, out in zip(rule.outs, outs, strict=True):
        if formal is None or out is None:
            continue
        if variables.setdefault(formal, out) is not out:
            return None
    instance = Instance(names, variables)
    assert rule.forward is not None
    return [replace(instance.op(part, op), phase=op.phase) for part in rule.forward]
