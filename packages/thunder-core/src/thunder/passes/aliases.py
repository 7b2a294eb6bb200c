"""Results that share memory with an input, or with each other, are made by view operations in the epilogue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from thunder.capture.log import Capture
from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol, Phase, Symbol
from thunder.ir.trace import Names
from thunder.ir.types import TensorType, Var
from thunder.lang.values import difference
from thunder.passes.storages import writes_of


def alias_results(
    capture: Capture, read: Callable[[Var], Var], names: Names
) -> tuple[Any, list[BoundSymbol], list[BoundSymbol]]:
    """The program's result over functional values, and the epilogue operations that make its aliases.

    Those come in two parts, before and behind the writes into inputs, as the program takes the views: of a written
    tensor autograd refuses some. read: the functional value of a captured variable.
    """
    trace, places = capture.trace, capture.places
    inputs = {places[var].storage: var for var in reversed(trace.params) if var in places}
    makers = {var: op for op in trace.ops for var in op.outputs if var not in op.inputs}
    sharing: dict[int, list[Var]] = {}
    for var in trace.results:
        if var in places:
            sharing.setdefault(places[var].storage, []).append(var)
    early: list[BoundSymbol] = []
    late: list[BoundSymbol] = []
    written = {} if torch.is_inference_mode_enabled() else _first_writes(capture)  # then autograd refuses others
    index = {var: i for i, op in reversed([*enumerate(trace.ops)]) for var in op.outputs}

    def made(var: Var) -> Var:
        storage = places[var].storage if var in places else None
        if var in trace.params or storage is None:
            return var
        if storage in inputs:
            epilogue = early if index.get(var, 0) < written.get(storage, 0) else late
            return _replay(capture, makers, var, set(trace.params), lambda root: root, names, epilogue)
        if len(sharing[storage]) == 1:
            return read(var)
        first = next(v for v, place in places.items() if place.storage == storage)
        return _replay(capture, makers, var, {first}, read, names, late)

    values = {var: made(var) for var in trace.results}
    return tree.substitute(trace.result, values), early, late


def _first_writes(capture: Capture) -> dict[int, int]:
    """The index of the operation that first writes into each storage."""
    first: dict[int, int] = {}
    for i, op in enumerate(capture.trace.ops):
        for handle in writes_of(op):
            first.setdefault(capture.places[handle].storage, i)
    return first


def _replay(
    capture: Capture,
    makers: dict[Var, BoundSymbol],
    var: Var,
    roots: set[Var],
    read: Callable[[Var], Var],
    names: Names,
    epilogue: list[BoundSymbol],
) -> Var:
    """Emit the views that lead from a root to ``var``, or one strided view where they cannot be replayed."""
    if var in roots:
        return read(var)
    storage = capture.places[var].storage
    chain: list[BoundSymbol] = []
    at = var
    while at not in roots:
        op = makers.get(at)
        parents = [v for v in op.inputs if v in capture.places and capture.places[v].storage == storage] if op else []
        if op is None or op.effects or len(op.inputs) != 1 or len(parents) != 1:
            chain, at = [], _root(capture, storage, roots)
            chain.append(_strided(capture, at, var))
            break
        chain.append(op)
        at = parents[0]
    values = {at: read(at)}
    for op in reversed(chain):
        outs = {v: names.var(v.name, v.type) for v in op.outputs}
        epilogue.append(replace(op.with_inputs(values), outs=tree.substitute(op.outs, outs), phase=Phase.EPILOGUE))
        values.update(outs)
    value = values[var]
    if not at.requires_grad or not torch.is_grad_enabled() or _has_history(capture, makers, var):
        return value
    return _detached(value, var, names, epilogue)


def _has_history(capture: Capture, makers: dict[Var, BoundSymbol], var: Var) -> bool:
    """False for a view that was taken under ``no_grad``, and for views of it: a view is of its first argument."""
    storage = capture.places[var].storage
    while var.requires_grad and var in makers:
        parents = [v for v in makers[var].inputs if v in capture.places and capture.places[v].storage == storage]
        if not parents:
            return True
        var = parents[0]
    return var.requires_grad


def _detached(value: Var, var: Var, names: Names, epilogue: list[BoundSymbol]) -> Var:
    """A view taken under ``no_grad`` has no history, although its root does."""
    assert isinstance(var.type, TensorType)
    out = names.var(var.name, var.type.detached)
    epilogue.append(BoundSymbol(Symbol("torch.detach"), (value,), outs=out, phase=Phase.EPILOGUE))
    return out


def _root(capture: Capture, storage: int, roots: set[Var]) -> Var:
    return next(v for v in capture.places if v in roots and capture.places[v].storage == storage)


def _strided(capture: Capture, root: Var, var: Var) -> BoundSymbol:
    assert isinstance(var.type, TensorType)
    offset = difference(capture.places[var].offset, capture.places[root].offset)
    args = (root, var.type.shape, var.type.stride, offset)
    return BoundSymbol(Symbol("thunder.prims.structural.strided_view"), args, outs=var)
