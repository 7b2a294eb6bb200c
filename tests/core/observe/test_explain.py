"""Explanations of records made by hand, and of a real run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thunder.errors import ThunderError
from thunder.ir.effects import Access, Effect, StateKind
from thunder.ir.symbol import BoundSymbol, Phase, Refusal, Selection, Source, Symbol
from thunder.ir.trace import Stage, Trace
from thunder.ir.types import OpaqueType, TensorType, Var
from thunder.observe.explain import Explanation, explain, rows, state_uses
from thunder.observe.history import Note, last_backward_traces, last_traces
from thunder.runtime.program import CompilationRecord

TYPE = TensorType((4, 8), (8, 1), "float32", "cpu")
STATE = StateKind(name="ex.amax", close="ex.sync")
HANDLE = Var("amax", OpaqueType("ex.amax"))


def operation(symbol, index, line, *, executor="torch", refusals=(), effects=(), phase=Phase.FORWARD):
    return BoundSymbol(
        Symbol(symbol),
        args=(Var(f"x{index}", TYPE),),
        outs=Var(f"x{index + 1}", TYPE),
        effects=effects,
        phase=phase,
        selection=Selection(executor, None, refusals),
        source=Source("/home/me/model.py", line, f"y = layer{line}(x)"),
    )


def trace(ops, stage=Stage.SELECTED):
    return Trace("computation", (Var("x0", TYPE),), tuple(ops), Var(f"x{len(ops)}", TYPE), stage)


def record(ops, *, forward=(), backward=()):
    scheduled = [trace(forward, Stage.SCHEDULED)] if forward else []
    back = [trace(backward, Stage.SCHEDULED)] if backward else []
    return CompilationRecord("computation", [trace(ops), *scheduled], back, {"capture": 0.012, "fuse": 0.003})


@given(st.lists(st.tuples(st.sampled_from(["torch.sin", "torch.cos"]), st.integers(1, 3)), min_size=1, max_size=30))
def test_equal_operations_are_one_row_and_none_is_lost(calls):
    counted = rows(record([operation(symbol, i, line) for i, (symbol, line) in enumerate(calls)]))
    assert sum(counted.values()) == len(calls)
    assert [(row.symbol, row.source.line) for row in counted] == list(dict.fromkeys(calls))
    for (symbol, line), count in ((call, calls.count(call)) for call in calls):
        assert [n for row, n in counted.items() if (row.symbol, row.source.line) == (symbol, line)] == [count]


def test_refusals_keep_rows_apart_and_are_told():
    refused = (Refusal("ex", "needs inner dimension divisible by 16"),)
    made = record([operation("torch.sin", 0, 7, refusals=refused), operation("torch.sin", 1, 7, executor="ex")])
    assert len(rows(made)) == 2
    text = wide(Explanation((made,)))
    assert "model.py:7" in text
    assert "y = layer7(x)" in text
    assert "ex: needs inner dimension divisible by 16" in text
    assert "f32[4, 8] -> f32[4, 8]" in text  # the device is said once
    assert "computation, on cpu" in text


def wide(explanation, monkeypatch=None):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "300")
        return str(explanation)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_text_fits_the_width(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    text = str(Explanation((record([operation("torch.nn.functional.linear", i, 3) for i in range(12)]),)))
    assert max(map(len, text.splitlines())) <= width
    assert "12x" in text
    assert "\x1b" not in text


def test_states_and_their_closers():
    update = (Effect(STATE, Access.UPDATE, HANDLE),)
    close = BoundSymbol(
        Symbol("ex.sync"), args=(HANDLE,), effects=(Effect(STATE, Access.WRITE, HANDLE),), phase=Phase.BACKWARD
    )
    made = record(
        [operation("ex.linear", 0, 1)],
        forward=[operation("ex.linear", 0, 1, effects=update), operation("ex.linear", 1, 2, effects=update)],
        backward=[operation("ex.linear_bwd", 0, 1, effects=update, phase=Phase.BACKWARD), close],
    )
    (use,) = state_uses(made)
    assert use.state is STATE
    assert dict(use.symbols) == {"ex.linear": 2, "ex.linear_bwd": 1}
    assert use.closed_in == (Phase.BACKWARD,)
    assert "ex.amax: updated by 2x ex.linear, 1x ex.linear_bwd; closed by ex.sync in backward" in wide(
        Explanation((made,))
    )


def test_states_that_are_only_read_or_never_closed_are_not_listed():
    free = StateKind(name="ex.free")
    effects = (Effect(STATE, Access.READ, HANDLE), Effect(free, Access.WRITE))
    assert state_uses(record([], forward=[operation("ex.look", 0, 1, effects=effects)])) == []


def test_notes_and_times_are_told():
    note = Note("graph break", Source("model.py", 5), "a branch on tensor data")
    text = wide(Explanation((record([operation("torch.sin", 0, 1)]),), (note, Note("eager", None, "broken"))))
    assert "graphs compiled: 1, run eagerly: 1, graph breaks: 1" in text
    assert "graph break at model.py:5: a branch on tensor data" in text
    assert "eager: broken" in text
    assert "compiled in 15.0 ms: capture 12.0, fuse 3.0" in text


class Jitted:
    """Stands for a jitted function: compiles at the calls it is told to."""

    def __init__(self, *compiles):
        self._thunder_records = []
        self._thunder_notes = []
        self.compiles = list(compiles)

    def __call__(self, x):
        if self.compiles and (made := self.compiles.pop(0)) is not None:
            self._thunder_records.append(made)
        return x


def test_explain_covers_this_run_or_else_all_before():
    first, second = record([operation("torch.sin", 0, 1)]), record([operation("torch.cos", 0, 1)])
    jitted = Jitted(first, second, None)
    assert explain(jitted)(1).records == (first,)
    assert explain(jitted)(1).records == (second,)
    assert explain(jitted)(1).records == (first, second)


def test_traces_of_the_last_compilation():
    jitted = Jitted(record([]), record([operation("torch.sin", 0, 1)], backward=[operation("torch.cos", 0, 1)]))
    assert last_traces(jitted) == last_backward_traces(jitted) == []
    with pytest.raises(ThunderError, match="call the jitted function once"):
        last_traces(jitted)[-1]
    with pytest.raises(ThunderError, match="that require grad"):
        last_backward_traces(jitted)[0]
    jitted(1)
    jitted(1)
    assert [t.stage for t in last_traces(jitted)] == [Stage.SELECTED]
    assert repr(last_traces(jitted)).splitlines()[1:] == ["  0: selected, operations: 1"]
    assert [op.sym.name for op in last_backward_traces(jitted)[0].ops] == ["torch.cos"]


def test_what_is_not_jitted_has_no_traces():
    with pytest.raises(ThunderError, match="is not jitted"):
        last_traces(len)


def test_explain_a_program_that_dynamo_skips():
    import torch
    from torch import nn

    from thunder.frontends.dynamo import DynamoFunction
    from thunder.runtime.driver import Settings

    torch._dynamo.reset()
    explanation = explain(DynamoFunction(nn.LSTM(3, 3), Settings((), {})))(torch.randn(2, 3))
    assert explanation.records == ()
    assert any("RNN" in note.reason for note in explanation.notes)
