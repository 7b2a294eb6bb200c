"""The cheapest public callable for an ATen operator: ``torch.mm`` costs less than ``torch.ops.aten.mm``."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol
from thunder.ir.types import Number, TensorType, Var
from thunder.lang.names import resolve_path, resolve_symbol
from thunder.lang.numbers import example
from thunder.lang.values import by_example, to_torch, torch_dtype


class _Reached(BaseException):
    """Stops a call at the first operator it dispatches."""


class _Watch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.call: tuple[Any, tuple[Any, ...], dict[str, Any]] | None = None

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.call = (op, args, kwargs or {})
        raise _Reached


def cheapest_call(op: BoundSymbol) -> str:
    """``"module:attribute"`` of the cheapest callable for an ATen call; it is tried to reach that very operator."""
    name = op.sym.name
    overload = resolve_symbol(name)
    form = (name, len(op.args), tuple(op.kwargs), tuple(_kind(arg) for arg in op.args))
    return _found(form, overload, _Call(op))


def _by_example(op: BoundSymbol) -> BoundSymbol:
    """The call as it was made when the program was compiled: its callable does not depend on sizes."""

    def leaf(value: Any) -> Any:
        if isinstance(value, Var) and isinstance(value.type, TensorType):
            return Var(value.name, by_example(value.type))
        return example(value) if isinstance(value, Number) else value

    return replace(op, args=tree.map_tree(leaf, op.args), kwargs=tree.map_tree(leaf, op.kwargs))


class _Call:
    """An example of a call; all examples of one form are alike."""

    def __init__(self, op: BoundSymbol) -> None:
        self.op = op

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Call)

    def __hash__(self) -> int:
        return 0


def _kind(arg: Any) -> Any:
    if isinstance(arg, Number):
        return _kind(example(arg))
    if isinstance(arg, (tuple, list)):
        return (type(arg).__name__, *sorted({_kind(item) for item in arg}, key=repr))
    return "tensor" if isinstance(arg, Var) else type(arg).__name__


@cache
def _found(form: tuple[Any, ...], overload: Any, call: _Call) -> str:
    tried = _by_example(call.op) if call.op.is_symbolic else call.op
    namespace, attr = overload._schema.name.split("::")
    default = f"torch:ops.{namespace}.{attr}.{overload._overloadname or 'default'}"
    if namespace != "aten":
        return default
    for module, holder in (("torch", "torch"), ("torch", "torch.Tensor"), ("torch", "torch._C._nn")):
        path = f"{holder}.{attr}"
        try:
            fn = resolve_path(path)
        except (AttributeError, ImportError):
            continue
        if isinstance(fn, type(resolve_path)) or not callable(fn):  # a Python function costs more than the operator
            continue
        if _dispatches_to(fn, overload, tried):
            return f"{module}:{path.removeprefix('torch.')}"
    return default


def _dispatches_to(fn: Any, overload: Any, op: BoundSymbol) -> bool:
    """True if the call reaches exactly the operator, with the arguments the operator itself is reached with."""
    values = {v: _meta(v.type) for v in op.inputs if isinstance(v.type, TensorType)}

    def value(leaf: Any) -> Any:
        return values[leaf] if isinstance(leaf, Var) else to_torch(leaf)

    args, kwargs = tree.map_tree(value, op.args), tree.map_tree(value, op.kwargs)
    return _reached(fn, args, kwargs) == _reached(overload, args, kwargs) is not None


def _reached(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    watch = _Watch()
    try:
        with torch.no_grad(), torch._C._DisableAutocast(), warnings.catch_warnings(), watch:
            warnings.simplefilter("error")  # a deprecated form is not the callable to choose
            fn(*args, **kwargs)
    except (_Reached, Exception):
        pass
    if watch.call is None:
        return None
    op, seen_args, seen_kwargs = watch.call
    return op, _comparable(seen_args), sorted((key, _comparable(value)) for key, value in seen_kwargs.items())


def _comparable(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ("tensor", id(value))
    if isinstance(value, (tuple, list)):
        return tuple(_comparable(item) for item in value)
    return (type(value).__name__, repr(value))


def _meta(type: TensorType) -> torch.Tensor:
    return torch.empty_strided(
        type.shape, type.stride or (1,) * type.ndim, dtype=torch_dtype(type.dtype), device="meta"
    )
