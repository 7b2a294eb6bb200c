from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.ir.programs import (
    HANDLES,
    INPUTS,
    LAST,
    NUMBER,
    bind,
    conflicts,
    fresh_arguments,
    interpret,
    lowered,
    mix,
    programs,
    update,
    write,
)
from thunder.errors import VerifyError
from thunder.ir import (
    MEMORY,
    Access,
    Effect,
    Phase,
    Trace,
    Var,
    consumers,
    deps,
    last_uses,
    producers,
    reorder,
)

X, Y = INPUTS
H, G = list(HANDLES)[:2]
T0, T1, T2 = (Var(f"t{n}", NUMBER) for n in range(3))


def closure(edges: tuple[frozenset[int], ...]) -> list[set[int]]:
    reached: list[set[int]] = []
    for before in edges:
        reached.append(set(before).union(*(reached[earlier] for earlier in before)))
    return reached


@given(programs())
def test_edges_are_exactly_the_conflicts_and_what_follows_from_them(trace: Trace) -> None:
    edges = deps(trace.ops)
    reached = closure(edges)
    for first, second in combinations(range(len(trace.ops)), 2):
        conflict = conflicts(trace.ops[first], trace.ops[second])
        assert not conflict or first in reached[second]
        assert conflict or first not in edges[second]


@given(programs(), st.data())
def test_neighbours_swap_iff_they_do_not_conflict(trace: Trace, data: st.DataObject) -> None:
    if len(trace.ops) < 2:
        return
    at = data.draw(st.integers(0, len(trace.ops) - 2))
    order = list(range(len(trace.ops)))
    order[at : at + 2] = reversed(order[at : at + 2])
    if conflicts(trace.ops[at], trace.ops[at + 1]):
        with pytest.raises(VerifyError, match="may not run before"):
            reorder(trace, order)
        return
    args, again = fresh_arguments(trace), fresh_arguments(trace)
    assert interpret(reorder(trace, order), args) == interpret(trace, again)
    assert args == again, "the states end up different"


@given(programs(), st.data())
def test_any_permutation_is_accepted_iff_it_inverts_no_conflict(trace: Trace, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(trace.ops))))
    inverted = [(a, b) for b, a in combinations(order, 2) if a < b and conflicts(trace.ops[a], trace.ops[b])]
    if inverted:
        with pytest.raises(VerifyError):
            reorder(trace, order)
    else:
        assert reorder(trace, order).ops == tuple(trace.ops[i] for i in order)


def test_order_must_be_a_permutation() -> None:
    trace = lowered([bind(mix, (X,), T0), bind(mix, (Y,), T1)], T1)
    for order in ([0], [0, 0], [0, 1, 2]):
        with pytest.raises(VerifyError, match="permutation"):
            reorder(trace, order)
    assert reorder(trace, [0, 1]) is trace


def test_updates_commute_and_a_writer_stays_where_it_is() -> None:
    ops = [
        bind(update, (H, X), T0, (Effect(LAST, Access.UPDATE, H),)),
        bind(update, (H, Y), T1, (Effect(LAST, Access.UPDATE, H),)),
        bind(write, (H, Y), T2, (Effect(LAST, Access.WRITE, H),)),
    ]
    trace = lowered(ops, (T0, T1, T2))
    assert reorder(trace, [1, 0, 2]).ops == (ops[1], ops[0], ops[2])
    for order in ([2, 0, 1], [0, 2, 1]):
        with pytest.raises(VerifyError, match=r"fake\.write may not run before fake\.update"):
            reorder(trace, order)


def test_states_of_different_handles_are_independent() -> None:
    ops = [bind(write, (h, X), t, (Effect(LAST, Access.WRITE, h),)) for h, t in ((H, T0), (G, T1))]
    assert deps(ops) == (frozenset(), frozenset())


def test_memory_is_written_after_every_read_of_the_variable() -> None:
    copy = bind(mix, (X, Y), None, (Effect(MEMORY, Access.WRITE, X),))
    ops = [bind(mix, (X,), T0), bind(mix, (Y,), T1), copy, bind(mix, (X,), T2)]
    assert deps(ops) == (frozenset(), frozenset(), frozenset({0}), frozenset({2}))


def test_phases_do_not_mix() -> None:
    trace = lowered([bind(mix, (X,), T0), bind(mix, (Y,), None, phase=Phase.EPILOGUE)], T0)
    with pytest.raises(VerifyError, match="forward ends before epilogue starts"):
        reorder(trace, [1, 0])


def test_a_producer_may_be_listed_after_its_reader() -> None:
    assert deps([bind(mix, (T1,), T0), bind(mix, (X,), T1)]) == (frozenset({1}), frozenset())


@given(programs())
def test_uses(trace: Trace) -> None:
    made, read, last = producers(trace), consumers(trace), last_uses(trace)
    for var in trace.variables():
        makers = [i for i, op in enumerate(trace.ops) if var in op.outputs]
        readers = [i for i, op in enumerate(trace.ops) if var in op.inputs]
        assert [made[var]] == makers if var in made else not makers
        assert read.get(var, []) == readers
        needed = () if var in trace.results else (*makers, *readers)
        assert last.get(var) == max(needed, default=None)


def test_deps_of_a_long_trace_stay_sparse() -> None:
    """A million pairs of updates conflict with a write; only neighbours in the chain are joined."""
    ops = []
    for index in range(2000):
        access = Access.WRITE if index == 1000 else Access.UPDATE
        ops.append(bind(update, (H, X), Var(f"t{index}", NUMBER), (Effect(LAST, access, H),)))
    assert sum(map(len, deps(ops))) == 1999
