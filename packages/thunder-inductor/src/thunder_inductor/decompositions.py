"""Decompositions for kernels that are faster than those of PyTorch's own: cheaper functions, products in loops."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

Table = Mapping[torch._ops.OpOverload, Callable[..., Any]]

_AROUND_ONE = (torch.ops.aten.gelu.default, torch.ops.aten.gelu_backward.default)
"""What adds tanh to one, or takes its square from one."""


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

_LONG = 32
"""Inner elements from which on it is as good to go along them as along the rows of the result."""


def faster(table: Table) -> Table:
    """The decompositions of PyTorch, with cheaper functions where those are as exact, and loops for small products."""
    bmm = torch.ops.aten.bmm.default
    return {**table, **{op: _with_cheap_tanh(table[op]) for op in _AROUND_ONE}, bmm: _in_loops(table[bmm])}


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
