"""The arithmetic of delayed scaling, equal to TransformerEngine's to the bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thunder_te.precision import Rule

LARGEST_SCALE = torch.finfo(torch.float32).max


def advance(history: Tensor, scale: Tensor, newest: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    """Histories and scales after a step.

    history: float32 [steps, scales], row 1 the oldest, the last row the newest; row 0 is the step in progress, and
    zero between steps. scale, newest: float32 [scales]; newest is the largest absolute value seen in the step, zero for
    what was not seen: it keeps its history and scale.
    """
    history = torch.cat([newest[None], history[1:]])
    amax = _amax(history, rule.amax)
    seen = newest != 0
    rolled = torch.cat([history[1:], history[:1]])
    rolled[0] = 0
    return torch.where(seen, rolled, history), torch.where(seen, _scale(amax, scale, rule), scale)


def _amax(history: Tensor, algorithm: Any) -> Tensor:
    if callable(algorithm):
        return algorithm(history)
    return history.amax(0) if algorithm == "max" else history[0]


def _scale(amax: Tensor, scale: Tensor, rule: Rule) -> Tensor:
    if rule.scale is not None:
        return rule.scale(amax, scale, rule.largest)
    new = divided(rule.largest, amax) / 2**rule.margin
    usable = torch.isfinite(amax) & (amax > 0)
    return torch.where(usable, new.clamp(max=LARGEST_SCALE), scale)


def divided(number: float, t: Tensor) -> Tensor:
    """``number / t`` rounded once, as kernels do it: torch's own multiplies by the reciprocal."""
    return t.new_full((), number) / t


def resized(history: Tensor, steps: int) -> Tensor:
    """The history for a number of steps: the newest are kept."""
    if len(history) == steps:
        return history
    kept = min(steps, len(history)) - 1
    return torch.cat(
        [history[:1], history.new_zeros(steps - 1 - kept, history.shape[1]), history[len(history) - kept :]]
    )
