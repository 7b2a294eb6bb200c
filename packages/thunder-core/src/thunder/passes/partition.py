"""Partitioning a dataflow graph into groups that can each run as one operation.

Every node gets a *rank*, even for nodes that may be fused and odd for the others, that never falls along an edge and
that rises where an edge joins nodes which may not be in one group. So a path between two nodes of one rank stays in
that rank, and groups that are unions of its connected components can never depend on each other in a cycle.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

_SHARE = 0.25
"""Groups of one rank are merged if they share at least this much of what the smaller one reads and writes: below it,
what is saved does not make up for results that wait for each other."""


@dataclass(frozen=True)
class Node:
    """An operation.

    kind: nodes of different kinds are never in one group; None for one that is in no group.
    before: the nodes that must run before it, all earlier in the graph. reads, makes: values.
    joins: for a node of no kind, the kind of the groups that it may join.
    """

    kind: Hashable
    before: frozenset[int]
    reads: tuple[Hashable, ...] = ()
    makes: tuple[Hashable, ...] = ()
    joins: Hashable = None


@dataclass(frozen=True)
class Graph:
    """Operations in an order that runs. size: bytes of each value. kept: values that somebody outside reads."""

    nodes: Sequence[Node]
    size: Mapping[Hashable, int]
    kept: frozenset[Hashable] = frozenset()


def partition(graph: Graph) -> list[list[int]]:
    """The groups, each ascending, in order of their first nodes; together all nodes with a kind.

    Replacing each group by one node leaves a graph without cycles.
    """
    ranks = _Ranks(graph).final
    groups = _Groups(graph, ranks)
    for index, node in enumerate(graph.nodes):
        for earlier in node.before:
            if node.kind is not None and _together(graph.nodes[earlier], node) and ranks[earlier] == ranks[index]:
                groups.join(earlier, index)
    groups.merge_readers()
    return groups.all()


def joined(graph: Graph, groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """The groups, each with the nodes that may join it: nothing but the group waits for them or reads what they make.

    This makes no cycle: a way from a group to a node that leads nowhere but to the group would be one already.
    """
    number = {node: place for place, members in enumerate(groups) for node in members}
    followers: list[set[int | None]] = [set() for _ in graph.nodes]  # by group; None: one that is in none
    for index, node in enumerate(graph.nodes):
        for earlier in node.before:
            followers[earlier].add(number.get(index))
    larger = [list(members) for members in groups]
    for index, node in enumerate(graph.nodes):
        follower = followers[index].pop() if len(followers[index]) == 1 else None
        if follower is None or node.joins is None or not graph.kept.isdisjoint(node.makes):
            continue
        if graph.nodes[groups[follower][0]].kind == node.joins:
            larger[follower].append(index)
    return [sorted(members) for members in larger]


def _together(first: Node, second: Node) -> bool:
    return first.kind is not None and first.kind == second.kind


def _rise(first: Node, second: Node) -> int:
    """By how much the rank must rise along an edge: to the next odd or even number, or by two between two kinds."""
    if _together(first, second) or (first.kind is None and second.kind is None):
        return 0
    return 1 if first.kind is None or second.kind is None else 2


class _Ranks:
    """The rank of each node: between as early and as late as possible, where it moves the fewest bytes.

    A node takes its place after all that read it: what reads it late lets it come late, too, and a value that can be
    made where it is read is never written to memory.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._maker = {value: index for index, node in enumerate(graph.nodes) for value in node.makes}
        self._after: list[list[int]] = [[] for _ in graph.nodes]
        self.final = [-1 if node.kind is None else 0 for node in graph.nodes]
        for index, node in enumerate(graph.nodes):
            for earlier in node.before:
                self._after[earlier].append(index)
                rank = self.final[earlier] + _rise(graph.nodes[earlier], node)
                self.final[index] = max(self.final[index], rank)
        self._last = max(self.final, default=0) | 1
        self._readers: dict[Hashable, set[int]] = {}
        for index in reversed(range(len(graph.nodes))):
            self.final[index] = self._placed(index)
            for value in graph.nodes[index].reads:
                self._readers.setdefault(value, set()).add(self.final[index])

    def _placed(self, index: int) -> int:
        node, earliest = self._graph.nodes[index], self.final[index]
        limits = [self.final[j] - _rise(node, self._graph.nodes[j]) for j in self._after[index]]
        if not limits and node.kind is None:
            return self._last
        latest = min(limits) if limits else None
        if node.kind is None or latest == earliest:
            return earliest if latest is None else latest
        ranks = {rank for value in node.reads for rank in self._readers.get(value, ()) if rank % 2 == 0}
        ranks = {rank for rank in ranks if rank > earliest and (latest is None or rank < latest)}
        candidates = sorted({earliest, *ranks, *([] if latest is None else [latest])})
        return min(candidates, key=lambda rank: self._moved(node, rank))

    def _moved(self, node: Node, rank: int) -> int:
        """Bytes that are read and written if the node has this rank, apart from those that are so anyway."""
        size, moved = self._graph.size, 0
        for value in node.reads:
            if rank not in self._readers.get(value, ()) and not self._may_follow(value, node, rank):
                moved += size[value]
        for value in node.makes:
            elsewhere = [r for r in self._readers.get(value, ()) if r != rank]
            moved += size[value] * (len(elsewhere) + (bool(elsewhere) or value in self._graph.kept))
        return moved

    def _may_follow(self, value: Hashable, node: Node, rank: int) -> bool:
        """True if what makes the value may still come to the rank, so that reading it there costs nothing."""
        maker = self._maker.get(value)
        if maker is None or not _together(self._graph.nodes[maker], node):
            return False
        return all(rank <= reader for reader in self._readers.get(value, ()))


class _Groups:
    """Disjoint sets of nodes that are being joined."""

    def __init__(self, graph: Graph, ranks: Sequence[int]) -> None:
        self._graph = graph
        self._ranks = ranks
        self._parent = list(range(len(graph.nodes)))

    def find(self, index: int) -> int:
        """The first node of the group that a node is in."""
        parent = self._parent
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    def join(self, first: int, second: int) -> None:
        """Make the groups of two nodes one."""
        low, high = sorted((self.find(first), self.find(second)))
        self._parent[high] = low

    def merge_readers(self) -> None:
        """Join groups of one rank that read the same large values, the largest first."""
        traffic = self._traffic()
        readers: dict[tuple[Hashable, int, Hashable], dict[int, None]] = {}
        for index, node in enumerate(self._graph.nodes):
            for value in node.reads if node.kind is not None else ():
                readers.setdefault((value, self._ranks[index], node.kind), {})[index] = None
        for (value, _, _), nodes in sorted(readers.items(), key=lambda item: -self._graph.size[item[0][0]]):
            first, *others = dict.fromkeys(map(self.find, nodes))
            for second in others:
                if self._graph.size[value] >= _SHARE * min(traffic[first], traffic[second]):
                    both = traffic[first] + traffic[second] - self._graph.size[value]
                    self.join(first, second)
                    first = self.find(first)
                    traffic[first] = both

    def _traffic(self) -> dict[int, int]:
        """The bytes that each group reads and writes."""
        size, readers = self._graph.size, self._readers()
        traffic: dict[int, int] = {}
        for members in self.all():
            inside = set(members)
            made = {value for index in members for value in self._graph.nodes[index].makes}
            read = {value for index in members for value in self._graph.nodes[index].reads} - made
            out = {v for v in made if v in self._graph.kept or not inside.issuperset(readers.get(v, ()))}
            traffic[members[0]] = sum(size[value] for value in (*read, *out))
        return traffic

    def _readers(self) -> dict[Hashable, list[int]]:
        readers: dict[Hashable, list[int]] = {}
        for index, node in enumerate(self._graph.nodes):
            for value in node.reads:
                readers.setdefault(value, []).append(index)
        return readers

    def all(self) -> list[list[int]]:
        """The groups."""
        groups: dict[int, list[int]] = {}
        for index, node in enumerate(self._graph.nodes):
            if node.kind is not None:
                groups.setdefault(self.find(index), []).append(index)
        return list(groups.values())
