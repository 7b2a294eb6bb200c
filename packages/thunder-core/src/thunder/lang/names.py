"""Torch callables and their canonical names.

A name is the public Python path of the callable (``torch.nn.functional.linear``), or for an ATen operator its namespace
and name (``aten.mm``, ``aten.add.Tensor``). A method and the function of the same meaning have one name:
``x.matmul(w)``, ``x @ w`` and ``torch.matmul(x, w)`` are all ``torch.matmul``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import torch

_SPACES = ("torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch.sparse", "torch")
_PRIVATE_SPACES = ("torch._C._nn", "torch._C._VariableFunctions", "torch._C._linalg", "torch._C._special")
_METHOD = "torch.Tensor."
_METHOD_TYPES = (type(torch.Tensor.add), type(torch.Tensor.__setitem__))


@lru_cache(maxsize=1)
def _paths() -> dict[Any, str]:
    """Every public torch callable, by identity of the object, with its preferred path."""
    paths: dict[Any, str] = {}
    for space in _SPACES + _PRIVATE_SPACES:
        holder = resolve_path(space)
        named = [(attr, getattr(holder, attr, None)) for attr in dir(holder)]
        for attr, value in sorted(named, key=lambda item: _is_alias(*item)):
            if callable(value) and not isinstance(value, type):
                known = paths.setdefault(value, f"{space}.{attr}")
                if known != f"{space}.{attr}" and _is_old_synonym(known, space, attr):
                    paths[value] = f"{space}.{attr}"  # torch.mm equals torch.dsmm
    for attr in dir(torch.Tensor):
        value = getattr(torch.Tensor, attr, None)
        if callable(value) and not isinstance(value, type):
            paths.setdefault(value, f"{_METHOD}{attr}")
    return paths


def _is_alias(attr: str, value: Any) -> tuple[bool, bool]:
    return attr.startswith("_"), attr != getattr(value, "__name__", attr)


def _is_old_synonym(known: str, space: str, attr: str) -> bool:
    """True if a path in ``space`` leads to what is an operator under the name ``attr`` only."""
    return known.startswith(f"{space}.") and not _is_operator(known.rpartition(".")[2]) and _is_operator(attr)


def _is_operator(name: str) -> bool:
    return bool(torch._C._jit_get_schemas_for_operator(f"aten::{name}"))


@cache
def _method_name(attr: str, method: Any) -> str:
    """``torch.attr`` where function and method mean the same call, else ``torch.Tensor.attr``."""
    function = getattr(torch, attr, None)
    if isinstance(method, _METHOD_TYPES) and callable(function) and _takes_self_first(attr):
        return f"torch.{attr}"
    return f"torch.Tensor.{attr}"


def _takes_self_first(op: str) -> bool:
    """True if each overload of the ATen operator has ``self`` as first argument, as its method has."""
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{op}")
    named = [[argument.name for argument in schema.arguments] for schema in schemas]
    return bool(named) and all("self" not in names or names[0] == "self" for names in named)


def canonical_name(fn: Callable[..., Any]) -> str | None:
    """The canonical name of a torch callable; None if it has no path that leads back to it."""
    if isinstance(fn, torch._ops.OpOverload):
        return _operator_name(fn)
    if isinstance(fn, torch._ops.OpOverloadPacket):
        return f"torch.ops.{str(fn).replace('::', '.')}"
    descriptor = getattr(fn, "__self__", None)
    if getattr(fn, "__name__", "") in ("__get__", "__set__") and descriptor is not None:
        return _property_name(descriptor, fn.__name__)
    try:
        path = _paths().get(fn) or _importable_name(fn)
    except TypeError:  # unhashable callable
        return None
    if path is not None and path.startswith(_METHOD):
        return _method_name(path.removeprefix(_METHOD), fn)
    return path


def _operator_name(op: torch._ops.OpOverload) -> str:
    namespace, name = op._schema.name.split("::")
    overload = op._overloadname
    return f"{namespace}.{name}" if overload == "default" else f"{namespace}.{name}.{overload}"


def _property_name(descriptor: Any, accessor: str) -> str | None:
    name = getattr(descriptor, "__name__", None) or getattr(getattr(descriptor, "fget", None), "__name__", None)
    if name is None or not hasattr(torch.Tensor, name):
        return None
    if accessor == "__get__" and name in ("real", "imag"):
        return f"torch.{name}"
    return f"torch.Tensor.{name}.{accessor}"


def _importable_name(fn: Callable[..., Any]) -> str | None:
    module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    if not module or not name or not module.startswith("torch.") or "<" in name:
        return None
    path = f"{module}.{name}"
    try:
        return path if resolve_path(path) is fn else None
    except (ImportError, AttributeError):
        return None


@cache
def resolve_path(path: str) -> Any:
    """The object at a dotted path: the longest importable prefix, then attributes."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for attr in parts[cut:]:
            value = getattr(value, attr)
        return value
    raise ImportError(path)


@cache
def resolve_symbol(name: str) -> Callable[..., Any]:
    """The callable that a symbol's name stands for: a torch path or an operator of ``torch.ops``.

    Raises AttributeError or ImportError if this torch has no such callable.
    """
    if name.startswith(("torch.", "thunder.")):
        return resolve_path(name)
    namespace, op, *overload = name.split(".")
    packet = getattr(getattr(torch.ops, namespace), op)
    return getattr(packet, overload[0] if overload else "default")
