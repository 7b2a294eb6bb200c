"""Fused regions as people see them: explained, bisected, with progress while they are compiled."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import thunder
from thunder import cli
from thunder.errors import ThunderError
from thunder.observe import progress as shown
from thunder.observe.bisect import bisect
from thunder.observe.progress import ShownProgress
from thunder.passes.progress import Progress
from thunder.plugins import registry
from thunder.runtime.library import LIBRARY
from thunder.testing.fakes.fuser import FUSER


@pytest.fixture(autouse=True)
def fresh():
    LIBRARY.clear()


def program(x, w):
    for _ in range(3):
        x = (x @ w).sin() * 2
    return (x - 1).exp() + x


def arguments():
    torch.manual_seed(0)
    return torch.randn(64, 64), torch.randn(64, 64, requires_grad=True)


def test_explain_lists_regions_with_their_sharing_and_the_bytes_they_save():
    report = str(thunder.explain(thunder.jit(program, executors=[FUSER], frontend="functional"))(*arguments()))
    title = next(line for line in report.splitlines() if line.startswith("fused regions"))
    rows = [line.split() for line in report.splitlines() if line.rstrip().endswith("fakefuser")]
    counts = [int(row[0].removesuffix("x")) for row in rows]
    assert title == f"fused regions: {sum(counts)}, of which {len(counts)} different"
    forward = next(row for row in rows if row[1:3] == ["sin,", "mul"])
    assert forward[0] == "2x"
    operations = [line for line in report.splitlines() if "torch.sin" in line or "torch.matmul" in line]
    assert all(("fakefuser region" in line) == ("torch.sin" in line) for line in operations)
    assert len(operations) > 1
    # 64 * 64 floats: sin and mul read and write one each; together they read one, and write one or two
    assert float(forward[3]) == pytest.approx(2 * 4 * 64 * 64 * 4 / 1e6, abs=0.005)
    assert float(forward[4]) == pytest.approx(2 * 2 * 64 * 64 * 4 / 1e6, abs=0.005)


def test_explain_says_which_regions_run_unfused_and_why():
    jitted = thunder.jit(program, executors=[FUSER], frontend="functional", options={"fakefuser.fails": "compile"})
    with pytest.warns(RuntimeWarning, match="could not compile"):
        report = thunder.explain(jitted)(*arguments())
    assert "unfused: could not compile a region" in " ".join(str(report).split())


@pytest.mark.parametrize("wrong", ["aten.exp", "aten.cos"])
def test_bisect_finds_the_first_region_that_makes_a_difference(wrong):
    culprit = bisect(program, arguments, [FUSER], {"fakefuser.wrong": wrong})
    assert culprit is not None
    assert wrong in [op.sym.name for op in culprit.call.fused.ops]
    assert 1 <= culprit.number <= culprit.total
    assert culprit.difference.startswith("result" if wrong == "aten.exp" else "gradient of argument 1")


def test_bisect_of_a_module_leaves_it_as_it_was():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.GELU(), nn.Tanh())
    before = {name: value.clone() for name, value in module.state_dict().items()}
    culprit = bisect(module, lambda: (torch.ones(3, 4),), [FUSER], {"fakefuser.wrong": "aten.tanh"})
    assert culprit is not None
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())


def test_bisect_without_a_difference():
    assert bisect(program, arguments, [FUSER]) is None


def test_bisect_without_a_fuser():
    with pytest.raises(ThunderError, match="nothing is fused"):
        bisect(program, arguments, ["torch"])


FUSED = """
import torch

def program(x):
    return ((x + 1).sin() * 2).exp()

def arguments():
    return (torch.ones(8),)
"""


@pytest.mark.parametrize(("wrong", "status"), [("", 0), ("aten.exp", 1)])
def test_bisect_from_the_command_line(tmp_path, monkeypatch, wrong, status):
    options = tuple(replace(o, default=wrong) if o.name == "wrong" else o for o in FUSER.options)
    registry().register(replace(FUSER, name="fusing", options=options))
    (tmp_path / "fused_program.py").write_text(FUSED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    place = "fused_program.py:"
    result = CliRunner().invoke(
        cli.app, ["bisect", f"{place}program", "--input", f"{place}arguments", "--executors", "fusing"]
    )
    assert result.exit_code == status
    if not wrong:
        assert "make no difference" in result.output
        return
    assert "region 1 of 1 makes a difference: result 0: Tensor-likes are not close!" in result.output
    assert "def region(p0):" in result.output
    script = result.output.split("saved as ")[1].strip()
    assert "executors=['fusing']" in Path(script).read_text()


class Timer:
    """One that runs out when it is told to."""

    def __init__(self, seconds, action):
        self.seconds, self.action, self.cancelled = seconds, action, False
        Timer.last = self

    def start(self):
        pass

    def cancel(self):
        self.cancelled = True


WHAT = "compiling 4 different regions of 9"


def test_progress_is_a_line_in_the_log_after_a_while(caplog):
    told = ShownProgress(Timer)
    with caplog.at_level(logging.INFO, "thunder.compiles"):
        told(Progress(WHAT, 0, 4))
        told(Progress(WHAT, 1, 4))
        assert not caplog.messages
        Timer.last.action()
        told(Progress(WHAT, 4, 4))
    assert caplog.messages == ["compiling 4 different regions of 9: 1 of 4 done after 2 s"]
    assert Timer.last.cancelled


def test_progress_that_ends_soon_shows_nothing(caplog):
    told = ShownProgress(Timer)
    with caplog.at_level(logging.INFO, "thunder.compiles"):
        told(Progress(WHAT, 0, 4))
        told(Progress(WHAT, 4, 4))
        Timer.last.action()
    assert not caplog.messages


def test_progress_ends_with_the_work(caplog):
    told = ShownProgress(Timer)
    with caplog.at_level(logging.INFO, "thunder.compiles"):
        told(Progress("measuring for at most 3 s", 1, 3))
        told(None)
        Timer.last.action()
    assert Timer.last.cancelled
    assert not caplog.messages


def test_progress_is_a_bar_on_a_terminal(monkeypatch):
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(shown, "_console", lambda: Console(file=out, force_terminal=True, width=100))
    told = ShownProgress(Timer)
    told(Progress("measuring for at most 3 s", 0, 3))
    Timer.last.action()
    told(Progress(WHAT, 3, 4))
    told(Progress(WHAT, 4, 4))
    assert "measuring for at most 3 s" in out.getvalue()
    assert "compiling 4 different regions of 9" in out.getvalue()
    assert "3/4" in out.getvalue()
