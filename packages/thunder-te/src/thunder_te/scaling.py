"""The arithmetic of delayed scaling, equal to TransformerEngine's to the bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LARGEST_SCALE = torch.finfo(torch.float32).max


def advance(history: Tensor, scale: Tensor, newest: Tensor, largest: float, recipe: Any) -> tuple[Tensor, Tensor]:
    """Histories and scales after a step.

    history: float32 [steps, scales], row 1 the oldest, the last row the newest; row 0 is the step in progress, and
    zero between steps. scale, newest: float32 [scales]; newest is the largest absolute value seen in the step, zero for
    what was not seen: it keeps its history and scale. largest: of the 8-bit format.
    """
    history = torch.cat([newest[None], history[1:]])
    amax = _amax(history, recipe.amax_compute_algo)
    seen = newest != 0
    rolled = torch.cat([history[1:], history[:1]])
    rolled[0] = 0
    return torch.where(seen, rolled, history), torch.where(seen, _scale(amax, scale, largest, recipe), scale)


def _amax(history: Tensor, algorithm: Any) -> Tensor:
    if callable(algorithm):
        return algorithm(history)
    return history.amax(0) if algorithm == "max" else history[0]


def _scale(amax: Tensor, scale: Tensor, largest: float, recipe: Any) -> Tensor:
    if recipe.scaling_factor_compute_algo is not None:
        return recipe.scaling_factor_compute_algo(amax, scale, largest, recipe)
    new = (largest / amax) / 2**recipe.margin
    usable = torch.isfinite(amax) & (amax > 0)
    return torch.where(usable, new.clamp(max=LARGEST_SCALE), scale)


def resized(history: Tensor, steps: int) -> Tensor:
    """The history for another number of steps: the newest are kept."""
    kept = min(steps, len(history)) - 1
    return torch.cat([history[:1], history.new_zeros(steps - 1 - kept, history.shape[1]), history[len(history) - kept :]])
