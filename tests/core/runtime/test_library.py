"""Compiled regions: compiled once, all started before one is waited for, and unfused where that fails."""

from __future__ import annotations

import re
import runpy
import threading
import warnings
from concurrent.futures import Future
from dataclasses import replace

import pytest
import torch

import thunder
from thunder.errors import PluginError
from thunder.passes.progress import Progress
from thunder.plugins import registry
from thunder.plugins.spec import Executor, Fuser, No, Yes
from thunder.runtime.library import LIBRARY, Library
from thunder.testing.fakes.fuser import COMPILED, FUSER, RUNS

FRONTENDS = ["functional", "dynamo"]
HERE = __name__


@pytest.fixture(autouse=True)
def fresh():
    LIBRARY.clear()
    for log in (COMPILED, RUNS, EVENTS, WAITING):
        log.clear()


def program(x, w):
    return ((((x.sin() * 2) @ w).cos() * 3) @ w).tanh()


def inputs():
    torch.manual_seed(0)
    return torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)


def step(fn):
    x, w = inputs()
    out = fn(x, w)
    out.sum().backward()
    return out.detach(), x.grad


def failing(how, frontend="functional"):
    return thunder.jit(program, executors=[FUSER], frontend=frontend, options={"fakefuser.fails": how})


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("how", ["supports", "pays", "alone", "compile", "later", "run"])
def test_what_fails_runs_unfused_and_is_told_with_a_program_that_shows_it(how, frontend, capsys):
    jitted = failing(how, frontend)
    with pytest.warns(RuntimeWarning, match=r"fakefuser (could not|failed)") as told:
        found = step(jitted)
    assert all(map(torch.equal, found, step(program)))
    messages = [str(w.message) for w in told if "fakefuser" in str(w.message)]
    assert len(messages) == len(set(messages))
    assert all("told to fail" in message and "-fakefuser" in message for message in messages)
    script = re.search(r"where +(\S+\.py)", messages[0])[1]
    registry().register(FUSER)
    LIBRARY.clear()
    with pytest.warns(RuntimeWarning, match="told to fail"):
        runpy.run_path(script, run_name="__main__")
    unfused, fused = capsys.readouterr().out.strip().split("\n(", 1)
    assert unfused.removeprefix("(") == fused
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(map(torch.equal, step(jitted), step(program)))


@pytest.mark.parametrize("how", ["supports", "pays", "alone", "compile", "later", "run"])
def test_strict_mode_raises(how, monkeypatch):
    monkeypatch.setenv("THUNDER_STRICT", "1")
    with pytest.raises(PluginError, match="fakefuser"):
        step(failing(how))


def test_an_error_of_the_program_itself_is_raised_as_in_eager():
    def lookup(table, index):
        return (table + 1)[index] * 2

    jitted = thunder.jit(lookup, executors=[FUSER], frontend="functional", options={"fakefuser.everything": True})
    table = torch.randn(4)
    assert torch.equal(jitted(table, torch.tensor([1, 2])), lookup(table, torch.tensor([1, 2])))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(IndexError, match=r"out of (range|bounds)"):
            jitted(table, torch.tensor([9, 2]))
        count = len(RUNS)
        assert torch.equal(jitted(table, torch.tensor([3, 3])), lookup(table, torch.tensor([3, 3])))
    assert len(RUNS) == count + 1  # still fused


EVENTS: list[str] = []
WAITING: list[Future] = []

SLOW = Executor(
    name="slow",
    fuser=Fuser(supports=f"{HERE}:supports", compile=f"{HERE}:compile_later", pays=f"{HERE}:pays", overhead=0.0),
)


def supports(cx, op):
    return Yes() if op.sym.name in ("aten.sin", "aten.cos", "aten.mul.Tensor", "aten.neg") else No("it does not")


def pays(cx, region):
    EVENTS.append("pays")
    return No("never") if region.ops[-1].sym.name == "aten.neg" else Yes()


class Watched(Future):
    def result(self, timeout=None):
        EVENTS.append("wait")
        return super().result(timeout)


def compile_later(cx, region):
    EVENTS.append("start")
    from thunder.runtime.codegen import compile_trace

    future = Watched()
    WAITING.append(future)
    threading.Timer(0.05, lambda: future.set_result(compile_trace(region))).start()
    return future


def test_all_regions_of_forward_and_backward_start_before_one_is_waited_for():
    jitted = thunder.jit(program, executors=[SLOW], frontend="functional")
    assert all(map(torch.equal, step(jitted), step(program)))
    events = [event for event in EVENTS if event != "pays"]
    assert events == ["start"] * 4 + ["wait"] * 4


def test_whether_a_region_pays_is_asked_once_for_equal_ones():
    def chain(x, w):
        for _ in range(5):
            x = (x.sin() * 2).neg() @ w
        return x

    x, w = inputs()
    jitted = thunder.jit(chain, executors=[SLOW], frontend="functional")
    assert torch.equal(jitted(x.detach(), w), chain(x.detach(), w))
    assert EVENTS == ["pays"]
    assert not any(op.fused for op in thunder.last_traces(jitted)[-1].ops)


def test_progress_is_told_while_regions_are_compiled():
    from thunder.frontends.functional import FunctionalFunction
    from thunder.frontends.settings import make_settings

    told: list[Progress] = []
    settings = replace(make_settings([FUSER], {}), progress=lambda progress: progress and told.append(progress))
    step(FunctionalFunction(program, settings))
    assert told[-1] == Progress(told[0].what, len(COMPILED), len(COMPILED))
    assert [p.done for p in told] == sorted(p.done for p in told)
    told.clear()
    step(FunctionalFunction(program, settings))
    assert not told  # all are known


def test_the_library_is_bounded():
    library = Library(limit=2)
    jitted = thunder.jit(lambda x: (x.sin() * 2).cos(), executors=[FUSER], frontend="functional")
    for size in range(2, 6):
        jitted(torch.ones(size))
    fuser = next(iter(jitted._thunder_records[-1].regions)).fuser
    regions = [next(iter(record.regions)).region for record in jitted._thunder_records]
    found = [library.find(fuser, region) for region in regions]
    assert len(library) == 2
    assert library.find(fuser, regions[-1]) is found[-1]
    assert library.find(fuser, regions[0]) is not found[0]


def test_partial_gradients_get_programs_with_regions_of_their_own():
    def two(x, y):
        h = (x * y).sin() * 2
        return h.cos() * 3, h.exp() + 1

    found = []
    for fn in (two, thunder.jit(two, executors=[FUSER], frontend="functional")):
        x, y = inputs()
        y.requires_grad_()
        first, second = fn(x, y)
        found.append(torch.autograd.grad(second.sum(), (x, y), retain_graph=True))
        found.append(torch.autograd.grad(first.sum() + second.sum(), (x, y)))
    assert all(map(torch.equal, found[0] + found[1], found[2] + found[3]))


def test_double_backward():
    def cube(x, w):
        return ((x.sin() * 2) * w).pow(3) * w

    found = []
    for fn in (cube, thunder.jit(cube, executors=[FUSER], frontend="functional")):
        x, w = inputs()
        w.requires_grad_()
        (g,) = torch.autograd.grad(fn(x, w).sum(), x, create_graph=True)
        found.append((g.detach(), *torch.autograd.grad(g.square().sum(), (x, w))))
    torch.testing.assert_close(found[1], found[0])
