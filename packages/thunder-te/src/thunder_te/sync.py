"""The closers: the end of a step for all scales that one compiled program has touched."""

from __future__ import annotations

import torch
import torch.distributed as dist

from thunder_te.context import Precision
from thunder_te.scaling import advance
from thunder_te.state import Scaling, outside_modes


@outside_modes
def sync_fp8_meta_fwd(*states: Scaling) -> None:
    """New scales for inputs and weights, from what forward has seen."""
    _sync("forward", states)


@outside_modes
def sync_fp8_meta_bwd(*states: Scaling) -> None:
    """New scales for gradients, from what backward has seen."""
    _sync("backward", states)


def _sync(direction: str, states: tuple[Scaling, ...]) -> None:
    """All histories advance together: one reduction over the processes, and one pass of arithmetic."""
    touched = [state for state in states if state.pending is not None]
    if not touched:  # inference with scales of training, which it leaves as they are
        return
    first = touched[0]
    precision, reduction = first.precision, first.reduction
    assert precision is not None
    assert reduction is not None
    newest = torch.stack([amax for state in touched for amax in state.pending or ()])
    if first.trained and _is_reduced(precision):
        names = [f"{state.of}.{slot}" for state in touched for slot in range(state.scales)]
        newest = reduction.largest(direction, names, newest, precision.group)
    history = torch.cat([state.history for state in touched], 1)
    scale = torch.cat([state.scale for state in touched])
    largest = precision.largest_forward if direction == "forward" else precision.largest_backward
    history, scale = advance(history, scale, newest, largest, precision.recipe)
    counts = [state.scales for state in touched]
    for state, its_history, its_scale in zip(touched, history.split(counts, 1), scale.split(counts)):
        state.history, state.scale, state.pending = its_history, its_scale, None


def _is_reduced(precision: Precision) -> bool:
    shared = precision.recipe.reduce_amax and dist.is_available() and dist.is_initialized()
    return bool(shared) and dist.get_world_size(precision.group) > 1
