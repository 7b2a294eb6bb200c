"""Partitions of random graphs have no cycles; of small ones, what is together and what is apart."""

from __future__ import annotations

from graphlib import TopologicalSorter

from hypothesis import given
from hypothesis import strategies as st

from thunder.passes.partition import Graph, Node, joined, partition


@st.composite
def graphs(draw):
    """Graphs of up to 14 nodes with one value each, some parameters, and edges without data."""
    kinds = st.sampled_from([None, "cpu", "cpu", "cuda"])
    nodes, params = [], ["p0", "p1", "p2"]
    for index in range(draw(st.integers(1, 14))):
        data = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        order = draw(st.sets(st.integers(0, index - 1), max_size=1)) if index else set()
        reads = [f"v{i}" for i in sorted(data)] + sorted(draw(st.sets(st.sampled_from(params), max_size=2)))
        kind, joins = draw(kinds), draw(kinds)
        before, joins = frozenset(data | order), joins if kind is None else None
        nodes.append(Node(kind, before, tuple(reads), (f"v{index}",), joins))
    names = [*params, *(f"v{index}" for index in range(len(nodes)))]
    size = {name: draw(st.sampled_from([0, 1, 10, 100])) for name in names}
    kept = draw(st.sets(st.sampled_from(names[len(params) :]), max_size=3))
    return Graph(nodes, size, frozenset(kept))


@given(graphs())
def test_groups_never_depend_on_each_other_in_a_cycle(graph):
    groups = partition(graph)
    for together in (groups, joined(graph, groups)):
        check_acyclic(graph, together)


@given(graphs(), st.data())
def test_nor_do_some_of_them(graph, data):
    """Groups that are not worth it are left out before others are joined."""
    groups = [members for members in partition(graph) if data.draw(st.booleans())]
    check_acyclic(graph, joined(graph, groups))


def check_acyclic(graph, groups):
    group = {node: number for number, members in enumerate(groups) for node in members}
    whole = [("group", group[node]) if node in group else ("node", node) for node in range(len(graph.nodes))]
    sorter = TopologicalSorter({name: set() for name in whole})
    for index, node in enumerate(graph.nodes):
        for earlier in node.before:
            if whole[earlier] != whole[index]:
                sorter.add(whole[index], whole[earlier])
    sorter.prepare()  # raises CycleError


@given(graphs())
def test_what_joins_a_group_is_of_no_use_to_anybody_else(graph):
    """All that may join does, and nothing else: by the definition, one node at a time."""
    groups = partition(graph)
    for members, larger in zip(groups, joined(graph, groups), strict=True):
        for index, node in enumerate(graph.nodes):
            followers = {later for later, other in enumerate(graph.nodes) if index in other.before}
            useful = followers and followers.issubset(members) and not graph.kept.intersection(node.makes)
            fits = node.kind is None and node.joins == graph.nodes[members[0]].kind
            assert (index in larger) == (index in members or bool(useful and fits))


@given(graphs())
def test_each_node_with_a_kind_is_in_one_group_of_that_kind(graph):
    groups = partition(graph)
    members = [node for group in groups for node in group]
    assert sorted(members) == [index for index, node in enumerate(graph.nodes) if node.kind is not None]
    assert all(group == sorted(group) for group in groups)
    assert all(len({graph.nodes[node].kind for node in group}) == 1 for group in groups)


@given(graphs())
def test_an_edge_inside_a_group_is_not_also_a_path_outside(graph):
    """What a group waits for never waits for the group: no path leaves it and comes back."""
    for members in partition(graph):
        reached: set[int] = set()
        for index, node in enumerate(graph.nodes):
            before = {j for j in node.before if j in reached or j in members}
            if before and index not in members:
                reached.add(index)
            assert index not in members or not any(j in reached for j in node.before)


def chain(*kinds: str | None) -> Graph:
    nodes = [
        Node(kind, frozenset({i - 1} if i else ()), (f"v{i - 1}",) if i else ("p",), (f"v{i}",))
        for i, kind in enumerate(kinds)
    ]
    size = dict.fromkeys(["p", *(f"v{i}" for i in range(len(kinds)))], 8)
    return Graph(nodes, size, frozenset({f"v{len(kinds) - 1}"}))


def test_a_chain_is_one_group_between_what_is_in_none():
    assert partition(chain("cpu", "cpu", None, "cpu", "cpu", "cpu")) == [[0, 1], [3, 4, 5]]


def test_what_is_read_late_only_is_made_late():
    """The chain 0-1 is ready at once, but its only reader is behind node 3: made there, its value is never written."""
    nodes = [
        Node("cpu", frozenset(), ("p",), ("v0",)),
        Node("cpu", frozenset({0}), ("v0",), ("v1",)),
        Node("cpu", frozenset(), ("q",), ("v2",)),
        Node(None, frozenset({2}), ("v2",), ("v3",)),
        Node("cpu", frozenset({1, 3}), ("v1", "v3"), ("v4",)),
    ]
    size = dict.fromkeys(["p", "q", "v0", "v1", "v2", "v3", "v4"], 8)
    assert partition(Graph(nodes, size, frozenset({"v4"}))) == [[0, 1, 4], [2]]


def test_a_small_result_of_a_large_value_stays_where_that_is_made():
    nodes = [
        Node("cpu", frozenset(), ("p",), ("big",)),
        Node("cpu", frozenset({0}), ("big",), ("sum",)),
        Node(None, frozenset({0}), ("big",), ("far",)),
        Node("cpu", frozenset({1, 2}), ("sum", "far"), ("out",)),
    ]
    size = {"p": 100, "big": 100, "sum": 1, "far": 100, "out": 100}
    assert partition(Graph(nodes, size, frozenset({"out"}))) == [[0, 1], [3]]


def test_readers_of_one_large_value_are_merged_and_those_of_a_small_one_are_not():
    def two(shared: int) -> list[list[int]]:
        nodes = [Node("cpu", frozenset(), ("p", f"q{i}"), (f"v{i}",)) for i in range(2)]
        size = {"p": shared, "q0": 100, "q1": 100, "v0": 100, "v1": 100}
        return partition(Graph(nodes, size, frozenset({"v0", "v1"})))

    assert two(100) == [[0, 1]]
    assert two(1) == [[0], [1]]


def test_a_product_joins_the_group_that_alone_reads_it():
    """Of three products, one is read by a node of no group as well, and one is returned."""
    product = [Node(None, frozenset(), (f"p{i}",), (f"v{i}",), joins="cpu") for i in range(3)]
    both = Node("cpu", frozenset({0, 1, 2}), ("v0", "v1", "v2"), ("v3",))
    nodes = [*product, both, Node(None, frozenset({1}), ("v1",), ("v4",), joins="cpu")]
    size = {**{f"p{i}": 8 for i in range(3)}, **{f"v{i}": 8 for i in range(5)}}
    assert joined(Graph(nodes, size, frozenset({"v2", "v4"})), [[3]]) == [[0, 3]]
