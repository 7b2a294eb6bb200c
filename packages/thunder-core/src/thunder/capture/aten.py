"""Recording below autograd: the ATen operators that calls are made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from thunder.capture.fakes import as_real, by_real_kernel
from thunder.capture.log import Log, tensor_leaves
from thunder.capture.randomness import TorchGenerator
from thunder.capture.source import user_line
from thunder.capture.standins import Standins
from thunder.errors import CaptureError
from thunder.ir.types import TensorType, Var
from thunder.lang.numbers import symbolic_kernels
from thunder.prims.facts import (
    changes_metadata,
    draws,
    functional_operators,
    makes_new_tensors,
    read_arguments,
    returns_view,
    written_arguments,
)

_LIFT = torch.ops.aten.lift_fresh.default
_DEVICE = torch.ops.prim.device.default
_QUERIES = frozenset({_DEVICE, torch.ops.aten.sym_size.default})


class AtenRecorder(TorchDispatchMode):
    """Logs each ATen operator that runs while it is active."""

    def __init__(self, log: Log, standins: Standins) -> None:
        super().__init__()
        self.log = log
        self._standins = standins

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if op is _DEVICE and type(args[0]) is FakeTensor:
            return args[0].device  # asked several times for each call: the shortest way to its answer
        kwargs = kwargs or {}
        if op is not _LIFT:
            args, kwargs = self._standins.fake((args, kwargs))
        try:
            with symbolic_kernels():
                out = as_real(op, args, op(*args, **kwargs))
        except RuntimeError as error:
            out = by_real_kernel(op, args, kwargs, error)
        if op is torch.ops.aten.detach.default and self.log.knows(args[0]):
            self.log.bind(out, self.log.var(args[0]))  # below autograd it is no operation
        elif op not in _QUERIES:
            record_aten(self.log, op, args, kwargs, out)
        return out


def record_aten(
    log: Log, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, *, grad: bool = False
) -> None:
    """Log one ATen call. grad: its results carry gradients, which tensors below autograd do not say."""
    if op is _LIFT:
        log.bind(out, log.var(args[0]) if log.knows(args[0]) else _constant(log, args[0]))
        return
    if changes_metadata(op):
        _rebind(log, op, args, kwargs)
        return
    writes = written_arguments(op, args, kwargs)
    fresh = [t for t in tensor_leaves(out) if not log.knows(t)]
    if not fresh and not writes:
        return
    random, args = draws(op, args, kwargs), read_arguments(op, args)
    log.add(op, args, kwargs, out, writes=writes, random=random, source=None, grad=grad)


def _rebind(log: Log, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Log a call that changes sizes in place (``unsqueeze_``): its tensor is a view of what it was from now on."""
    t, *rest = args
    view = next(filter(returns_view, functional_operators(op)), None)
    if view is None or log.var(t) in log.params:
        where = user_line()
        raise CaptureError(f"{op} changes the sizes of a tensor in place", where=where, fix="use the functional form")
    log.add(view, (log.replaced(t), *rest), kwargs, t, writes=[], random=False, source=None)


def _constant(log: Log, t: torch.Tensor) -> Var:
    """A parameter bound to a tensor that was made of Python values."""
    var = log.param(t, "constant")
    log.constants[var] = t
    return var


@cache
def _asks_values(op: Any) -> bool:
    """True if an operator that returns a number reads tensors, and so has no answer for tensors without data."""
    reads = any("Tensor" in str(argument.type) for argument in op._schema.arguments)
    return reads and not torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "Meta")


class Observer(TorchDispatchMode):
    """Notes facts about the ATen operators below recorded calls: what is written, whether one draws at random.

    An operator that runs outside any recorded call (function transforms run theirs between calls) is logged itself.
    """

    def __init__(self, log: Log, standins: Standins, generator: TorchGenerator) -> None:
        super().__init__()
        self.log = log
        self.standins = standins
        self._generator = generator
        self.inside = False
        self.random = False
        self.rebinds = False
        self.written: list[torch.Tensor] = []
        self.casts: list[tuple[torch.Tensor, torch.Tensor]] = []

    def observe(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one call with fresh notes."""
        self.random = self.rebinds = False
        self.written, self.casts = [], []
        outer, self.inside = self.inside, True
        try:
            return fn(*args, **kwargs)
        finally:
            self.inside = outer

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if op is _DEVICE and type(args[0]) is FakeTensor:
            return args[0].device  # asked several times for each call: the shortest way to its answer
        kwargs = kwargs or {}
        if op is not _LIFT:
            args, kwargs = (self.standins.inside if self.inside else self.standins.fake)((args, kwargs))
        try:
            with symbolic_kernels():
                out = as_real(op, args, op(*args, **kwargs))
        except RuntimeError as error:
            out = by_real_kernel(op, args, kwargs, error)
        if op in _QUERIES:
            return out
        random = draws(op, args, kwargs)
        if random:
            self._generator.check()
        if isinstance(out, (bool, int, float)) and _asks_values(op):
            raise DataDependentOutputException(op)  # PyTorch ran the real kernel, on zeros
        if args and out is args[0] and makes_new_tensors(op):
            out = torch.ops.aten.alias.default(out)  # as from the real kernel: autograd must see another tensor
        if not self.inside:
            new = [t for t in tensor_leaves(out) if not self.log.knows(t)]
            record_aten(self.log, op, args, kwargs, out, grad=self._carries_gradients(args, kwargs))
            for t in () if torch.is_grad_enabled() else new:
                self.log.detach(t)
            return out
        self.random = self.random or random
        if changes_metadata(op):
            self.rebinds = True
        else:
            self.written.extend(written_arguments(op, args, kwargs))
        if op is torch.ops.aten._to_copy.default:
            self.casts.append((args[0], out))
        return out

    def _carries_gradients(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        types = (self.log.var(t).type for t in tensor_leaves((args, kwargs)) if self.log.knows(t))
        return torch.is_grad_enabled() and any(isinstance(t, TensorType) and t.requires_grad for t in types)
