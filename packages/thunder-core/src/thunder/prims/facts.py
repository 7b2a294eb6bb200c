"""Facts about ATen operators, taken from PyTorch's tags and schemas, and the few that PyTorch does not declare."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

# Arguments written without a declaration in the schema: operator -> (positions written, position of the flag for it).
_HIDDEN_WRITES = {
    "aten::native_batch_norm": ((3, 4), 5),
    "aten::cudnn_batch_norm": ((3, 4), 5),
    "aten::miopen_batch_norm": ((3, 4), 5),
}

_HIDDEN_VIEWS = frozenset({"aten::_unsafe_view", "aten::unsafe_split", "aten::unsafe_split_with_sizes"})
"""Operators whose results are views, without a declaration in the schema: autograd does not track them."""

# Arguments that are not read if a flag is set: operator -> (their positions, position of the flag).
_NOT_READ = {"aten::native_batch_norm_backward": ((3, 4), 7)}


def draws(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True if a call draws from a random generator. What has a dropout (attention) draws for nothing else."""
    if not _may_draw(op):
        return False
    for position, argument in enumerate(op._schema.arguments):
        if argument.name == "dropout_p":
            return bool(args[position] if position < len(args) else kwargs.get("dropout_p", argument.default_value))
    return True


@cache
def _may_draw(op: torch._ops.OpOverload) -> bool:
    return torch.Tag.nondeterministic_seeded in op.tags


@cache
def changes_metadata(op: torch._ops.OpOverload) -> bool:
    """True if the operator changes sizes or strides of its argument in place (``unsqueeze_``)."""
    return torch.Tag.inplace_view in op.tags


@cache
def returns_view(op: torch._ops.OpOverload) -> bool:
    """True if the operator returns a view of its first argument."""
    info = op._schema.arguments[0].alias_info
    returned = [r.alias_info for r in op._schema.returns]
    return (
        info is not None
        and not info.is_write
        and any(r is not None and r.before_set & info.before_set for r in returned)
    )


@cache
def is_view(op: torch._ops.OpOverload) -> bool:
    """True if the operator's results, one or a list, share the memory of its first argument and it writes nothing."""
    arguments = op._schema.arguments
    info = arguments[0].alias_info if arguments else None
    return op._schema.name in _HIDDEN_VIEWS or (info is not None and not info.is_write)


@cache
def has_flops(op: torch._ops.OpOverload) -> bool:
    """True if PyTorch counts the operator's floating-point operations: matrix products, convolutions, attention."""
    from torch.utils.flop_counter import flop_registry

    return op.overloadpacket in flop_registry


@cache
def makes_new_tensors(op: torch._ops.OpOverload) -> bool:
    """True if the operator's results are other tensors than its arguments; a composite (``to``) may return one."""
    composite = op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    return not composite and not op._schema.is_mutable


@cache
def takes_out(op: torch._ops.OpOverload) -> bool:
    """True if the operator has a variant of the same arguments that writes its one result into ``out=``."""
    out = getattr(op.overloadpacket, "out", None)
    return out is not None and len(op._schema.returns) == 1 and _parameters(out)[:-1] == _parameters(op)


@cache
def _declared_writes(op: torch._ops.OpOverload) -> tuple[tuple[int, str, bool], ...]:
    arguments = enumerate(op._schema.arguments)
    return tuple((i, a.name, a.kwarg_only) for i, a in arguments if a.alias_info is not None and a.alias_info.is_write)


def written_arguments(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that a call writes into: those its schema declares, and batch norm's running statistics."""
    positions, flag = _HIDDEN_WRITES.get(op._schema.name, ((), 0))
    written = [args[i] for i in positions if args[flag] and args[i] is not None]
    for position, name, keyword_only in _declared_writes(op):
        value = args[position] if not keyword_only and position < len(args) else kwargs.get(name)
        written.extend(v for v in (value if isinstance(value, (list, tuple)) else (value,)) if v is not None)
    return written


def read_arguments(op: torch._ops.OpOverload, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with None for those that the call does not read: batch norm's backward after training."""
    positions, flag = _NOT_READ.get(op._schema.name, ((), 0))
    if not positions or not args[flag]:
        return args
    return tuple([None if place in positions else arg for place, arg in enumerate(args)])


@cache
def functional_operators(op: torch._ops.OpOverload) -> tuple[torch._ops.OpOverload, ...]:
    """Operators with an in-place one's parameters, which return what it writes; that of the same overload first."""
    namespace, name = op._schema.name.split("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    if packet is None or not name.endswith("_"):
        return ()
    overloads = sorted(packet.overloads(), key=lambda overload: overload != op._overloadname)
    found = (getattr(packet, overload) for overload in overloads)
    return tuple(form for form in found if not form._schema.is_mutable and _parameters(form) == _parameters(op))


@cache
def appending_operator(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The operator that takes the same arguments, writes nothing, and appends the new values to its results."""
    return {
        "aten::native_batch_norm": torch.ops.aten._native_batch_norm_legit_functional.default,
    }.get(op._schema.name)


def _parameters(op: torch._ops.OpOverload) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in op._schema.arguments]


def with_defaults(op: torch._ops.OpOverload, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The positional arguments with the defaults that end the list spelt out; another operator may have others."""
    missing = [a for a in op._schema.arguments[len(args) :] if not a.kwarg_only]
    return (*args, *(a.default_value for a in missing))


def asks_grad_mode(name: str) -> bool:
    """True for operators whose kernel looks at grad mode: without it they leave out what their backward reads."""
    return name == "aten.mkldnn_rnn_layer"
