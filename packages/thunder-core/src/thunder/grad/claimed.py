"""Rules that executors bring: their Python functions, recorded once for each different call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from thunder.capture.record import Capture, record
from thunder.errors import PluginError
from thunder.grad.rule import Layouts, Rule
from thunder.ir import tree
from thunder.ir.effects import StateKind
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Names
from thunder.ir.types import TensorType, Var
from thunder.lang.values import to_torch
from thunder.passes.functionalize import Memory
from thunder.plugins.spec import resolve


def claimed_rule(
    call: BoundSymbol, inputs: tuple[Var, ...], arriving: Layouts, states: Mapping[str, StateKind]
) -> Rule:
    """The rule of a claimed call, from the ``forward`` and ``backward`` functions of its claim.

    Raises PluginError if they do not return what the contract says.
    """
    assert call.selection is not None
    pair, names = call.selection.claim.grad, Names(v.name for v in inputs)
    forward = record(_caller(resolve(pair.forward), call, inputs, _split_saved), _typed(inputs), "forward", states)
    out, saved = forward.trace.result
    ops, read = _pure(forward, inputs, names)
    outs = tuple(read(v) if isinstance(v, Var) else None for v in tree.leaves(out))
    saved = tree.substitute(saved, {v: read(v) for v in tree.variables(saved)})
    kept = tree.variables(saved)
    cotangents = tuple(Var(names.fresh("g"), g) if g is not None else None for g in arriving)
    given = tuple(g for g in cotangents if g is not None)
    backward = record(_backward_caller(resolve(pair.backward), saved, kept, cotangents), _typed((*kept, *given)), "backward", states)
    back_ops, back_read = _pure(backward, (*kept, *given), names)
    gradients = _by_input(call, inputs, backward.trace.result, pair.backward)
    return Rule(
        inputs,
        outs,
        ops,
        cotangents,
        back_ops,
        tuple(back_read(g) if isinstance(g, Var) else None for g in gradients),
    )


def lowered(call: BoundSymbol, inputs: tuple[Var, ...], states: Mapping[str, StateKind]) -> Rule:
    """What a claimed call runs as when no gradient is needed, from the ``lower`` function of its claim."""
    assert call.selection is not None
    fn = resolve(call.selection.claim.lower)
    capture = record(_caller(fn, call, inputs, lambda out: [out]), _typed(inputs), "lower", states)
    ops, read = _pure(capture, inputs, Names(v.name for v in inputs))
    outs = tuple(read(v) if isinstance(v, Var) else None for v in tree.leaves(capture.trace.result[0]))
    return Rule(inputs, outs, ops)


def _typed(variables: tuple[Var, ...]) -> list[tuple[str, TensorType]]:
    return [(v.name, replace(v.type, requires_grad=False)) for v in variables if isinstance(v.type, TensorType)]


def _caller(
    fn: Callable[..., Any], call: BoundSymbol, inputs: tuple[Var, ...], spread: Callable[[Any], list[Any]]
) -> Callable[..., list[Any]]:
    """The rule's function as a function of the call's tensors only."""

    def run(*tensors: torch.Tensor) -> list[Any]:
        values = dict(zip(inputs, tensors, strict=True))

        def value(leaf: Any) -> Any:
            return values[leaf] if isinstance(leaf, Var) else to_torch(leaf)

        with torch.no_grad():
            return spread(fn(*tree.map_tree(value, call.args), **tree.map_tree(value, call.kwargs)))

    return run


def _split_saved(returned: Any) -> list[Any]:
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], tuple):
        raise PluginError(
            "a forward rule did not return (out, saved)",
            why=f"it returned a {type(returned).__name__}",
            fix="return the call's result and a tuple of what backward needs",
        )
    return list(returned)


def _backward_caller(
    fn: Callable[..., Any], saved: Any, kept: tuple[Var, ...], cotangents: tuple[Var | None, ...]
) -> Callable[..., list[Any]]:
    def run(*tensors: torch.Tensor) -> list[Any]:
        values = dict(zip((*kept, *(g for g in cotangents if g is not None)), tensors, strict=True))

        def value(leaf: Any) -> Any:
            return values[leaf] if isinstance(leaf, Var) else to_torch(leaf)

        with torch.no_grad():
            gradients = fn(tree.map_tree(value, saved), *(values[g] if g is not None else None for g in cotangents))
        return [gradients]

    return run


def _pure(capture: Capture, formal: tuple[Var, ...], names: Names) -> tuple[tuple[BoundSymbol, ...], Callable[[Var], Var]]:
    """The recorded operations without mutation, over the formal variables and names of the rule."""
    if capture.constants:
        raise PluginError("a rule reaches tensors that are not among its arguments", why=str(list(capture.constants)))
    memory = Memory(capture)
    for index, op in enumerate(capture.trace.ops):
        memory.run(index, op)
    renamed: dict[Var, Var] = dict(zip(capture.trace.params, formal, strict=True))

    def rename(leaf: Any) -> Any:
        if not isinstance(leaf, Var) or leaf.name.startswith("state:"):
            return leaf
        if leaf not in renamed:
            renamed[leaf] = Var(names.fresh(leaf.name), leaf.type)
        return renamed[leaf]

    ops = tuple(
        replace(op, args=tree.map_tree(rename, op.args), kwargs=tree.map_tree(rename, op.kwargs), outs=tree.map_tree(rename, op.outs))
        for op in memory.ops
    )
    return ops, lambda var: rename(memory.read(var))


def _by_input(call: BoundSymbol, inputs: tuple[Var, ...], result: Any, where: str) -> list[Any]:
    """The gradient of each different variable, from the rule's gradients of its tensor arguments."""
    arguments = [leaf for leaf in tree.leaves((call.args, call.kwargs)) if isinstance(leaf, Var)]
    gradients = result[0] if isinstance(result[0], tuple) else (result[0],)
    if len(gradients) != len(arguments):
        raise PluginError(
            f"a backward rule of {call.sym} returned {len(gradients)} gradients for {len(arguments)} tensor arguments",
            where=where,
            fix="return one gradient (or None) for each tensor argument, in order",
        )
    if len(set(arguments)) != len(arguments):
        raise PluginError(f"{call.sym} is given one tensor twice, which claimed rules do not support", where=where)
    by_var = dict(zip(arguments, gradients))
    return [by_var[v] for v in inputs]
