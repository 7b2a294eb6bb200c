"""The memory of a captured program: which of its variables lie in one storage, and which of them stands for all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

import torch

from thunder.capture.log import Capture, Place
from thunder.errors import CaptureError
from thunder.ir.effects import MEMORY, Access
from thunder.ir.symbol import BoundSymbol
from thunder.ir.types import TensorType, Var
from thunder.lang.values import in_torch, to_torch, torch_dtype

Geometry = tuple[tuple[Any, ...], tuple[Any, ...] | None, str, Any]


@dataclass(frozen=True)
class Members:
    """The variables that lie in one storage. inputs: those that are parameters of the program."""

    all: tuple[Var, ...]
    inputs: tuple[Var, ...]
    places: Mapping[Var, Place]

    @classmethod
    def of(cls, capture: Capture, storage: int) -> Members:
        found = tuple(var for var, place in capture.places.items() if place.storage == storage)
        return cls(found, tuple(var for var in found if var in capture.trace.params), capture.places)

    def base(self) -> Var | None:
        """The variable whose elements include those of all others; None if that takes several inputs.

        Raises CaptureError for overlaps that cannot be expressed.
        """
        spans = {var: span(tensor(var), self.places[var]) for var in self.all}
        self._check_histories()

        def reach(var: Var) -> tuple[int, bool, bool]:
            size = spans[var][1] - spans[var][0]
            return size, not repeats(tensor(var)), tensor(var).requires_grad

        base = max(self.inputs, key=reach) if self.inputs else self.all[0]
        low, high = spans[base]
        outside = [var for var in self._reaching() if spans[var][0] < low or spans[var][1] > high]
        if not outside and (_is_dense(base, high - low) or self._all_within(base)):
            return base
        if self.inputs and all(tensor(var).dtype == tensor(base).dtype for var in self.all):
            return None
        raise CaptureError(
            f"{(outside or self.all)[-1].name} and {base.name} overlap in memory and are written to",
            why="neither tensor covers the other, so no single value holds both",
            fix='pass one tensor and slice it inside the function, or use frontend="dynamo"',
        )

    def _check_histories(self) -> None:
        """Refuse inputs that share memory but not their autograd history: a write belongs to one of them only."""
        histories = {self.places[var].history: var for var in self.inputs if tensor(var).requires_grad}
        if len(histories) > 1:
            first, second, *_ = histories.values()
            raise CaptureError(
                f"{first.name} and {second.name} share memory that is written, and both require grad",
                why="they have different histories: neither is a view of the other for autograd",
                fix="pass one of them, and detach it inside the function",
            )

    def _all_within(self, base: Var) -> bool:
        """True if no variable has an element in the gaps that ``base`` leaves."""
        alike = all(tensor(var).dtype == tensor(base).dtype for var in self.all)
        return alike and not self._outside([base], self.all)

    def check_covered(self, written: Set[Var]) -> None:
        """Raise CaptureError for a write into gaps that the inputs leave: nothing would bring it to the caller."""
        for var in self._outside(self.inputs, written & {*self.all}):
            raise CaptureError(
                f"{var.name} is written where it reaches memory beside {self.inputs[0].name}",
                why="a program writes into its inputs only, and these elements lie between those of the input",
                fix='pass the whole tensor, or use frontend="dynamo"',
            )

    def _outside(self, covering: Iterable[Var], others: Collection[Var]) -> list[Var]:
        """Those of the others that have an element which none of the covering variables has."""
        low, high = self.extent()
        memory = torch.zeros(high - low, dtype=torch.bool)

        def seen(var: Var) -> torch.Tensor:
            type, offset = in_torch(tensor(var)), to_torch(self.places[var].offset)
            return memory.as_strided(type.shape, type.stride or (), offset - low)

        for var in set(covering).intersection(self._reaching()):
            seen(var).fill_(True)
        return [var for var in self._reaching() if var in others and not seen(var).all()]

    def extent(self) -> tuple[int, int]:
        """First element that a variable can reach, and the one after the last."""
        size = torch_dtype(tensor(self.all[0]).dtype).itemsize
        spans = [span(tensor(var), self.places[var]) for var in self._reaching()] or [(0, 0)]
        return min(low for low, _ in spans) // size, max(high for _, high in spans) // size

    def _reaching(self) -> list[Var]:
        """The variables that have elements."""
        return [var for var in self.all if in_torch(tensor(var)).numel]


def writes_of(op: BoundSymbol) -> list[Var]:
    """The variables whose memory the operation writes."""
    return [e.handle for e in op.effects if e.state is MEMORY and e.access is Access.WRITE and e.handle is not None]


def span(type: TensorType, place: Place) -> tuple[int, int]:
    """First byte of the storage that the tensor can reach, and the one after the last."""
    size, type = torch_dtype(type.dtype).itemsize, in_torch(type)
    start = to_torch(place.offset) * size
    if type.numel == 0 or type.stride is None:
        return start, start
    reach = sum((extent - 1) * stride for extent, stride in zip(type.shape, type.stride))
    return start, start + (reach + 1) * size


def repeats(type: TensorType) -> bool:
    """True if the tensor is expanded: it has elements several times."""
    return any(step == 0 and size != 1 for size, step in zip(type.shape, type.stride or ()))


def _is_dense(var: Var, size: int) -> bool:
    return in_torch(tensor(var)).numel * torch_dtype(tensor(var).dtype).itemsize == size


def geometry(var: Var, places: Mapping[Var, Place]) -> Geometry:
    """What two variables of one storage must share to be the same elements in the same order."""
    type = tensor(var)
    return type.shape, type.stride, type.dtype, places[var].offset


def tensor(var: Var) -> TensorType:
    """The type of a variable that is a tensor."""
    assert isinstance(var.type, TensorType)
    return var.type
