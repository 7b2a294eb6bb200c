"""A call without mutation in place of one that writes into its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from thunder.capture.fakes import has_derivative, result_types
from thunder.ir import tree
from thunder.ir.effects import MEMORY
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.types import Const, Var
from thunder.lang.bind import bind
from thunder.lang.names import canonical_name, resolve_symbol
from thunder.passes.storages import tensor
from thunder.prims.facts import appending_operator, functional_operators, with_defaults
from thunder.prims.structural import ArgPath

_STRUCTURAL = "thunder.prims.structural"
_SPACES = ("torch", "torch.Tensor", "torch.nn.functional")


def without_mutation(op: BoundSymbol, values: dict[Var, Var], inputs: dict[Var, Var]) -> BoundSymbol:
    """A call that makes what ``op`` writes. values: what each written one becomes. inputs: what it reads now."""
    effects = tuple(effect for effect in op.effects if effect.state is not MEMORY)
    functional = _functional_form(op, values, inputs)
    if functional is not None:
        return replace(functional, effects=effects)
    fn: Any = Const(callable_text(op.sym.name))
    args: Sequence[Any] = op.args
    if op.sym.name == f"{_STRUCTURAL}.call":
        fn, *args = args
    paths = tuple(tuple(_paths((args, op.kwargs), handle)) for handle in values)
    outs = tree.map_tree(lambda leaf: None if leaf in values else leaf, op.outs)
    return replace(
        op,
        sym=Symbol(f"{_STRUCTURAL}.on_copy"),
        args=(fn, paths, *tree.substitute(args, inputs)),
        kwargs=tree.substitute(op.kwargs, inputs),
        outs=(outs, *values.values()),
        effects=effects,
    )


def _functional_form(op: BoundSymbol, values: dict[Var, Var], inputs: dict[Var, Var]) -> BoundSymbol | None:
    """The call that returns what ``op`` writes, if torch has one; ``values``: the new value of each handle."""
    handles = list(values)
    op = op.with_inputs(inputs)
    if op.sym.name.startswith("aten.") and (form := appending_operator(resolve_symbol(op.sym.name))) is not None:
        return replace(op, sym=Symbol(_name(form)), outs=(*op.outs, *values.values()))
    if len(handles) != 1 or not op.args or op.args[0] is not inputs[handles[0]] or op.outs is not handles[0]:
        return None
    value = values[handles[0]]
    wanted = tensor(value).detached
    forms = (form for form in _candidates(op) if result_types(form) == [wanted])
    if tensor(value).requires_grad:
        forms = (form for form in forms if has_derivative(form))
    return next((replace(form, outs=value) for form in forms), None)


def _candidates(op: BoundSymbol) -> Iterator[BoundSymbol]:
    """Calls that may return what an in-place call writes into its first argument."""
    head, _, last = op.sym.name.rpartition(".")
    if (plain := _not_in_place(op)) is not None:
        yield plain
    elif head in _SPACES and last.endswith("_") and not last.endswith("__"):
        if op.draws:
            return  # torch.normal and torch.bernoulli are other functions than the methods normal_ and bernoulli_
        yield from (replace(op, sym=Symbol(f"{space}.{last[:-1]}")) for space in dict.fromkeys(("torch", head)))
    elif op.sym.name.startswith("aten."):
        overload: Any = resolve_symbol(op.sym.name)
        spelt = with_defaults(overload, op.args)
        for form in functional_operators(overload):
            args, kwargs = bind(_name(form), form, spelt, op.kwargs)
            yield replace(op, sym=Symbol(_name(form)), args=args, kwargs=kwargs)


def _not_in_place(op: BoundSymbol) -> BoundSymbol | None:
    """The call without ``inplace=True``; None if it has that not, or draws: in place PyTorch may draw other numbers."""
    fn = resolve_symbol(op.sym.name)
    if not inspect.isfunction(fn) or op.draws:
        return None
    if "inplace" not in fn.__code__.co_varnames[: fn.__code__.co_argcount + fn.__code__.co_kwonlyargcount]:
        return None
    signature = inspect.signature(fn)
    given = signature.bind(*op.args, **op.kwargs).arguments
    if given.pop("inplace", False) is not True:
        return None
    args, kwargs = bind(op.sym.name, fn, (), given)
    return replace(op, args=args, kwargs=kwargs)


def _name(op: Any) -> str:
    name = canonical_name(op)
    assert name is not None
    return name


def _paths(arguments: tuple[Sequence[Any], dict[str, Any]], handle: Var) -> Iterator[ArgPath]:
    """Every place where the handle stands among the arguments."""

    def search(value: Any, path: ArgPath) -> Iterator[ArgPath]:
        if value is handle:
            yield path
        elif isinstance(value, (tuple, list)):
            for i, item in enumerate(value):
                yield from search(item, (*path, i))

    args, kwargs = arguments
    slots: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    for key, value in slots:
        yield from search(value, (key,))


def callable_text(name: str) -> str:
    """The expression for the callable that a symbol names."""
    if name.startswith(("torch.", "thunder.")):
        return name
    namespace, op, *overload = name.split(".")
    return f"torch.ops.{namespace}.{op}.{overload[0] if overload else 'default'}"
