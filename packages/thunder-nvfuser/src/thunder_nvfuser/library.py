"""nvFuser's Python binding, imported when it is first used."""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class Library:
    """A module with the interface of ``nvfuser_direct``, and the types of the devices whose tensors it runs."""

    module: Any
    device_types: frozenset[str] = frozenset({"cuda"})

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
