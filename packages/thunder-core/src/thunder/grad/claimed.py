"""Rules that executors bring: their Python functions, recorded once for each different call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from thunder.capture.log import Capture
from thunder.capture.record import record
from thunder.errors import PluginError
from thunder.grad.rule import Layouts, Rule
from thunder.ir import tree
from thunder.ir.effects import StateKind
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.trace import Names
from thunder.ir.types import OpaqueType, Ref, TensorType, Var
from thunder.lang.values import numbers, to_torch
from thunder.passes.functionalize import Memory
from thunder.plugins.spec import resolve

States = Mapping[str, StateKind]


def claimed_rule(call: BoundSymbol, inputs: tuple[Var, ...], results: Any, arriving: Layouts, states: States) -> Rule:
    """The rule of a claimed call, from the ``forward`` and ``backward`` functions of its claim.

    results: the tree of variables that the call returns in the program: what forward returns must have their types;
    other strides are mended by a copy. Raises PluginError if the functions do not return what the contract says.
    """
    assert call.selection is not None
    pair, names = call.selection.claim.grad, Names(v.name for v in inputs)
    kwargs = _with_context(pair.forward, call)
    run = _function(resolve(pair.forward), inputs, call.args, kwargs, lambda out: _split(out, pair.forward))
    forward = record(run, _typed(inputs), "forward", states)
    ops, read = _pure(forward, inputs, names, pair.forward)
    out, saved = tree.map_tree(lambda leaf: read(leaf) if isinstance(leaf, Var) else leaf, forward.trace.result)
    outs, copies = _as_in_program(out, results, names, pair.forward)
    kept = tree.variables(saved)
    cotangents = tuple(Var(names.fresh("g"), g) if g is not None else None for g in arriving)
    given = (*kept, *(g for g in cotangents if g is not None))

    def by_input(gradients: Any) -> list[Any]:
        return _by_input(call, inputs, gradients, pair.backward)

    run = _function(resolve(pair.backward), given, (saved, *cotangents), {}, by_input)
    backward = record(run, _typed(given, requires_grad=False), "backward", states)
    back_ops, back_read = _pure(backward, given, names, pair.backward)
    gradients = tuple(back_read(g) if isinstance(g, Var) else None for g in backward.trace.result)
    return Rule(inputs, outs, (*ops, *copies), cotangents, back_ops, gradients)


def lowered_rule(call: BoundSymbol, inputs: tuple[Var, ...], results: Any, states: States) -> Rule:
    """What a claimed call runs as where no gradient is wanted, from the ``lower`` function of its claim.

    results: as for ``claimed_rule``. Raises PluginError likewise.
    """
    assert call.selection is not None
    where, names = call.selection.claim.lower, Names(v.name for v in inputs)
    run = _function(resolve(where), inputs, call.args, _with_context(where, call), lambda out: [out])
    capture = record(run, _typed(inputs), "lower", states)
    ops, read = _pure(capture, inputs, names, where)
    out = tree.map_tree(lambda leaf: read(leaf) if isinstance(leaf, Var) else leaf, capture.trace.result[0])
    outs, copies = _as_in_program(out, results, names, where)
    return Rule(inputs, outs, (*ops, *copies))


def _with_context(where: str, call: BoundSymbol) -> dict[str, Any]:
    """The call's keywords, and ``cx`` for a rule that asks for it."""
    assert call.selection is not None
    asked = inspect.signature(resolve(where)).parameters.get("cx")
    if asked is None or asked.kind is not inspect.Parameter.KEYWORD_ONLY:
        return call.kwargs
    return {**call.kwargs, "cx": Ref("cx", call.selection.context)}


def _typed(variables: Sequence[Var], **changes: Any) -> list[tuple[str, TensorType]]:
    return [(v.name, replace(v.type, **changes)) for v in variables if isinstance(v.type, TensorType)]


def _function(
    fn: Callable[..., Any],
    formal: Sequence[Var],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    spread: Callable[[Any], list[Any]],
) -> Callable[..., list[Any]]:
    """``fn(*args, **kwargs)`` as a function of the tensors for its formal variables only, without autograd."""

    def run(*tensors: torch.Tensor) -> list[Any]:
        values = dict(zip(formal, tensors, strict=True))

        def value(leaf: Any) -> Any:
            return values[leaf] if isinstance(leaf, Var) else to_torch(leaf)

        with torch.no_grad():
            return spread(fn(*tree.map_tree(value, args), **tree.map_tree(value, kwargs)))

    return run


def _split(returned: Any, where: str) -> list[Any]:
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], tuple):
        raise PluginError(
            "a forward rule did not return (out, saved)",
            where=where,
            why=f"it returned a {type(returned).__name__}",
            fix="return the call's result and a tuple of what backward needs",
        )
    return list(returned)


def _pure(
    capture: Capture, formal: Sequence[Var], names: Names, where: str
) -> tuple[tuple[BoundSymbol, ...], Callable[[Var], Var]]:
    """The recorded operations without mutation, over the formal variables and names of the rule."""
    if capture.constants:
        fix = "make it inside the rule, or keep it in a state of the executor"
        raise PluginError("a rule reaches tensors that are not among its arguments", where=where, fix=fix)
    memory = Memory(capture)
    for index, op in enumerate(capture.trace.ops):
        memory.run(index, op)
    if list(memory.write_backs()):
        raise PluginError("a rule writes into one of its arguments", where=where, fix="write into a copy")
    renamed: dict[Var, Var] = dict(zip(capture.trace.params, formal, strict=True))

    def rename(leaf: Any) -> Any:
        if not isinstance(leaf, Var) or isinstance(leaf.type, OpaqueType):
            return leaf
        if leaf not in renamed:
            renamed[leaf] = Var(names.fresh(leaf.name), leaf.type)
        return renamed[leaf]

    def over(op: BoundSymbol) -> BoundSymbol:
        args, kwargs, outs = (tree.map_tree(rename, part) for part in (op.args, op.kwargs, op.outs))
        return replace(op, args=args, kwargs=kwargs, outs=outs)

    return tuple(map(over, memory.ops)), lambda var: rename(memory.read(var))


def _as_in_program(
    out: Any, results: Any, names: Names, where: str
) -> tuple[tuple[Var | None, ...], list[BoundSymbol]]:
    """The leaves a rule returns, and the copies that give them the strides they have in the program."""
    found, wanted = list(tree.leaves(out)), list(tree.leaves(results))
    if len(found) != len(wanted) or not all(map(_fits, found, wanted)):
        raise PluginError(
            "a rule returned something else than the call it stands for",
            where=where,
            why=f"it returned {_types(found)} instead of {_types(wanted)}",
            fix="return tensors of the same shapes, dtypes and devices",
        )
    outs: list[Var | None] = []
    copies: list[BoundSymbol] = []
    for leaf, want in zip(found, wanted):
        if not isinstance(want, Var) or not isinstance(want.type, TensorType):
            outs.append(None)
        elif leaf.type.stride == want.type.stride:
            outs.append(leaf)
        else:
            outs.append(names.var(leaf.name, replace(leaf.type, stride=want.type.stride)))
            laid_out = Symbol("thunder.prims.structural.laid_out")
            copies.append(BoundSymbol(laid_out, (leaf, want.type.stride), outs=outs[-1]))
    return tuple(outs), copies


def _fits(leaf: Any, want: Any) -> bool:
    if not isinstance(want, Var):
        return True
    return isinstance(leaf, Var) and _apart_from_layout(leaf) == _apart_from_layout(want)


def _apart_from_layout(var: Var) -> Any:
    return replace(var.type, stride=None, requires_grad=False) if isinstance(var.type, TensorType) else var.type


def _types(found: Sequence[Any]) -> str:
    return ", ".join(str(leaf.type) if isinstance(leaf, Var) else repr(leaf) for leaf in found) or "nothing"


def _by_input(call: BoundSymbol, inputs: tuple[Var, ...], returned: Any, where: str) -> list[Any]:
    """The gradient of each different variable, from those of the tensor arguments: one given twice gets a sum."""
    arguments = [leaf for leaf in tree.leaves((call.args, call.kwargs)) if isinstance(leaf, Var)]
    gradients = returned if isinstance(returned, tuple) else (returned,)
    if len(gradients) != len(arguments):
        raise PluginError(
            f"a backward rule of {call.sym} returned {len(gradients)} gradients for {len(arguments)} tensor arguments",
            where=where,
            fix="return one gradient (or None) for each tensor argument, in order",
        )
    total: dict[Var, torch.Tensor] = {}
    for var, gradient in zip(arguments, gradients):
        if gradient is None:
            continue
        found = numbers(gradient.shape) if isinstance(gradient, torch.Tensor) else repr(gradient)
        if found != getattr(var.type, "shape", None):
            what = f"a gradient of {call.sym} is {found} for an argument of {var.type}"
            raise PluginError(what, where=where, fix="return one of the argument's shape, or None")
        total[var] = total[var] + gradient if var in total else gradient
    return [total.get(v) for v in inputs]
