"""The one table of what nvFuser runs: an ATen operator, how it is lowered, for which dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from thunder.extend import BoundSymbol, TensorType, Var, map_tree, to_torch

FLOATS = frozenset({"float64", "float32", "bfloat16", "float16"})
INTEGERS = frozenset({"int64", "int32"})
INDICES = INTEGERS | {"bool"}
NUMBERS = FLOATS | INTEGERS
ANY = NUMBERS | {"bool"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """How nvFuser runs one operator.

    lower: ``(builder, out, *args, **kwargs) -> views``: emits nvFuser operations. ``out`` is the type of the result (a
        tuple where there are several), the arguments are the operator's, with a ``Value`` for each tensor. What it
        returns is cast to the types in ``out``.
    operands, results: the dtypes it takes and makes.
    refuse: ``(out, *args, **kwargs) -> reason``, empty if there is none, with a ``TensorType`` for each tensor.
    option: the option without which the operator is left to others.
    by_value: its operands are numbers on the CPU, which kernels take by value.
    """

    lower: Callable[..., Any]
    operands: frozenset[str] = NUMBERS
    results: frozenset[str] = NUMBERS
    refuse: Callable[..., str] | None = None
    option: str = ""
    by_value: bool = False


def rows(names: Iterable[str], **row: Any) -> dict[str, Row]:
    """The same row for several operators."""
    return dict.fromkeys(names, Row(**row))


def refusal(row: Row, op: BoundSymbol, device_types: frozenset[str]) -> str:
    """Why nvFuser does not run a call; empty if it does."""
    operands = () if row.by_value else op.inputs
    for variables, dtypes, role in ((operands, row.operands, "takes"), (op.outputs, row.results, "makes")):
        for var in variables:
            type = var.type
            if not isinstance(type, TensorType) or type.stride is None:
                return f"nvFuser fuses strided tensors, and {var.name} is none"
            if type.dtype not in dtypes:
                return f"{op.sym} {role} no {type.dtype} in nvFuser"
            if type.device.partition(":")[0] not in device_types:
                return f"nvFuser runs on {' and '.join(sorted(device_types))}, and {var.name} is on {type.device}"
            if 0 in type.shape:
                return f"{var.name} is empty"
    if row.refuse is None:
        return ""
    return row.refuse(described(op.outs), *described(op.args), **described(op.kwargs))


def described(tree: Any) -> Any:
    """Arguments or results with the type of each tensor in its place."""
    return map_tree(lambda leaf: leaf.type if isinstance(leaf, Var) else to_torch(leaf), tree)
