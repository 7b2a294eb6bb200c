from __future__ import annotations

from hypothesis import given

from tests.core.ir.programs import INPUTS, NUMBER, bind, fresh_arguments, interpret, lowered, mix, programs
from thunder.ir import MEMORY, RANDOM, Access, Effect, Trace, Var, verify_effects
from thunder.passes.dce import dce

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


def test_a_chain_of_dead_operations_goes() -> None:
    assert dce(lowered([bind(mix, (X,), T0), bind(mix, (T0,), T1)], X)).ops == ()


def test_unused_draws_and_writes_stay() -> None:
    draw = bind(mix, (X,), T0, (Effect(RANDOM, Access.WRITE),))
    copy = bind(mix, (X, Y), None, (Effect(MEMORY, Access.WRITE, X),))
    look = bind(mix, (X,), T1, (Effect(RANDOM, Access.READ),))
    trace = lowered([draw, look, copy], Y)
    assert dce(trace).ops == (draw, copy)
