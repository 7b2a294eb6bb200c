"""The closers: the end of a step for all scales that one compiled program has touched."""

from __future__ import annotations

import torch
import torch.distributed as dist

from thunder_te.precision import Direction, Rule
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


def _sync(direction: Direction, states: tuple[Scaling, ...]) -> None:
    """All histories advance together: one reduction over the processes, and one pass of arithmetic."""
    touched = [state for state in states if state.pending is not None]
    if not touched:  # inference with scales of training, which it leaves as they are
        return
    rule, reduction = touched[0].rule, touched[0].reduction
    assert rule is not None
    assert reduction is not None
    device = touched[0].scale.device  # layers may be on several
    newest = torch.stack([amax.to(device) for state in touched for amax in state.pending or ()])
    if touched[0].trained and _is_reduced(rule):
        names = [f"{state.of}.{slot}" for state in touched for slot in range(state.scales)]
        newest = reduction.largest(direction, names, newest, rule.group)
    history = torch.cat([state.history.to(device) for state in touched], 1)
    scale = torch.cat([state.scale.to(device) for state in touched])
    history, scale = advance(history, scale, newest, rule)
    counts = [state.scales for state in touched]
    for state, its_history, its_scale in zip(touched, history.split(counts, 1), scale.split(counts)):
        home = state.scale.device
        state.history, state.scale, state.pending = its_history.to(home), its_scale.to(home), None


def _is_reduced(rule: Rule) -> bool:
    shared = rule.reduce and dist.is_available() and dist.is_initialized()
    return shared and dist.get_world_size(rule.group) > 1
