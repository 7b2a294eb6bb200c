"""Random numbers of a seed and an offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.extend import TensorType
from thunder_nvfuser.builder import Builder, Value
from thunder_nvfuser.random import emit
from thunder_nvfuser.table import FLOATS, Row


def numbers(name: str) -> Callable[..., Any]:
    def lower(b: Builder, out: TensorType, shape: Any, seed: Value, offset: Value, dtype: Any, device: Any) -> Any:
        return emit(b.ops, name, out.shape, seed.view, offset.view, b.dtype(out.dtype))

    return lower


ROWS: dict[str, Row] = {
    f"nvfuser.{name}": Row(lower=numbers(name), operands=frozenset(), results=FLOATS, option="rng", by_value=True)
    for name in ("uniform", "normal")
}
