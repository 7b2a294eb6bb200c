"""Measured selection: what is chosen. Times are the machine's own where one way is far slower, else prices of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import thunder
from tests.core.runtime.measuring import FRONT_ENDS, LONG, MEASURE, Prices, agree, decisions, layer, runs_on
from tests.core.testing.racing import racer
from tests.meta.sources import ROOT
from thunder.errors import OptionError
from thunder.frontends.functional import FunctionalFunction
from thunder.frontends.settings import make_settings
from thunder.passes import measure
from thunder.passes.decisions import MARGIN
from thunder.passes.progress import Progress
from thunder.plugins import Registry
from thunder.runtime import measured

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_torch_beats_a_slow_executor(frontend):
    module, x = layer(256)
    jitted = thunder.jit(module, executors=[racer("slow", "often")], frontend=frontend, options=MEASURE)
    agree(module, jitted, x)
    (decision,) = decisions(jitted)
    assert (decision.what, decision.chosen, decision.origin) == ("torch.nn.functional.linear", "torch", "measured")
    assert decision.costs["torch"].seconds * 2 < decision.costs["slow"].seconds
    assert runs_on(jitted) == ["torch"]


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_a_fast_executor_beats_torch_and_another_one(frontend):
    module, x = layer()
    x = x[:1].detach().expand(512, -1)
    executors = [racer("slow", "often"), racer("fast", "once")]
    jitted = thunder.jit(module, executors=executors, frontend=frontend, options=MEASURE)
    torch.testing.assert_close(jitted(x), module(x))
    (gradient,) = torch.autograd.grad(jitted(x).square().mean(), list(jitted.parameters()))
    torch.testing.assert_close(gradient, *torch.autograd.grad(module(x).square().mean(), list(module.parameters())))
    assert [decision.chosen for decision in decisions(jitted)] == ["fast"]
    with torch.no_grad():
        torch.testing.assert_close(jitted(x), module(x))
    assert [decision.chosen for decision in decisions(jitted)] == ["fast"] * 2


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_the_fastest_of_several_ways_runs(frontend, priced):
    prices = priced(often=3.0, plain=1.0, twice=2.0, torch=4.0)
    module, x = layer()
    jitted = thunder.jit(
        module, executors=[racer("many", "often", "plain", "twice")], frontend=frontend, options=MEASURE | LONG
    )
    agree(module, jitted, x)
    assert [decision.chosen for decision in decisions(jitted)] == ["many (plain)"]
    assert prices.timed == ["often", "plain", "twice", "torch"]
    calls = [op for op in thunder.last_traces(jitted)[-1].ops if op.sym.name == "many.linear"]
    assert [op.args[-1] for op in calls] == ["plain"]


@settings(max_examples=25)
@given(st.permutations(["a", "b", "c"]), st.lists(st.floats(0.5, 2.0), min_size=4, max_size=4))
def test_never_slower_than_torch_and_the_order_within_the_margin(order, seconds):
    prices = Prices(**dict(zip(("a", "b", "c", "torch"), seconds)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured, "trial", prices.trial)
        patch.setattr(measure, "clock_for", lambda types: lambda: prices.now)
        patch.setattr(measure, "store", lambda: Forgetful())
        module, x = layer(2)
        jitted = thunder.jit(
            module, executors=[racer(n, "plain") for n in order], frontend="functional", options=MEASURE | LONG
        )
        jitted(x)
    (chosen,) = [decision.chosen for decision in decisions(jitted)]
    assert prices.seconds[chosen] <= MARGIN * prices.seconds["torch"]
    earlier = order[: order.index(chosen)] if chosen in order else order
    assert all(prices.seconds[other] > MARGIN * min(seconds) for other in earlier)


class Forgetful:
    def find(self, group, call):
        return None

    def add(self, group, call, costs, *, lasting):
        pass


def test_nothing_is_measured_in_order(priced):
    prices = priced()
    module, x = layer()
    for options in ({}, {"select": "order"}):
        jitted = thunder.jit(module, executors=[racer("slow", "often")], frontend="functional", options=options)
        agree(module, jitted, x)
        assert runs_on(jitted) == ["slow"]
        assert decisions(jitted) == []
    assert prices.timed == []


def test_the_environment_asks_for_measuring_and_options_for_the_order(monkeypatch):
    monkeypatch.setenv("THUNDER_SELECT", "measure")
    module, x = layer(256)
    jitted = thunder.jit(module, executors=[racer("slow", "often")], frontend="functional")
    jitted(x)
    assert runs_on(jitted) == ["torch"]
    jitted = thunder.jit(module, executors=[racer("slow", "often")], frontend="functional", options={"select": "order"})
    jitted(x)
    assert runs_on(jitted) == ["slow"]
    monkeypatch.setenv("THUNDER_SELECT", "messure")
    with pytest.raises(OptionError, match='did you mean "measure"'):
        thunder.jit(module)


def test_a_call_measured_alone_does_not_ask_anyone():
    module, x = layer()
    jitted = thunder.jit(module, frontend="functional", executors=["torch"], options=MEASURE)
    jitted(x)
    assert decisions(jitted) == []


@pytest.mark.parametrize(("memory", "winner"), [("keep", "torch"), ("trade", "greedy")])
def test_memory(memory, winner, priced):
    priced(greedy=1.0, torch=2.0)
    module, x = layer()
    executors = [racer("greedy", "plain", saves_more=True)]
    jitted = thunder.jit(
        module, executors=executors, frontend="functional", options=MEASURE | LONG | {"memory": memory}
    )
    agree(module, jitted, x)
    (decision,) = decisions(jitted)
    assert decision.chosen == winner
    assert decision.costs["greedy"].saved - decision.costs["torch"].saved == x.numel() * 4
    assert decision.costs["torch"].saved == (x.numel() + 32 * 48) * 4
    with torch.no_grad():
        jitted(x)
    assert decisions(jitted)[-1].chosen == "greedy"
    assert decisions(jitted)[-1].costs["greedy"].saved == 0


def test_what_the_budget_does_not_reach_follows_the_order_and_is_not_kept(priced, folder):
    prices = priced(slow=5.0, torch=1.0)
    module, x = nn.Sequential(nn.Linear(8, 6, bias=False), nn.Linear(6, 4, bias=False)), torch.randn(3, 8)
    jitted = thunder.jit(
        module, executors=[racer("slow", "often")], frontend="functional", options=MEASURE | {"measure_budget": 15.0}
    )
    jitted(x)
    assert [decision.origin for decision in decisions(jitted)] == ["order"] * 2
    assert {decision.why for decision in decisions(jitted)} == {"the time for measuring is used up"}
    assert runs_on(jitted) == ["slow", "slow"]
    assert prices.now == 2 * (5.0 + 1.0)
    jitted = thunder.jit(
        module, executors=[racer("slow", "often")], frontend="functional", options=MEASURE | {"measure_budget": 0.0}
    )
    before = prices.now
    jitted(x)
    assert prices.now == before
    jitted = thunder.jit(module, executors=[racer("slow", "often")], frontend="functional", options=MEASURE | LONG)
    jitted(x)
    assert runs_on(jitted) == ["torch", "torch"]


def test_progress_is_told_while_candidates_are_measured():
    _, x = layer()
    told = []
    settings = replace(make_settings([racer("slow", "often")], MEASURE), progress=told.append)
    program = FunctionalFunction(lambda x, w: nn.functional.linear(x, w).tanh(), settings)
    program(x, torch.randn(32, 48))
    assert told[0] == Progress("measuring for at most 3 s", 0, 3)
    assert told[-1] is None


def test_equal_calls_are_measured_once(priced):
    prices = priced(plain=1.0, torch=2.0, often=3.0)
    module, x = nn.Sequential(*[nn.Linear(8, 8, bias=False) for _ in range(12)]), torch.randn(3, 8, requires_grad=True)
    jitted = thunder.jit(
        module, executors=[racer("many", "often", "plain")], frontend="functional", options=MEASURE | LONG
    )
    agree(module, jitted, x)
    assert len(decisions(jitted)) == 1
    assert prices.timed == ["often", "plain", "torch"]
    again = thunder.jit(module, executors=[racer("many", "often", "plain")], frontend="functional", options=MEASURE)
    again(x)
    assert [decision.origin for decision in decisions(again)] == ["kept"]


def test_other_options_of_an_executor_are_measured_again():
    module, x = layer()
    for ways, origin in (("often", "measured"), ("twice", "measured"), ("often", "kept")):
        jitted = thunder.jit(
            module, executors=[racer("slow", "often")], frontend="functional", options=MEASURE | {"slow.ways": ways}
        )
        jitted(x)
        assert [decision.origin for decision in decisions(jitted)] == [origin]


def test_explain_tells_candidates_times_and_choice(priced):
    priced(often=3.0, plain=1.0, torch=2.0)
    module, x = layer()
    jitted = thunder.jit(
        module, executors=[racer("many", "often", "plain")], frontend="functional", options=MEASURE | LONG
    )
    text = str(thunder.explain(jitted)(x))
    for part in ("many (often) 3000000.0", "many (plain) 1000000.0", "torch 2000000.0", "measured now"):
        assert part in text
    assert "3e+06 us, many" in " ".join(text.split())
    again = thunder.jit(module, executors=[racer("many", "often", "plain")], frontend="functional", options=MEASURE)
    assert "measured before" in str(thunder.explain(again)(x))


SCRIPT = """
import sys, torch, thunder
module = torch.nn.Linear(48, 32, bias=False)
for frontend, rows in (case.split() for case in sys.argv[1:]):
    jitted = thunder.jit(module, executors=["packaged"], frontend=frontend, options={"select": "measure"})
    jitted(torch.randn(int(rows), 48)).sum().backward()
    print(*[d.chosen + " " + d.origin for record in jitted._thunder_records for d in record.decisions])
"""


def test_a_later_process_measures_nothing(tmp_path, folder):
    site = tmp_path / "site"
    info = site / "packaged.dist-info"
    info.mkdir(parents=True)
    (site / "packaged_plugin.py").write_text(
        "from tests.core.testing.racing import racer\nfrom thunder.extend import hookimpl\n"
        "@hookimpl\ndef thunder_executors():\n    return (racer('packaged', 'often'),)\n"
    )
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: packaged\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[thunder]\npackaged = packaged_plugin\n")

    def run(*cases: str) -> list[str]:
        path = os.pathsep.join([str(site), str(ROOT), *sys.path])
        environ = {**os.environ, "PYTHONPATH": path, "THUNDER_CACHE_DIR": str(folder)}
        command = [sys.executable, "-c", SCRIPT, *cases]
        done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert run("functional 256") == ["torch measured"]
    assert run("dynamo 256", "functional 128") == ["torch kept", "torch measured"]


def test_another_version_of_an_executor_is_measured_again(monkeypatch):
    module, x = layer()
    for version, origin in (("1.0", "measured"), ("1.1", "measured"), ("1.0", "kept")):
        monkeypatch.setattr(Registry, "release", lambda self, executor, version=version: f"slow-package {version}")
        jitted = thunder.jit(module, executors=[racer("slow", "often")], frontend="functional", options=MEASURE)
        jitted(x)
        assert [decision.origin for decision in decisions(jitted)] == [origin]
