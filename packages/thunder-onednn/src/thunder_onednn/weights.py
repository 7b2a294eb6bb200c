"""Weights in the layout that oneDNN likes best, kept for as long as they are what they were."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from thunder_onednn import entry


@dataclass
class _Seen:
    """A weight that was used: which, its contents by version and address, and its packed copy once it is used again."""

    weight: weakref.ref[Tensor]
    contents: tuple[int, int]
    packed: Tensor | None = None


_SEEN: dict[int, _Seen] = {}
"""By ``id`` of the weight."""


def linear(
    input: Tensor, weight: Tensor, bias: Tensor | None, attr: str, scalars: list[float], algorithm: str
) -> Tensor:
    """``entry.linear``, from a packed copy of the weight when the same contents are used a second time."""
    return entry.linear(input, _packed(weight), bias, attr, scalars, algorithm)


def _packed(weight: Tensor) -> Tensor:
    """The packed copy of a weight; itself at first sight: what is made anew for each call would not be worth it."""
    if weight.is_inference():  # it has no version counter
        return weight
    key, contents = id(weight), (weight._version, weight.data_ptr())
    seen = _SEEN.get(key)
    if seen is None or seen.weight() is not weight or seen.contents != contents:
        _SEEN[key] = _Seen(weakref.ref(weight, lambda gone: _forget(key, gone)), contents)
        return weight
    if seen.packed is None:
        seen.packed = entry.packed(weight)
    return seen.packed


def _forget(key: int, gone: Any) -> None:
    seen = _SEEN.get(key)
    if seen is not None and seen.weight is gone:  # not of another tensor that has its id
        del _SEEN[key]
