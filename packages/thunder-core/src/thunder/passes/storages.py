"""The memory of a captured program: which of its variables lie in one storage, and which of them stands for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thunder.capture.log import Capture, Place
from thunder.errors import CaptureError
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
        base = max(self.inputs, key=lambda var: spans[var][1] - spans[var][0]) if self.inputs else self.all[0]
        low, high = spans[base]
        outside = [var for var in self.all if spans[var][0] < low or spans[var][1] > high]
        if not outside and (_is_dense(base, high - low) or self._all_alike(base)):
            return base
        if len(self.inputs) > 1 and all(tensor(var).dtype == tensor(base).dtype for var in self.all):
            return None
        raise CaptureError(
            f"{(outside or self.all)[-1].name} and {base.name} overlap in memory and are written to",
            why="neither tensor covers the other, so no single value holds both",
            fix='pass one tensor and slice it inside the function, or use frontend="dynamo"',
        )

    def _all_alike(self, base: Var) -> bool:
        """True if the inputs are one region; views taken of it in the program lie within it."""
        return all(geometry(var, self.places) == geometry(base, self.places) for var in self.inputs)

    def extent(self) -> tuple[int, int]:
        """First element that an input can reach, and the one after the last."""
        size = torch_dtype(tensor(self.inputs[0]).dtype).itemsize
        spans = [span(tensor(var), self.places[var]) for var in self.inputs]
        return min(low for low, _ in spans) // size, max(high for _, high in spans) // size


def span(type: TensorType, place: Place) -> tuple[int, int]:
    """First byte of the storage that the tensor can reach, and the one after the last."""
    size, type = torch_dtype(type.dtype).itemsize, in_torch(type)
    start = to_torch(place.offset) * size
    if type.numel == 0 or type.stride is None:
        return start, start
    reach = sum((extent - 1) * stride for extent, stride in zip(type.shape, type.stride))
    return start, start + (reach + 1) * size


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
