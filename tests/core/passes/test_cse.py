from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tests.core.ir.programs import (
    HANDLES,
    INPUTS,
    LAST,
    NUMBER,
    bind,
    fresh_arguments,
    interpret,
    lowered,
    mix,
    programs,
    read,
    write,
)
from thunder.ir import RANDOM, Access, BoundSymbol, Effect, OpaqueType, Phase, Trace, Var, verify, verify_effects
from thunder.passes.cse import cse

X, Y = INPUTS
H = next(iter(HANDLES))
T0, T1, T2, T3 = (Var(f"t{n}", NUMBER) for n in range(4))


def total(*vars: Var) -> BoundSymbol:
    return bind(mix, vars, Var("total", NUMBER))


def left(*ops: BoundSymbol, escaping: frozenset[Var] = frozenset()) -> list[str]:
    """Names of what is still computed when a program of these operations and their total has been through cse."""
    outs = [var for op in ops for var in op.outputs]
    trace = lowered([*ops, total(*outs)], Var("total", NUMBER))
    after = cse(trace, escaping)
    verify(after)
    return [var.name for op in after.ops[:-1] for var in op.outputs]


@given(programs(), st.data())
def test_results_and_states_stay_and_nothing_equal_is_left(trace: Trace, data: st.DataObject) -> None:
    made = [var for op in trace.ops for var in op.outputs]
    escaping = frozenset(data.draw(st.lists(st.sampled_from(made), max_size=3))) if made else frozenset()
    after = cse(trace, escaping)
    args, again = fresh_arguments(trace), fresh_arguments(trace)
    assert interpret(after, args) == interpret(trace, again)
    assert args == again, "the states end up different"
    verify(after)
    verify_effects(trace, after)
    assert escaping <= set(after.variables())
    pure = [op for op in after.ops if not op.effects and escaping.union(after.results).isdisjoint(op.outputs)]
    what = [(op.sym, op.args, re.sub(r"[st]\d+", "_", str(op.outs))) for op in pure]
    assert len(set(what)) == len(what)
    assert cse(after, escaping) is after


def test_equal_operations_merge_and_so_do_their_readers() -> None:
    assert left(bind(mix, (X,), T0), bind(mix, (X,), T1), bind(mix, (T0,), T2), bind(mix, (T1,), T3)) == ["t0", "t2"]


def test_a_trace_without_repetition_comes_back_itself() -> None:
    trace = lowered([bind(mix, (X,), T0), bind(mix, (Y,), T1)], (T0, T1))
    assert cse(trace) is trace


def test_numbers_that_compare_equal_stay_apart() -> None:
    ops = [bind(mix, (X, number), Var(f"n{n}", NUMBER)) for n, number in enumerate((1, 1.0, True, 0.0, -0.0))]
    assert len(left(*ops)) == 5


def test_results_and_escaping_values_stay_two() -> None:
    twins = (bind(mix, (X,), T0), bind(mix, (X,), T1))
    trace = lowered(twins, (T0, T1))
    assert cse(trace) is trace
    for var in (T0, T1):
        assert left(*twins, escaping=frozenset({var})) == ["t0", "t1"]


def test_phases_regions_types_and_callables_stay_apart() -> None:
    first = bind(mix, (X,), T0)
    for other in (
        bind(mix, (X,), T1, region="checkpoint"),
        bind(mix, (X,), T1, call="elsewhere:mix"),
        bind(mix, (X,), Var("t1", OpaqueType("other"))),
    ):
        assert left(first, other) == ["t0", "t1"]
    trace = lowered([first, bind(mix, (X,), T1, phase=Phase.BACKWARD)], X)
    assert cse(trace) is trace


def test_operations_with_effects_never_merge() -> None:
    for access in Access:
        effects = (Effect(RANDOM, access),)
        assert left(bind(mix, (X,), T0, effects), bind(mix, (X,), T1, effects)) == ["t0", "t1"]
    look = (Effect(LAST, Access.READ, H),)
    between = bind(write, (H, X), T1, (Effect(LAST, Access.WRITE, H),))
    assert left(bind(read, (H,), T0, look), between, bind(read, (H,), T2, look)) == ["t0", "t1", "t2"]
