"""Decompositions for kernels that are faster than those of PyTorch's own: the same formulas, in another way."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

Table = Mapping[torch._ops.OpOverload, Callable[..., Any]]

_AROUND_ONE = (torch.ops.aten.gelu.default, torch.ops.aten.gelu_backward.default)
"""What adds tanh to one, or takes its square from one."""

_NARROW = frozenset({torch.uint8, torch.int8, torch.int16})
COMPARISONS = tuple(
    getattr(getattr(torch.ops.aten, name), kind)
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
    for kind in ("Tensor", "Scalar")
)


class _TanhBySigmoid(TorchFunctionMode):
    """Computes tanh as exact as one: an error of 1e-7, of which near zero much is left that tanh does not have.

    One exponential and one division: 131072 elements take 40 us with one thread, and those of tanh 150 us.
    """

    def __torch_function__(
        self, fn: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return 2 * torch.sigmoid(2 * args[0]) - 1 if fn is torch.tanh else fn(*args, **(kwargs or {}))


_SMALL = 1 << 13
"""Multiplications for each matrix up to which the loops that Inductor writes are faster than PyTorch's kernel.

Measured for hundreds of matrices in float32 with one thread, rows x inner x columns: 1.5 times as fast for 9 x 9 x 64,
3.5 for 64 x 9 x 9, 1.6 for 16 x 16 x 16, 1.1 for 8 x 32 x 32. In bfloat16 PyTorch's kernel is faster."""

_ROWS = 8
_MANY = 64
"""How many rows are added up at once, and from how many on: a kernel goes down columns, each of many pages of memory.

Measured in float32 with one thread, for 2048 x 1024: 0.27 ms in groups of eight, 1.7 ms otherwise (PyTorch 0.63); for
4096 x 256: 0.11 and 0.15; equal for 512 x 256."""

_LONG = 32
"""Inner elements from which on it is as good to go along them as along the rows of the result."""


def faster(table: Table) -> Table:
    """The decompositions of PyTorch, with others where kernels are faster for them and results as exact."""
    aten = torch.ops.aten
    return {
        **table,
        **{op: _with_cheap_tanh(table[op]) for op in _AROUND_ONE},
        aten.bmm.default: _in_loops(table[aten.bmm.default]),
        aten.isnan.default: _differs_from_itself,
        aten._to_copy.default: _through_float(table[aten._to_copy.default]),
        **{op: _in_float(op) for op in COMPARISONS},
        aten.sum.dim_IntList: by_some_rows,
    }


def _differs_from_itself(input: torch.Tensor) -> torch.Tensor:
    """``isnan``, which Inductor's kernels ask of one element after the other."""
    return input != input


def _through_float(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """Conversions that kernels would do one by one: to bool by a comparison, from bool to half by way of float32."""

    @functools.wraps(decomposition)
    def run(input: torch.Tensor, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
        if dtype is torch.bool and input.dtype is not torch.bool:
            input = input != 0
        if dtype in (torch.bfloat16, torch.float16) and input.dtype is torch.bool:
            input = input.to(torch.float32)
        return decomposition(input, dtype=dtype, **options)

    return run


def _in_float(comparison: torch._ops.OpOverload) -> Callable[..., Any]:
    """A comparison of integers of one or two bytes, of which each is a float32."""

    @functools.wraps(comparison)
    def run(first: torch.Tensor, second: Any) -> Any:
        if first.dtype not in _NARROW or (isinstance(second, torch.Tensor) and second.dtype not in _NARROW):
            return NotImplemented
        if isinstance(second, torch.Tensor):
            second = second.to(torch.float32)
        elif isinstance(second, int):
            second = _wrapped(second, first.dtype)
        return comparison(first.to(torch.float32), second)

    return run


def _wrapped(number: int, dtype: torch.dtype) -> int:
    """The integer of the dtype that PyTorch takes for a number."""
    info = torch.iinfo(dtype)
    return (number - info.min) % (1 << info.bits) + info.min


def _with_cheap_tanh(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(decomposition)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _TanhBySigmoid():
            return decomposition(*args, **kwargs)

    return run


def _in_loops(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """Products of small matrices as sums, which become part of the loops around."""

    @functools.wraps(decomposition)
    def run(first: torch.Tensor, second: torch.Tensor, *rest: Any) -> Any:
        if rest or not _is_small(first, second):
            return decomposition(first, second, *rest)
        return (first[:, :, :, None] * second[:, None]).sum(2)

    return run


def _is_small(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether loops that run along memory are the faster ones."""
    (_, m, k), n = first.shape, second.shape[2]
    if first.device.type != "cpu" or first.dtype != torch.float32 or m * k * n > _SMALL:
        return False
    return second.stride(2) == 1 or (k >= _LONG and first.stride(2) == second.stride(1) == 1)


def by_some_rows(
    input: torch.Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    """The sum over the first dimensions of a row-major tensor: of groups of rows, and then of those."""
    dims = sorted(d % input.ndim for d in dim or ())
    rows, rest = math.prod(input.shape[: len(dims)]), input.shape[len(dims) :]
    if not isinstance(rows, int) or rows < _MANY or rows % _ROWS or dims != [*range(len(dims))] or not rest:
        return NotImplemented
    if input.device.type != "cpu" or not input.is_contiguous() or (dtype or input.dtype) != torch.float32:
        return NotImplemented
    groups = input.to(torch.float32).reshape(rows // _ROWS, _ROWS, *rest).sum(1)
    return groups.sum(0).reshape([*([1] * len(dims) if keepdim else ()), *rest])
