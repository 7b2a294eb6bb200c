from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.core.ir.programs import (
    AMBIENT,
    CALLS,
    HANDLES,
    INPUTS,
    LAST,
    NUMBER,
    STATE,
    bind,
    lowered,
    mix,
    programs,
    splits,
    sync,
    update,
)
from thunder.errors import VerifyError
from thunder.ir import (
    MEMORY,
    Access,
    BoundSymbol,
    Effect,
    OpaqueType,
    Phase,
    Stage,
    Symbol,
    Trace,
    Var,
    verify,
    verify_effects,
    verify_schedule,
)
from thunder.passes.schedule import schedule

X, Y = INPUTS
H = next(iter(HANDLES))
T0, T1 = (Var(f"t{n}", NUMBER) for n in range(2))
CLOSER = Symbol("fake.sync_last")
MOVED = Effect(LAST, Access.UPDATE, H)
WRITTEN = Effect(MEMORY, Access.WRITE, X)


@given(splits())
def test_generated_programs_are_legal_at_every_stage_they_claim(traces: dict[Phase, Trace]) -> None:
    for trace in traces.values():
        for stage in (Stage.CAPTURED, Stage.FUNCTIONAL, Stage.SELECTED, Stage.JOINT, Stage.LOWERED):
            verify(trace, stage)
    scheduled = schedule(traces, CALLS)
    for trace in scheduled.values():
        verify(trace)
    verify_schedule(scheduled)


BROKEN = {
    "used before it is defined": lowered([bind(mix, (T0,), T1)], T1),
    "t0 is used before": lowered([bind(mix, (T0,), T1), bind(mix, (X,), T0)], T1),
    "t0 is defined twice": lowered([bind(mix, (X,), T0), bind(mix, (X,), T0)], T0),
    "x is defined twice": lowered([bind(mix, (Y,), X)], X),
    "two variables named t0": lowered([bind(mix, (X,), (T0, Var("t0", OpaqueType("other"))))], T0),
    "a parameter twice": lowered([], X, params=(X, X)),
    "returns t0, which is not defined": lowered([], T0),
    "is not an argument": lowered([bind(update, (X,), T0, (MOVED,))], T0),
    "h is used before": lowered([bind(update, (Var("h", STATE),), T0)], T0),
    "not a name that Python accepts": lowered([bind(mix, (X,), Var("class", NUMBER))], X),
    "'a.b' in forward is not a name": lowered([], X, params=(X, Var("a.b", NUMBER))),
    "type object must be a Const or a Ref": lowered([bind(mix, (object(),), T0)], T0),
    "outs are tuples and lists": lowered([bind(mix, (X,), {"a": T0})], T0),
    "leaves of outs are variables": lowered([bind(mix, (X,), (T0, 3))], T0),
    "forward operations come before backward": lowered(
        [bind(mix, (X,), T0, phase=Phase.BACKWARD), bind(mix, (X,), T1)], T0
    ),
    "only the epilogue writes memory": lowered([bind(mix, (X, Y), None, (WRITTEN,))], X),
    "the epilogue may not touch": lowered([bind(update, (H,), None, (MOVED,), phase=Phase.EPILOGUE)], X),
    "closers are derived by schedule": lowered([bind(sync, (H,), None, (MOVED,), sym=CLOSER)], X),
    "it has no call": lowered([bind(mix, (X,), T0, call=None)], T0),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_each_rule_rejects_what_breaks_it(rule: str) -> None:
    with pytest.raises(VerifyError) as caught:
        verify(BROKEN[rule])
    assert rule in str(caught.value)
    assert caught.value.where in ("", *(str(op.source) for op in BROKEN[rule].ops))


def test_stages_differ_in_what_they_demand() -> None:
    in_place = lowered([bind(mix, (X, Y), X)], X)
    verify(in_place, Stage.CAPTURED)
    with pytest.raises(VerifyError, match="x is defined twice"):
        verify(in_place, Stage.FUNCTIONAL)
    unselected = lowered([bind(mix, (X,), T0, selection=None, call=None)], T0)
    verify(unselected, Stage.FUNCTIONAL)
    with pytest.raises(VerifyError, match="no executor is selected"):
        verify(unselected, Stage.SELECTED)
    verify(lowered([bind(mix, (X, Y), None, (WRITTEN,), phase=Phase.EPILOGUE)], X))
    verify(lowered([bind(mix, (X, Y), None, (WRITTEN,))], X), Stage.CAPTURED)


@given(programs(), st.data())
def test_dropping_any_effect_is_rejected(trace: Trace, data: st.DataObject) -> None:
    verify_effects(trace, trace)
    stateful = [i for i, op in enumerate(trace.ops) if op.effects]
    assume(stateful)
    at = data.draw(st.sampled_from(stateful))
    without = [*trace.ops[:at], *trace.ops[at + 1 :]]
    verify_effects(trace, trace.with_ops(without))
    ops = [*trace.ops[:at], replace(trace.ops[at], effects=()), *trace.ops[at + 1 :]]
    with pytest.raises(VerifyError, match="dropped its"):
        verify_effects(trace, trace.with_ops(ops, made_by="careless"))


def test_an_operation_without_outputs_keeps_its_effects() -> None:
    before = lowered([bind(update, (H, X), None, (MOVED,))], X)
    after = before.with_ops([bind(update, (H, X), None)], made_by="a_pass")
    with pytest.raises(VerifyError, match=r"a_pass dropped its UPDATE of fake\.last"):
        verify_effects(before, after)


def accepted(traces: dict[Phase, Trace]) -> bool:
    try:
        verify_schedule(traces)
    except VerifyError:
        return False
    return True


@given(splits(), st.data())
def test_any_damage_to_a_closer_is_rejected(traces: dict[Phase, Trace], data: st.DataObject) -> None:
    scheduled = schedule(traces, CALLS)
    owing = [(phase, i) for phase, t in scheduled.items() for i, op in enumerate(t.ops) if op.sym.name in CALLS]
    assume(owing)
    phase, at = data.draw(st.sampled_from(owing))
    trace = scheduled[phase]
    closer, rest = trace.ops[at], [*trace.ops[:at], *trace.ops[at + 1 :]]
    other = next(p for p in scheduled if p is not phase)
    untouched = replace(closer, sym=CLOSER, effects=(Effect(LAST, Access.WRITE, Var("new", STATE)),))
    touching = [i for i, op in enumerate(rest) if any(e.state == closer.effects[0].state for e in op.effects)]
    damaged = {
        "lost": {phase: trace.with_ops(rest)},
        "doubled": {phase: trace.with_ops([*trace.ops, closer])},
        "in the wrong trace": {
            phase: trace.with_ops(rest),
            other: scheduled[other].with_ops([*scheduled[other].ops, closer]),
        },
        "before the last access": {phase: trace.with_ops([*rest[: touching[-1]], closer, *rest[touching[-1] :]])},
        "for an untouched state": {phase: trace.with_ops([*trace.ops, untouched])},
    }
    assert not [damage for damage, changed in damaged.items() if accepted({**scheduled, **changed})]


def test_each_instance_is_closed_in_the_last_phase_that_touches_it() -> None:
    first, second = list(HANDLES)[:2]
    writes = {handle: Effect(LAST, Access.WRITE, handle) for handle in (first, second)}

    def scheduled(forward: list[BoundSymbol], backward: list[BoundSymbol]) -> dict[Phase, Trace]:
        return {Phase.FORWARD: lowered(forward, X), Phase.BACKWARD: lowered(backward, X, "backward")}

    def close(*handles: Var) -> BoundSymbol:
        return bind(sync, handles, None, tuple(writes[handle] for handle in handles), sym=CLOSER)

    touch, again = (bind(update, (handle,), None, (writes[handle],)) for handle in (first, second))
    verify_schedule(scheduled([touch, close(first)], [again, close(second)]))
    verify_schedule(scheduled([touch, again, close(first)], [again, close(second)]))
    with pytest.raises(VerifyError, match=r"\(last0\) is closed in backward, owed in forward"):
        verify_schedule(scheduled([touch], [again, close(first, second)]))


def test_ambient_state_is_closed_without_handles() -> None:
    trace = lowered([bind(mix, (X,), T0, (Effect(AMBIENT, Access.UPDATE),))], T0)
    scheduled = schedule({Phase.FORWARD: trace}, CALLS)
    assert scheduled[Phase.FORWARD].ops[-1].args == ()
    verify_schedule(scheduled)
    with pytest.raises(VerifyError, match=r"fake\.ambient \(ambient\) is closed in no phase, owed in forward"):
        verify_schedule({Phase.FORWARD: trace})
