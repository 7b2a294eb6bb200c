"""What running operations costs, by a model: calls, bytes moved, and memory held at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Trace
from thunder.ir.types import TensorType, Type
from thunder.lang.names import resolve_symbol
from thunder.lang.values import by_example, torch_dtype
from thunder.prims.facts import has_flops, is_view


@dataclass(frozen=True)
class Machine:
    """What a device takes. call: microseconds of one operation on tensors of no size. speed: bytes per microsecond."""

    call: float
    speed: float


CPU = Machine(call=0.9, speed=50_000)
"""One core of a server: ``torch.add`` of 8 floats, and of 8 MiB. Above 32 MiB the memory of each result comes from the
operating system page by page, which takes far longer: there fusing saves even more."""

ACCELERATOR = Machine(call=5.0, speed=2_000_000)
"""Launching a kernel, and the memory of a GPU in a data centre: orders of magnitude, not measured."""

PEAK_PRICE = 0.25
"""A byte more of peak memory weighs as much as this many bytes moved."""


@dataclass(frozen=True)
class Cost:
    """calls: how many. moved: bytes read and written. peak: bytes held at once."""

    calls: int
    moved: int
    peak: int

    def time(self, machine: Machine, overhead: float = 0.0) -> float:
        """Microseconds. overhead: of each call beyond the machine's."""
        return self.calls * (machine.call + overhead) + (self.moved + PEAK_PRICE * self.peak) / machine.speed


def fused_cost(region: Trace) -> Cost:
    """What a region costs as one call: it reads each input and writes each result once."""
    whole = sum(size(var.type) for var in (*region.params, *region.results))
    return Cost(1, whole, whole)


def unfused_cost(region: Trace) -> Cost:
    """What the operations of a region cost one by one. A value is freed after its last use, the inputs as well."""
    owner = {var: var for var in region.variables()}
    for op in filter(views, region.ops):
        owner.update((out, owner[op.inputs[0]]) for out in op.outputs)
    ops = [op for op in region.ops if not views(op)]
    last = {owner[var]: index for index, op in enumerate(ops) for var in (*op.inputs, *op.outputs)}
    freed: dict[int, int] = {}
    for var, index in last.items():
        if var not in region.results:
            freed[index] = freed.get(index, 0) + size(var.type)
    moved = 0
    held = peak = sum(size(var.type) for var in region.params)
    for index, op in enumerate(ops):
        made = sum(size(var.type) for var in op.outputs)
        moved += made + sum(size(var.type) for var in op.inputs)
        peak = max(peak, held + made)
        held += made - freed.get(index, 0)
    return Cost(len(ops), moved, peak)


def machine_of(region: Trace) -> Machine:
    """The device that a region runs on."""
    devices = {var.type.device for var in region.variables() if isinstance(var.type, TensorType)}
    return CPU if all(device.startswith("cpu") for device in devices) else ACCELERATOR


def saves(region: Trace, overhead: float) -> float:
    """Microseconds that a region saves as one call. overhead: of that call beyond one of PyTorch's."""
    machine = machine_of(region)
    return unfused_cost(region).time(machine) - fused_cost(region).time(machine, overhead)


def is_single(region: Trace) -> bool:
    """True for a region of one operation, beside views."""
    return unfused_cost(region).calls == 1


def is_long(region: Trace) -> bool:
    """True for a region whose operations move bytes for longer than calling them takes."""
    machine, cost = machine_of(region), unfused_cost(region)
    return cost.moved > cost.calls * machine.call * machine.speed


def views(op: BoundSymbol) -> bool:
    """True for an ATen operation that only views its argument's memory. That of a number is no memory."""
    return op.sym.name.startswith("aten.") and bool(op.inputs) and is_view(resolve_symbol(op.sym.name))


def multiplies(op: BoundSymbol) -> bool:
    """True for an ATen operation whose arithmetic counts: a matrix product and its like."""
    return op.sym.name.startswith("aten.") and has_flops(resolve_symbol(op.sym.name))


def size(type: Type) -> int:
    """Bytes of a tensor; repeated elements of an expanded one are read once. Symbolic sizes count by example."""
    if not isinstance(type, TensorType) or type.stride is None:
        return 0
    type = by_example(type)
    assert type.stride is not None
    elements = 1
    for extent, step in zip(type.shape, type.stride, strict=True):
        elements *= extent if step or not extent else 1
    return elements * _itemsize(type.dtype)


@cache
def _itemsize(dtype: str) -> int:
    return torch_dtype(dtype).itemsize
