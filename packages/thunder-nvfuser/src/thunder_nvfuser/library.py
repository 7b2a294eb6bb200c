"""nvFuser's Python binding, imported when it is first used."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

DTYPES = {
    "float64": "Double",
    "float32": "Float",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Int",
    "int32": "Int32",
    "uint64": "UInt64",
    "bool": "Bool",
}
"""The dtypes that nvFuser knows, with its names for them. It has complex and 8-bit floating point ones beside."""


def _generator(device: torch.device) -> torch.Generator:
    place = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[place]


@dataclass(frozen=True)
class Library:
    """A module with the interface of ``nvfuser_direct``, and the types of the devices whose tensors it runs.

    generator: the random generator of a device: something with ``initial_seed``, ``get_offset`` and ``set_offset``.
    """

    module: Any
    device_types: frozenset[str] = frozenset({"cuda"})
    generator: Callable[[torch.device], Any] = _generator

    @functools.cached_property
    def dtypes(self) -> dict[str, Any]:
        """nvFuser's dtypes, by torch's names."""
        return {name: getattr(self.module.DataType, theirs) for name, theirs in DTYPES.items()}

    @functools.cached_property
    def names(self) -> dict[Any, str]:
        """torch's names of nvFuser's dtypes."""
        return {theirs: name for name, theirs in self.dtypes.items()}


@functools.cache
def load() -> Library:
    """The library. Raises ImportError where it is not installed."""
    return Library(importlib.import_module("nvfuser_direct"))
