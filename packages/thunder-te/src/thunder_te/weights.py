"""Weights in FP8, quantised once for each value they take."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from thunder_te.precision import How

Quantised = tuple[tuple[Tensor, ...], Tensor | None]
"""The parts of a quantised weight, and its largest absolute value where scales depend on it."""


class Weights:
    """The last weight of one call of a layer, quantised.

    It is quantised again when the parameter or its version counter changes (an optimizer step), not for each
    micro-batch. Tensors that are not parameters (a weight cast by autocast) are quantised each time.
    """

    def __init__(self, of: str) -> None:
        self.of = of
        self._weight: Any = None
        self._key: Any = None
        self._quantised: Quantised | None = None

    def get(self, weight: Tensor, how: How, quantise: Callable[[], Quantised]) -> Quantised:
        """The quantised weight; made by ``quantise`` if it is not the one that is kept."""
        if not isinstance(weight, torch.nn.Parameter) or weight.is_inference():  # the latter have no version counter
            return quantise()
        key = (weight._version, weight.data_ptr(), how)
        if self._quantised is None or self._weight() is not weight or self._key != key:
            self._weight, self._key, self._quantised = weakref.ref(weight), key, quantise()
        return self._quantised
