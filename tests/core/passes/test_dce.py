from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.ir.programs import INPUTS, NUMBER, bind, fresh_arguments, interpret, lowered, mix, programs
from thunder.errors import VerifyError
from thunder.ir import MEMORY, RANDOM, Access, Effect, Trace, Var, verify, verify_effects
from thunder.passes.dce import dce, live_in

X, Y = INPUTS
T0, T1 = (Var(f"t{n}", NUMBER) for n in range(2))


@given(programs())
def test_results_and_states_stay_and_everything_left_is_needed(trace: Trace) -> None:
    after = dce(trace)
    args, again = fresh_arguments(trace), fresh_arguments(trace)
    assert interpret(after, args) == interpret(trace, again)
    assert args == again, "the states end up different"
    verify_effects(trace, after)
    for index, op in enumerate(after.ops):
        read = {var for later in after.ops[index + 1 :] for var in later.inputs} | set(after.results)
        assert not read.isdisjoint(op.outputs) or {e.access for e in op.effects} - {Access.READ}


@given(programs())
def test_a_clean_trace_comes_back_itself(trace: Trace) -> None:
    after = dce(trace)
    assert dce(after) is after
    assert (after is trace) == (len(after.ops) == len(trace.ops))


@given(programs(), st.data())
def test_what_is_live_in_is_what_the_rest_of_a_program_must_be_given(trace: Trace, data: st.DataObject) -> None:
    ops = trace.ops[data.draw(st.integers(0, len(trace.ops))) :]
    needed = live_in(ops, trace.results)
    verify(lowered(ops, trace.result, params=needed))
    for var in needed:
        with pytest.raises(VerifyError, match=f"{var.name} is used before|returns {var.name}"):
            verify(lowered(ops, trace.result, params=tuple(v for v in needed if v != var)))


def test_a_chain_of_dead_operations_goes() -> None:
    assert dce(lowered([bind(mix, (X,), T0), bind(mix, (T0,), T1)], X)).ops == ()


def test_unused_draws_and_writes_stay() -> None:
    draw = bind(mix, (X,), T0, (Effect(RANDOM, Access.WRITE),))
    copy = bind(mix, (X, Y), None, (Effect(MEMORY, Access.WRITE, X),))
    look = bind(mix, (X,), T1, (Effect(RANDOM, Access.READ),))
    trace = lowered([draw, look, copy], Y)
    assert dce(trace).ops == (draw, copy)
