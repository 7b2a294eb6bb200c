"""Minimum cuts of directed graphs (Dinic's algorithm)."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from itertools import pairwise


class Network:
    """A directed graph with capacities."""

    def __init__(self) -> None:
        self._residual: dict[Hashable, dict[Hashable, float]] = {}

    def join(self, tail: Hashable, head: Hashable, capacity: float) -> None:
        """Add an edge; a second one between the same nodes adds to the first. ``math.inf`` cannot be cut."""
        forward = self._residual.setdefault(tail, {})
        forward[head] = forward.get(head, 0) + capacity
        self._residual.setdefault(head, {}).setdefault(tail, 0)

    def behind_cut(self, source: Hashable, sink: Hashable) -> set[Hashable]:
        """The nodes on the sink's side of a minimum cut; of several cuts, the one with the fewest such nodes.

        Every path from source to sink must have an edge of finite capacity.
        """
        while levels := self._levels(source, sink):
            self._block(source, sink, levels)
        behind, pending = {sink}, deque([sink])
        while pending:
            head = pending.popleft()
            new = [tail for tail in self._residual.get(head, ()) if self._residual[tail][head] and tail not in behind]
            behind.update(new)
            pending.extend(new)
        return behind

    def _levels(self, source: Hashable, sink: Hashable) -> dict[Hashable, int]:
        """The distance of each node from the source along edges with capacity left; empty if the sink has none."""
        levels, pending = {source: 0}, deque([source])
        while pending:
            tail = pending.popleft()
            for head, left in self._residual.get(tail, {}).items():
                if left and head not in levels:
                    levels[head] = levels[tail] + 1
                    pending.append(head)
        return levels if sink in levels else {}

    def _block(self, source: Hashable, sink: Hashable, levels: dict[Hashable, int]) -> None:
        """Push flow along shortest paths until each has an edge without capacity left."""
        residual = self._residual
        ahead = {tail: [h for h in residual[tail] if levels.get(h) == level + 1] for tail, level in levels.items()}
        path = [source]
        while path:
            tail = path[-1]
            if tail == sink:
                self._push(path)
                path = [source]
                continue
            while ahead[tail] and not residual[tail][ahead[tail][-1]]:
                ahead[tail].pop()
            if ahead[tail]:
                path.append(ahead[tail][-1])
                continue
            path.pop()
            if path:
                ahead[path[-1]].pop()

    def _push(self, path: list[Hashable]) -> None:
        flow = min(self._residual[tail][head] for tail, head in pairwise(path))
        for tail, head in pairwise(path):
            self._residual[tail][head] -= flow
            self._residual[head][tail] += flow
