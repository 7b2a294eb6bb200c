"""Convolutions in the memory format that CPUs are fast in: channels last.

What is around a convolution is mostly in regions, which read and write either format at the same cost: there the copies
from one format to the other are no work. PyTorch's own kernels, given the row-major format, copy on every call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from thunder.extend import ClaimContext, No, Yes, contiguous_strides
from thunder_inductor import inductor
from thunder_inductor.graphs import plain

_DTYPES = frozenset({"float32", "bfloat16"})
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_HEAVY = 4
"""A weight of more elements than this many times those of the input makes up for all that is gained: PyTorch lays it
out again on every call. Measured on one core, 3 x 3: 1.6 to 1.9 times faster for 32 and 64 channels of 32 x 32 and
56 x 56 pixels, 1.1 times where the weight has twice the elements, the same at six times, slower at 90."""


@dataclass(frozen=True)
class Call:
    """The operands of a convolution, tensors or their types, and the rest of what ``torch.convolution`` takes."""

    input: Any
    weight: Any
    bias: Any
    stride: list[int]
    padding: list[int] | str
    dilation: list[int]
    transposed: bool
    output_padding: list[int]
    groups: int

    @property
    def unfit(self) -> str:
        """Why it stays as it is; empty if it does not."""
        if self.input.device != "cpu":
            return "only oneDNN's convolutions on CPUs are known to be faster in channels last"
        if self.input.dtype not in _DTYPES or self.weight.dtype != self.input.dtype:
            return f"oneDNN does not take {self.input.dtype}"
        if self.input.ndim != self.weight.ndim or isinstance(self.padding, str):
            return "needs a batch, and padding in numbers"
        if not all(isinstance(extent, int) for extent in self.input.shape):
            return "its sizes are known only at run time"
        if any(t.stride != contiguous_strides(t.shape) for t in (self.input, self.weight)):
            return "its memory format is not row-major"  # where an extent is 1, what is contiguous may be channels last
        if self.weight.numel > _HEAVY * self.input.numel:
            return "its weight is larger than its input: it would be laid out again on every call"
        return "" if self._stays else "PyTorch has no kernel for it that is fast in channels last"

    @property
    def _stays(self) -> bool:
        """Whether PyTorch runs it as it is, given the input in channels last."""
        with plain():
            input, weight = (torch.empty(t.shape, dtype=getattr(torch, t.dtype)) for t in (self.input, self.weight))
            input = torch.empty_like(input, memory_format=_FORMATS[input.ndim])
            bias = None if self.bias is None else input.new_empty(self.bias.shape)
            return inductor.stays_channels_last(input, weight, bias, self.rest)

    @property
    def rest(self) -> tuple[Any, ...]:
        """What follows the operands in a call of ``torch.convolution``, and of its derivative."""
        return self.stride, self.padding, self.dilation, self.transposed, self.output_padding, self.groups

    def run(self, laid_out: Tensor) -> Tensor:
        """The result for the input in channels last."""
        return _row_major(torch.convolution(laid_out, self.weight, self.bias, *self.rest))


def direct(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Call:
    """A call of ``conv2d`` or ``conv3d``."""
    n = weight.ndim - 2
    dilation = _dilation(weight, dilation)
    return Call(input, weight, bias, _each(stride, n), _each(padding, n), dilation, False, [0] * n, groups)


def transposed(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Call:
    """A call of ``conv_transpose2d`` or ``conv_transpose3d``."""
    n = weight.ndim - 2
    stride, padding, output_padding = (_each(v, n) for v in (stride, padding, output_padding))
    return Call(input, weight, bias, stride, padding, _dilation(weight, dilation), True, output_padding, groups)


@dataclass(frozen=True)
class Convolution:
    """The claim on a function. call: its arguments, by their names."""

    call: Callable[..., Call]

    def check(self, cx: ClaimContext, *args: Any, **kwargs: Any) -> Yes | No:
        reason = self.call(*args, **kwargs).unfit
        return No(reason) if reason else Yes("channels last")

    def lower(self, *args: Any, **kwargs: Any) -> Tensor:
        call = self.call(*args, **kwargs)
        return call.run(_channels_last(call.input))

    def forward(self, *args: Any, cx: ClaimContext, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
        call = self.call(*args, **kwargs)
        laid_out = _channels_last(call.input)
        return call.run(laid_out), (laid_out, call.weight, cx.needs_grad, call.rest)


def backward(saved: tuple[Any, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
    laid_out, weight, needs, rest = saved
    sizes = [grad.shape[1]] if len(needs) > 2 else None
    gradients = torch.ops.aten.convolution_backward(
        _channels_last(grad), laid_out, weight, sizes, *rest, [*needs, False][:3]
    )
    return tuple(_row_major(g) if need else None for g, need in zip(gradients, needs))


DIRECT, TRANSPOSED = Convolution(direct), Convolution(transposed)


def _channels_last(t: Tensor) -> Tensor:
    return torch.clone(t, memory_format=_FORMATS[t.ndim])


def _row_major(t: Tensor) -> Tensor:
    laid_out = torch.clone(t, memory_format=torch.contiguous_format)
    return t if t.stride() == laid_out.stride() else laid_out


def _dilation(weight: Any, dilation: Any) -> list[int]:
    """A kernel of one element has none, but if it is said to have, PyTorch gives it to oneDNN on one thread as well.

    Otherwise it would compute a matrix product there, which takes 2.4 times as long.
    """
    space = weight.shape[2:]
    return [2] * len(space) if all(extent == 1 for extent in space) else _each(dilation, len(space))


def _each(value: Any, dimensions: int) -> Any:
    """One number for each dimension of space, from one for all or for each; text as it is."""
    if isinstance(value, (int, str)):
        return value if isinstance(value, str) else [value] * dimensions
    return list(value) * (dimensions // len(value))
