"""The largest values among the processes of a group, in one collective, whichever layers each of them has used."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from thunder.extend import PluginError


class Reduction:
    """Reduces the amaxes of one jitted function.

    A collective needs the same buffer on all processes, but a layer may be unused on some of them. So the processes
    agree on an order of names: the buffer has a place for each name that any process has ever used, zero where it was
    not used in this step. Its first element says that some process has a name without a place; then they all exchange
    names and values, once.
    """

    def __init__(self, of: str) -> None:
        self.of = of
        self._places: dict[str, dict[str, int]] = {}

    def largest(self, direction: str, names: list[str], values: Tensor, group: Any) -> Tensor:
        """The largest of each value among the processes. All of them must call it equally often.

        values: float32 [names]. Raises PluginError if the others do not take part: after the timeout of the group.
        """
        places = self._places.setdefault(direction, {})
        known = all(name in places for name in names)
        buffer = values.new_zeros(1 + len(places))
        if known:
            index = torch.tensor([1 + places[name] for name in names], device=values.device)
            buffer[index] = values
        else:
            buffer[0] = 1
        try:
            dist.all_reduce(buffer, dist.ReduceOp.MAX, group=group)
        except RuntimeError as error:
            raise _alone(direction, group) from error
        if buffer[0]:
            return self._agree(places, names, values, group)
        return buffer[index]

    def _agree(self, places: dict[str, int], names: list[str], values: Tensor, group: Any) -> Tensor:
        """Give new names the next places, in alphabetical order, and reduce the values on the way."""
        everywhere: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(everywhere, dict(zip(names, values.tolist())), group=group)
        for name in sorted({name for one in everywhere for name in one}.difference(places)):
            places[name] = len(places)
        largest = [max(one[name] for one in everywhere if name in one) for name in names]
        return torch.tensor(largest, dtype=values.dtype, device=values.device)


def _alone(direction: str, group: Any) -> PluginError:
    """What to say where a collective has failed: most often because another process does not take part."""
    return PluginError(
        f"the scales of the {direction} step were not reduced over {dist.get_world_size(group)} processes",
        why="each process must run as many FP8 steps as the others, and one has not, or has died",
        fix="let a process without data run any batch and multiply the loss by zero, name the processes that train in "
        "amax_reduction_group, or set reduce_amax=False in the recipe",
    )
