"""Operators that read at places given by a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.extend import TensorType
from thunder_nvfuser.builder import Builder, Value, number
from thunder_nvfuser.table import ANY, Row


def gather(b: Builder, out: TensorType, x: Value, dim: int, index: Value, sparse_grad: bool = False) -> Any:
    """Where only the indexed dimension differs, nvFuser's ``take_along_axis`` fuses with more than its ``gather``."""
    if not x.shape:
        return x
    at = dim % len(x.shape)
    others_equal = all(d == at or n == x.shape[d] for d, n in enumerate(index.shape))
    return (b.ops.take_along_axis if others_equal else b.ops.gather)(x.view, index.view, at)


def index_select(b: Builder, out: TensorType, x: Value, dim: int, index: Value) -> Any:
    return b.ops.index_select(x.view, index.view, dim % len(x.shape))


def of_vectors(out: TensorType, x: TensorType, dim: int, index: TensorType) -> str:
    return (
        ""
        if x.shape and len(index.shape) == 1
        else "nvFuser selects by a vector of indices from a tensor of dimensions"
    )


def index(b: Builder, out: TensorType, x: Value, indices: Sequence[Value | None]) -> Any:
    """``x[:, …, i]`` with one tensor of indices: counted from the end where negative."""
    (dim,) = (d for d, i in enumerate(indices) if i is not None)
    at = indices[dim]
    assert at is not None
    wrapped = b.ops.where(b.ops.lt(at.view, 0), b.ops.add(at.view, x.shape[dim]), at.view)
    return b.ops.index_select(x.view, wrapped, dim)


def by_one_vector(out: TensorType, x: TensorType, indices: Sequence[TensorType | None]) -> str:
    given = [i for i in indices if i is not None]
    fits = len(given) == 1 and given[0].dtype != "bool" and len(given[0].shape) == 1
    return "" if fits else "nvFuser indexes by one vector of integers"


def embedding(
    b: Builder,
    out: TensorType,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    return b.ops.embedding_fwd(indices.view, weight.view)


def scatter(b: Builder, out: TensorType, x: Value, dim: int, index: Value, value: Any) -> Any:
    return b.ops.scatter(x.view, index.view, b.scalar(number(value, x.dtype), x.dtype), dim % len(x.shape))


ROWS: dict[str, Row] = {
    "aten.gather": Row(lower=gather, operands=ANY, results=ANY),
    "aten.index_select": Row(lower=index_select, operands=ANY, results=ANY, refuse=of_vectors),
    "aten.index.Tensor": Row(lower=index, operands=ANY, results=ANY, refuse=by_one_vector),
    "aten.embedding": Row(lower=embedding, operands=ANY, results=ANY),
}

PARTS: dict[str, Row] = {"aten.scatter.value": Row(lower=scatter, operands=ANY, results=ANY)}
"""Operators of decompositions only: nvFuser may scatter in place, which is right for what a fusion made itself."""
