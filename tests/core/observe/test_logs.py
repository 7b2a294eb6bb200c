"""What is logged, and that ``TORCH_LOGS`` turns it on."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from thunder.ir.symbol import BoundSymbol, Refusal, Selection, Source, Symbol
from thunder.ir.trace import Stage, Trace
from thunder.ir.types import TensorType, Var
from thunder.observe.history import Note
from thunder.observe.logs import log_note, report

TYPE = TensorType((4,), (1,), "float32", "cpu")
X, Y = Var("x", TYPE), Var("y", TYPE)
SIN = BoundSymbol(
    Symbol("torch.sin"),
    (X,),
    outs=Y,
    selection=Selection("torch", None, (Refusal("ex", "too small"),)),
    source=Source("model.py", 3, "y = sin(x)"),
)
RECORD = SimpleNamespace(
    name="computation",
    traces=[Trace("computation", (X,), (SIN,), Y, Stage.SELECTED, "select")],
    backward_traces=[],
    times={"capture": 0.25},
)


def test_info_is_one_line_for_each_event(caplog):
    with caplog.at_level(logging.INFO, logger="thunder"):
        report(RECORD)
        log_note(Note("graph break", Source("model.py", 5), "a branch on tensor data"))
    assert caplog.messages == [
        "compiled computation: 1 operations, in 0.250 s",
        "graph break at model.py:5: a branch on tensor data",
    ]


def test_debug_adds_traces_and_claims(caplog):
    with caplog.at_level(logging.DEBUG, logger="thunder"):
        report(RECORD)
    by_logger = {record.name: record.getMessage() for record in caplog.records}
    assert str(RECORD.traces[0]) == by_logger["thunder.traces"]
    assert by_logger["thunder.claims"] == "model.py:3: torch.sin runs on torch; ex refused: too small"


def test_nothing_is_printed_for_nobody(caplog, monkeypatch):
    monkeypatch.setattr(Trace, "__str__", lambda self: pytest.fail("printed a trace nobody reads"))
    with caplog.at_level(logging.WARNING, logger="thunder"):
        report(RECORD)
    assert caplog.messages == []


PROGRAM = """
import torch
from thunder.frontends.dynamo import DynamoFunction
from thunder.runtime.driver import Settings

def double(x):
    return x * 2

DynamoFunction(double, Settings((), {}))(torch.ones(3))
"""


@pytest.mark.parametrize(
    ("setting", "shown", "hidden"),
    [
        (None, [], ["compiled computation", "def computation"]),
        ("thunder", ["compiled computation"], ["def computation"]),
        ("+thunder", ["compiled computation", "def computation"], []),
    ],
)
def test_torch_logs(tmp_path, setting, shown, hidden):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    env = {key: value for key, value in os.environ.items() if key != "TORCH_LOGS"}
    if setting:
        env["TORCH_LOGS"] = setting
    done = subprocess.run([sys.executable, program], env=env, capture_output=True, text=True, check=True)
    for text in shown:
        assert text in done.stderr
    for text in hidden:
        assert text not in done.stderr
