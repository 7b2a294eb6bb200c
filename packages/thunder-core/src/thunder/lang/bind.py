"""Binding arguments to signatures, so that a call has one form however it was written.

Positional parameters are positional as far as they reach, defaults that end the list are dropped, keyword-only
parameters are keywords: ``F.dropout(input=x, training=True, p=0.5)`` and ``F.dropout(x)`` are both ``F.dropout(x)``.
Signatures come from Python functions themselves and, for built-in ones, from the schemas of their ATen operator.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from thunder.ir.types import Number, Var

_ABSENT = object()
_SYNONYMS = {"input": "self", "axis": "dim", "keepdims": "keepdim"}
_NUMBERS = (bool, int, float, complex)


@dataclass(frozen=True)
class _Parameter:
    name: str
    default: Any
    keyword_only: bool
    accepts: str  # schema type, "" for a Python parameter


class _Signature:
    """The parameters of a function: all, and those that may be given by position."""

    def __init__(self, parameters: Iterable[_Parameter]) -> None:
        self.all = tuple(parameters)
        self.names = frozenset(p.name for p in self.all)
        self.positional = tuple(p for p in self.all if not p.keyword_only)
        self.required = tuple(p.name for p in self.all if p.default is _ABSENT)


def bind(
    name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The canonical form of a call's arguments; the arguments as they are if no signature is known to fit."""
    for signature in _signatures(name, fn):
        values = _match(signature, args, kwargs)
        if values is not None:
            return _canonical(signature, values)
    return args, kwargs


@cache
def _signatures(name: str, fn: Callable[..., Any]) -> tuple[_Signature, ...]:
    if isinstance(fn, torch._ops.OpOverload):
        return (_schema_parameters(fn._schema),)
    if inspect.isfunction(fn):
        return _python_signature(fn)
    if not name.startswith("torch.") or name.endswith("__"):
        return ()
    return _operator_signatures(name.removeprefix("torch.").replace("nn.functional.", ""), name)


def _python_signature(fn: Callable[..., Any]) -> tuple[_Signature, ...]:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except ValueError:  # wraps a built-in that states none
        return ()
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return ()
    found = (
        _Parameter(p.name, _ABSENT if p.default is p.empty else p.default, p.kind is p.KEYWORD_ONLY, "")
        for p in parameters
    )
    return (_Signature(found),)


def _operator_signatures(op: str, name: str) -> tuple[_Signature, ...]:
    op = (
        op.removeprefix("Tensor.").replace("linalg.", "linalg_").replace("fft.", "fft_").replace("special.", "special_")
    )
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{op}") if "." not in op else []
    found = [_schema_parameters(schema) for schema in schemas]
    if name.startswith("torch.Tensor."):
        found = [signature for signature in found if signature.all and signature.all[0].name == "self"]
    return tuple(found)


def _schema_parameters(schema: Any) -> _Signature:
    return _Signature(
        _Parameter(
            a.name,
            a.default_value if a.has_default_value() else _ABSENT,
            a.kwarg_only or a.name == "memory_format",  # in Python by keyword only, whatever the schema says
            str(a.type),
        )
        for a in schema.arguments
    )


def _match(signature: _Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Value of each parameter that the call gives, or None if the call does not fit the signature."""
    args = _packed(signature.positional, args)
    if len(args) > len(signature.positional):
        return None
    values = {p.name: value for p, value in zip(signature.positional, args)}
    for key, value in kwargs.items():
        key = key if key in signature.names else _SYNONYMS.get(key, key)
        if key not in signature.names or key in values:
            return None
        values[key] = value
    if not all(name in values for name in signature.required):
        return None
    fits = all(_accepts(p, values[p.name]) for p in signature.all if p.name in values)
    return values if fits else None


def _packed(positional: Sequence[_Parameter], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """``x.permute(0, 2, 1)`` spreads its only list of integers over the arguments: gather it again."""
    if len(positional) != 2 or len(args) < 2 or positional[1].accepts != "List[int]":
        return args
    rest = args[1:]
    return (args[0], tuple(rest)) if _are_integers(rest) else args


def _are_integers(values: Sequence[Any]) -> bool:
    """True for integers, some of which may be 0-d tensors."""
    integers = [_is_integer(value) for value in values]
    return any(integers) and all(integer or isinstance(value, Var) for value, integer in zip(values, integers))


def _is_integer(value: Any) -> bool:
    if isinstance(value, Number):
        return isinstance(value.value, torch.SymInt)
    return isinstance(value, int) and not isinstance(value, bool)


def _accepts(parameter: _Parameter, value: Any) -> bool:
    if not parameter.accepts or value is None:
        return not parameter.accepts or "Optional" in parameter.accepts
    wants_list = "List[" in parameter.accepts
    if isinstance(value, Var):
        return "Tensor" in parameter.accepts and not wants_list
    if isinstance(value, (tuple, list)):
        if "List[int]" in parameter.accepts and _are_integers(value):
            return True
        wants_tensors = "Tensor" in parameter.accepts
        return wants_list and wants_tensors == any(isinstance(item, Var) for item in value)
    if isinstance(value, (*_NUMBERS, Number)):
        return "Tensor" not in parameter.accepts and "str" not in parameter.accepts
    return "Tensor" not in parameter.accepts and not wants_list


def _canonical(signature: _Signature, values: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    given = {p.name: values[p.name] for p in signature.all if p.name in values and not _is_default(p, values[p.name])}
    reach = max((place for place, p in enumerate(signature.positional, 1) if p.name in given), default=0)
    reached = signature.positional[:reach]  # those before the last one given are spelt out, to be passed over
    args = tuple([values.get(p.name, p.default) for p in reached])
    positions = {p.name for p in reached}
    return args, {name: value for name, value in given.items() if name not in positions}


def _is_default(parameter: _Parameter, value: Any) -> bool:
    default = parameter.default
    if default is _ABSENT or isinstance(value, Var):
        return False
    return type(value) is type(default) and (
        value is default or (isinstance(value, (*_NUMBERS, str)) and value == default)
    )
