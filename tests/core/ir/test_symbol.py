"""Calls on other variables."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from tests.core.ir.programs import fresh_arguments, interpret, programs
from thunder.ir import Trace, Var, tree, verify


@given(programs())
def test_a_program_over_other_variables_computes_the_same(trace: Trace) -> None:
    others = {v: Var(f"other_{v.name}", v.type) for v in trace.variables()}
    ops = [replace(op.with_inputs(others), outs=tree.substitute(op.outs, others)) for op in trace.ops]
    params, result = tree.substitute((trace.params, trace.result), others)
    over = replace(trace, params=params, ops=tuple(ops), result=result)
    verify(over)  # the handle of each effect is an argument
    args, again = fresh_arguments(trace), fresh_arguments(trace)
    assert interpret(over, args) == interpret(trace, again)
    assert args == again


@given(programs())
def test_a_call_that_reads_none_of_them_comes_back_itself(trace: Trace) -> None:
    for op in trace.ops:
        unread = {v: Var(f"other_{v.name}", v.type) for v in trace.variables() if v not in op.inputs}
        assert op.with_inputs(unread) is op
