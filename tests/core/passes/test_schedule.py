from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.ir.programs import (
    CALLS,
    EACH,
    FIRST,
    HANDLES,
    INPUTS,
    LAST,
    NUMBER,
    bind,
    conflicts,
    lowered,
    mix,
    programs,
    splits,
    touched,
    update,
)
from thunder.errors import VerifyError
from thunder.ir import (
    Access,
    BoundSymbol,
    Effect,
    Phase,
    Stage,
    StateKind,
    Trace,
    Var,
    reorder,
    verify,
    verify_schedule,
)
from thunder.passes.dce import dce
from thunder.passes.schedule import schedule, topological

X, Y = INPUTS
T0, T1, T2 = (Var(f"t{n}", NUMBER) for n in range(3))
FORWARD, BACKWARD = Phase.FORWARD, Phase.BACKWARD


def handles(kind: StateKind) -> list[Var]:
    return [handle for handle, of in HANDLES.items() if of is kind]


def touch(kind: StateKind, number: int, phase: Phase = FORWARD) -> BoundSymbol:
    handle = handles(kind)[number]
    return bind(update, (handle, X), None, (Effect(kind, Access.UPDATE, handle),), phase=phase)


def closers(trace: Trace) -> list[BoundSymbol]:
    return [op for op in trace.ops if op.sym.name in CALLS]


@given(splits(), st.data())
def test_a_state_is_closed_iff_it_was_touched_once_and_after_every_access(
    traces: dict[Phase, Trace], data: st.DataObject
) -> None:
    traces = {phase: dce(trace) for phase, trace in traces.items()}
    scheduled = schedule(traces, CALLS)
    verify_schedule(scheduled)
    of_phase = {phase: touched(trace) for phase, trace in traces.items()}
    closings = [
        (phase, e.state.name, e.handle) for phase, t in scheduled.items() for op in closers(t) for e in op.effects
    ]
    for (name, handle), kind in {**of_phase[FORWARD], **of_phase[BACKWARD]}.items():
        touching = [phase for phase in (FORWARD, BACKWARD) if (name, handle) in of_phase[phase]]
        due = {"each": touching, "first": touching[:1], "last": touching[-1:]}
        assert [phase for phase, n, h in closings if (n, h) == (name, handle)] == due[kind.closes]
    assert {(n, h) for _, n, h in closings} == {*of_phase[FORWARD], *of_phase[BACKWARD]}
    for trace in scheduled.values():
        verify(trace)
        for at, op in ((i, op) for i, op in enumerate(trace.ops) if op.sym.name in CALLS):
            assert not any(conflicts(op, later) for later in trace.ops[at + 1 :])
            assert list(op.args) == sorted(op.args, key=lambda handle: handle.name)


@given(splits())
def test_the_given_order_is_kept_where_it_is_legal(traces: dict[Phase, Trace]) -> None:
    for phase, trace in schedule(traces, CALLS).items():
        assert trace.stage is Stage.SCHEDULED
        assert [op for op in trace.ops if op.sym.name not in CALLS] == list(traces[phase].ops)


@given(programs(stateful=False), st.data())
def test_any_listing_of_pure_operations_becomes_legal(trace: Trace, data: st.DataObject) -> None:
    shuffled = trace.with_ops(data.draw(st.permutations(trace.ops)))
    scheduled = schedule({FORWARD: shuffled})[FORWARD]
    verify(scheduled)
    assert sorted(map(id, scheduled.ops)) == sorted(map(id, trace.ops))


@given(splits(), st.data())
def test_nothing_that_touches_a_closed_state_moves_behind_its_closer(
    traces: dict[Phase, Trace], data: st.DataObject
) -> None:
    trace = schedule(traces, CALLS)[data.draw(st.sampled_from([FORWARD, BACKWARD]))]
    order = data.draw(st.permutations(range(len(trace.ops))))
    try:
        moved = reorder(trace, order)
    except VerifyError:
        return
    for closer in closers(trace):
        at = next(i for i, op in enumerate(moved.ops) if op is closer)
        assert not any(conflicts(op, closer) for op in moved.ops[at + 1 :])


def test_one_closer_takes_all_handles_of_its_kind() -> None:
    forward = lowered([touch(LAST, 1), touch(EACH, 0), touch(LAST, 0)], X)
    backward = lowered([touch(EACH, 1, BACKWARD)], X, "backward")
    scheduled = schedule({FORWARD: forward, BACKWARD: backward}, CALLS)
    assert [(op.sym.name, op.args) for op in closers(scheduled[FORWARD])] == [
        ("fake.sync_each", (handles(EACH)[0],)),
        ("fake.sync_last", tuple(handles(LAST))),
    ]
    assert [(op.sym.name, op.args) for op in closers(scheduled[BACKWARD])] == [
        ("fake.sync_each", (handles(EACH)[1],)),
    ]


@pytest.mark.parametrize(("kind", "due"), [(LAST, [BACKWARD]), (FIRST, [FORWARD]), (EACH, [FORWARD, BACKWARD])])
def test_a_state_touched_in_both_phases_is_closed_in_the_phase_that_owes_it(kind: StateKind, due: list[Phase]) -> None:
    """As with an operation that checkpointing runs again in backward."""
    backward = lowered([touch(kind, 0, BACKWARD)], X, "backward")
    scheduled = schedule({BACKWARD: backward, FORWARD: lowered([touch(kind, 0)], X)}, CALLS)
    assert [phase for phase in Phase if phase in scheduled and closers(scheduled[phase])] == due


def test_each_phase_closes_what_no_later_one_touches() -> None:
    forward = lowered([touch(LAST, 0), touch(LAST, 1)], X)
    backward = lowered([touch(LAST, 1, BACKWARD)], X, "backward")
    scheduled = schedule({FORWARD: forward, BACKWARD: backward}, CALLS)
    assert [[op.args for op in closers(trace)] for trace in scheduled.values()] == [
        [(handles(LAST)[0],)],
        [(handles(LAST)[1],)],
    ]


def test_without_backward_the_forward_trace_closes() -> None:
    scheduled = schedule({FORWARD: lowered([touch(LAST, 0)], X), BACKWARD: lowered([], X, "backward")}, CALLS)
    assert [len(closers(trace)) for trace in scheduled.values()] == [1, 0]


def test_a_closer_is_a_complete_operation_before_the_epilogue() -> None:
    epilogue = bind(mix, (X,), None, phase=Phase.EPILOGUE)
    trace = schedule({FORWARD: lowered([touch(LAST, 0), epilogue], X)}, CALLS)[FORWARD]
    closer = trace.ops[1]
    assert trace.ops[2] is epilogue
    assert (closer.call, closer.phase, closer.selection and closer.selection.executor) == (
        CALLS["fake.sync_last"],
        FORWARD,
        "fake",
    )
    assert closer.effects == (Effect(LAST, Access.WRITE, handles(LAST)[0]),)


def test_reading_a_state_owes_nothing() -> None:
    handle = handles(LAST)[0]
    trace = lowered([bind(mix, (X,), T0, (Effect(LAST, Access.READ, handle),))], T0)
    assert not closers(schedule({FORWARD: trace}, CALLS)[FORWARD])


def test_what_cannot_be_scheduled_is_an_error() -> None:
    trace = lowered([touch(LAST, 0)], X)
    with pytest.raises(VerifyError, match=r"fake\.sync_last has no callable"):
        schedule({FORWARD: trace})
    with pytest.raises(VerifyError, match="it is scheduled, not lowered"):
        schedule(schedule({FORWARD: trace}, CALLS), CALLS)
    with pytest.raises(VerifyError, match="depends on itself"):
        topological([bind(mix, (T1,), T0), bind(mix, (T0,), T1)])
