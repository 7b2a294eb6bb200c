"""One region as nvFuser runs it: a definition for each description of its inputs, executed."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from thunder.extend import TensorType, Trace, Var, leaves, map_tree, to_torch
from thunder_nvfuser.builder import Builder
from thunder_nvfuser.library import Library
from thunder_nvfuser.lowerings import TABLE
from thunder_nvfuser.table import described

LIMIT = 16
"""How many descriptions of its inputs a region keeps definitions for."""

Strides = tuple[int, ...]
Description = tuple[tuple[tuple[bool | None, ...], tuple[int, ...]], ...]
"""Of each input, which dimensions are contiguous and in which order their strides grow."""


class Fusion:
    """The region's parameters to a tuple of its results, with the strides they have in the trace.

    The definition for inputs as the trace describes them is built at once: what nvFuser refuses shows here.
    """

    def __init__(self, region: Trace, library: Library) -> None:
        self._region = region
        self._library = library
        self._device = _device(region)
        self._strides = tuple(_tensor(v).stride for v in leaves(region.result))
        self._numbers = taken_by_value(region)
        self._by_strides = functools.lru_cache(maxsize=LIMIT)(self._described)
        self._by_description = functools.lru_cache(maxsize=LIMIT)(self._defined)
        self.definition = self._by_strides(tuple(_tensor(param).stride for param in region.params))

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        definition = self._by_strides(tuple([t.stride() for t in tensors]))
        device = None if len(tensors) > len(self._numbers) else self._device
        results = definition.execute(self.arguments(tensors), device=device)
        taken = {t.untyped_storage().data_ptr() for t in tensors}
        return tuple([_own(result, stride, taken) for result, stride in zip(results, self._strides)])

    def arguments(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """What nvFuser is given for the region's parameters: of those that kernels take by value, the number."""
        given: list[Any] = list(tensors)
        for place in self._numbers:
            given[place] = tensors[place].item()
        return given

    def _described(self, strides: Sequence[Strides]) -> Any:
        """The definition for inputs of these strides."""
        describe = self._library.module.compute_tensor_descriptor
        pairs = (describe(list(_tensor(p).shape), list(s)) for p, s in zip(self._region.params, strides, strict=True))
        return self._by_description(tuple((tuple(contiguity), tuple(order)) for contiguity, order in pairs))

    def _defined(self, description: Description) -> Any:
        with self._library.module.FusionDefinition() as definition:
            failure = self._define(definition, description)
        if failure is not None:
            raise failure
        return definition

    def _define(self, definition: Any, description: Description) -> Exception | None:
        """Emit the region. Returns what was raised: a definition that sees it prints it."""
        try:
            _define(self._region, Builder(definition, self._library, self._device), description, self._numbers)
        except Exception as error:
            return error
        return None


def _define(region: Trace, builder: Builder, description: Description, numbers: tuple[int, ...]) -> None:
    values: dict[Var, Any] = {}
    for place, (param, inputs) in enumerate(zip(region.params, description)):
        type = _tensor(param)
        values[param] = builder.number(type) if place in numbers else builder.input(type, *inputs)
    for op in region.ops:
        args, kwargs = _given(op.args, values), _given(op.kwargs, values)
        results = builder.lower(TABLE[op.sym.name], described(op.outs), args, kwargs)
        made = zip(leaves(op.outs), leaves(results), strict=True)
        values.update((var, value) for var, value in made if isinstance(var, Var))
    for var in leaves(region.result):
        builder.output(values[var], _order(_tensor(var)))


def _given(tree: Any, values: Mapping[Var, Any]) -> Any:
    return map_tree(lambda leaf: values[leaf] if isinstance(leaf, Var) else to_torch(leaf), tree)


def _tensor(var: Var) -> Any:
    assert isinstance(var.type, TensorType)
    return var.type


def taken_by_value(region: Trace) -> tuple[int, ...]:
    """The positions of the parameters that kernels take by value."""
    read = {v for op in region.ops if TABLE[op.sym.name].by_value for v in op.inputs}
    return tuple(place for place, param in enumerate(region.params) if param in read)


def _device(region: Trace) -> str:
    """The one device that a region makes tensors on. Raises ValueError if there are several."""
    devices = {_tensor(v).device for v in region.results}
    if len(devices) != 1:
        raise ValueError(f"the region is on {' and '.join(sorted(devices))}: nvFuser runs on one device")
    return devices.pop()


def _order(type: TensorType) -> tuple[int, ...] | None:
    """The rank of each dimension by its stride, 0 for the smallest; None if they shrink from left to right."""
    assert type.stride is not None
    dims = sorted(range(type.ndim), key=lambda d: (type.stride[d], -d) if type.shape[d] > 1 else (0, -d))  # type: ignore[index]  # strided
    rank = tuple(dims.index(d) for d in range(type.ndim))
    return None if rank == tuple(reversed(range(type.ndim))) else rank


def _own(t: torch.Tensor, stride: Strides, taken: set[int]) -> torch.Tensor:
    """A result in memory of its own, with the strides of the trace. taken: the memory of inputs and other results.

    nvFuser returns an input, or a view of one, where a fusion only moves its elements; and its tensors are dense. Where
    elements are to leave gaps in memory or share it, each is written once.
    """
    memory = t.untyped_storage().data_ptr()
    if memory not in taken:
        taken.add(memory)
        if t.stride() == stride:
            return t
        if all(n == 1 or found == want for n, found, want in zip(t.shape, t.stride(), stride)):
            return t.as_strided_(t.shape, stride)
    once = tuple(slice(1) if n > 1 and step == 0 else slice(None) for n, step in zip(t.shape, stride))
    out = torch.empty_strided(t.shape, stride, dtype=t.dtype, device=t.device)
    out[once].copy_(t[once])
    return out
