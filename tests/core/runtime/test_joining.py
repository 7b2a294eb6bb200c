"""Regions that are candidates only where they are timed: of one operation, and with the matrix products before them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import torch
from torch import nn

import thunder
from tests.fuzz.check import verdict
from tests.fuzz.generate import generate
from thunder.ir.effects import RANDOM, Access, Effect
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.trace import Stage, Trace
from thunder.ir.types import TensorType, Var
from thunder.passes import measure
from thunder.passes.fusers import ActiveFuser
from thunder.passes.measure import Candidate, Measurer, copied
from thunder.passes.race import random_tensors
from thunder.plugins.spec import ClaimContext
from thunder.runtime import fusing, region_race
from thunder.runtime.library import LIBRARY, CompiledRegion
from thunder.runtime.region_race import may_win
from thunder.testing.fakes.fuser import COMPILED, FUSER, RUNS

PRODUCTS = "aten.mm,aten.addmm,aten.bmm,aten.baddbmm"
OPTIONS = {"select": "measure", "measure_budget": 1e9, "fakefuser.joins": PRODUCTS}
INNER = ("aten.sigmoid", "aten.tanh")
LARGE = 200
"""Rows and columns: 160 kB, which take longer than a call."""


@pytest.fixture(autouse=True)
def _fresh(tmp_path, monkeypatch, strict):
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))
    forget()


def forget() -> None:
    """As in another process, which knows nothing but what was measured."""
    LIBRARY.clear()
    COMPILED.clear()
    RUNS.clear()


def has_product(region) -> bool:
    return any(op.sym.name in PRODUCTS.split(",") for op in region.ops)


@pytest.fixture
def priced(monkeypatch):
    """Seconds that a run takes, on a clock of ours: of a region with a product, of another region, of none."""

    def use(joined: float, apart: float, unfused: float) -> None:
        clock = {"now": 0.0}

        def candidate(run):
            def priced_run(*tensors):
                RUNS.clear()
                run(*tensors)
                clock["now"] += (joined if any(map(has_product, RUNS)) else apart) if RUNS else unfused

            return Candidate(priced_run)

        monkeypatch.setattr(region_race, "Candidate", candidate)
        monkeypatch.setattr(measure, "clock_for", lambda types: lambda: clock["now"])

    return use


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), nn.Sigmoid(), nn.Tanh(), nn.Linear(6, 6)), torch.randn(5, 6)


def jit(fn, fuser=FUSER, **options):
    return thunder.jit(fn, executors=[fuser], frontend="functional", options={**OPTIONS, **options})


def symbols(ops) -> list[str]:
    return [op.sym.name for op in ops]


def fused(jitted) -> list[list[str]]:
    return [symbols(op.fused.ops) for op in thunder.last_traces(jitted)[-1].ops if op.fused]


LINEAR = "torch.nn.functional.linear"
JOINED = (["fakefuser.region", LINEAR], [["aten.t", "aten.addmm", *INNER]])
APART = ([LINEAR, "fakefuser.region", LINEAR], [[*INNER]])
UNFUSED = ([LINEAR, "torch.sigmoid", "torch.tanh", LINEAR], [])


@pytest.mark.parametrize(
    ("prices", "first", "later"),
    [
        ((1.0, 2.0, 3.0), JOINED, JOINED),
        ((2.0, 1.0, 3.0), APART, APART),
        ((0.99, 1.0, 3.0), APART, APART),  # no more than noise
        ((2.0, 3.0, 1.0), UNFUSED, UNFUSED),
        ((0.5, 3.0, 1.0), JOINED, JOINED),
    ],
)
def test_the_fastest_partition_runs_and_the_next_process_compiles_nothing_else(prices, first, later, priced):
    priced(*prices)
    module, x = network()
    for expected, origin in ((first, "measured"), (later, "kept")):
        forget()
        jitted = jit(module)
        with torch.no_grad():
            assert torch.equal(jitted(x), module(x))
        symbols_found, regions_found = expected
        assert symbols(thunder.last_traces(jitted)[-1].ops) == symbols_found
        assert fused(jitted) == regions_found
        assert {d.origin for d in jitted.forward._thunder_records[-1].decisions} == {origin}
    assert [symbols(region.ops) for region in COMPILED] == later[1]


def test_what_lost_is_told(priced):
    priced(2.0, 1.0, 3.0)
    module, x = network()
    with torch.no_grad():
        told = str(thunder.explain(jit(module))(x))
    assert "fakefuser.region(t, addmm, sigmoid, tanh)" in told
    assert "apart 1000000.0" in told
    assert "fakefuser 2000000.0" in told


def test_equal_regions_race_once(priced):
    priced(1.0, 2.0, 3.0)
    module, x = network()
    jitted = jit(nn.Sequential(*[module[:3]] * 3))
    with torch.no_grad():
        jitted(x)
    decided = jitted.forward._thunder_records[-1].decisions
    assert [(d.chosen, list(d.costs)) for d in decided if "addmm" in d.signature] == [
        ("fakefuser", ["apart", "fakefuser"])
    ]
    assert len(fused(jitted)) == 3


def test_what_does_not_pay_without_the_product_is_not_fused_without_it(priced):
    """A small operation alone is no region: it would be the fastest here."""
    priced(joined=1.0, apart=0.5, unfused=3.0)
    module, x = network()
    jitted = jit(module[:2])
    with torch.no_grad():
        assert torch.equal(jitted(x), module[:2](x))
    assert fused(jitted) == [["aten.t", "aten.addmm", "aten.sigmoid"]]
    assert all(map(has_product, COMPILED))


def test_what_does_not_pay_with_it_either_is_not_timed(priced):
    priced(1.0, 2.0, 3.0)
    assert FUSER.fuser is not None
    costly = replace(FUSER, fuser=replace(FUSER.fuser, overhead=1000.0))
    jitted = jit(nn.Sequential(nn.Linear(LARGE, LARGE), nn.Sigmoid(), nn.Tanh()), costly)
    jitted(torch.randn(LARGE, LARGE))
    assert not COMPILED
    assert not jitted.forward._thunder_records[-1].decisions


def test_all_that_races_is_compiled_before_the_first_is_timed(monkeypatch):
    compiled = []

    def candidate(run):
        compiled.append(len(COMPILED))
        return Candidate(run)

    monkeypatch.setattr(region_race, "Candidate", candidate)
    module, x = network()
    with torch.no_grad():
        jit(module)(x)
    assert compiled[0] == 2  # the region with the product, and without


def test_a_composite_of_more_than_a_product_stays_whole(priced):
    priced(1.0, 2.0, 3.0)
    jitted = jit(lambda x, y, z: torch.linalg.multi_dot([x, y, z]).sigmoid().tanh())
    jitted(*(torch.randn(4, 4) for _ in range(3)))
    assert symbols(thunder.last_traces(jitted)[-1].ops) == ["torch.linalg.multi_dot", "fakefuser.region"]


@pytest.mark.parametrize("options", [{"select": "order"}, {"measure_budget": 0.0}, {"fakefuser.joins": ""}])
def test_products_stay_outside_where_nothing_is_timed(options, priced):
    priced(1.0, 2.0, 3.0)
    module, x = network()
    jitted = jit(module, **options)
    with torch.no_grad():
        jitted(x)
    assert (symbols(thunder.last_traces(jitted)[-1].ops), fused(jitted)) == APART
    assert not any(map(has_product, COMPILED))


def test_a_product_that_others_read_stays_outside(priced):
    priced(1.0, 2.0, 3.0)

    def program(x, w):
        a, b, c = x @ w, w @ x, x @ x
        return a.sin().cos() + 1, a @ w, b, b.sin() * 2, (c.t() + 1).exp()

    args = torch.randn(4, 4), torch.randn(4, 4)
    jitted = jit(program)
    assert all(map(torch.equal, jitted(*args), program(*args)))
    assert sum(name == "aten.mm" for names in fused(jitted) for name in names) == 1


@pytest.mark.parametrize("joining", [PRODUCTS, "aten.add.Tensor,aten.mul.Tensor,aten.sub.Tensor,aten.neg,aten.sum"])
def test_random_programs_do_what_they_do_in_eager(joining, monkeypatch):
    """With everything in a region that may join one; there are few products, so other operations as well."""
    raced = []

    def gains(region, apart, measurer) -> bool:
        tensors = random_tensors(p.type for p in region.region.params)
        results = [run(*copied(tensors, range(len(tensors)))) for run in (apart(region), region.function())]
        torch.testing.assert_close(*results, rtol=0, atol=0, equal_nan=True)
        raced.append(region)
        return True

    monkeypatch.setattr(fusing, "gains", gains)
    monkeypatch.setattr(fusing, "is_slower", lambda region, measurer: False)
    options = {**OPTIONS, "fakefuser.joins": joining, "fakefuser.everything": True}
    verdicts = [verdict(generate(Random(seed)), executors=[FUSER], options=options) for seed in range(3000, 3060)]
    assert [reason for outcome, reason in verdicts if outcome == "wrong"] == []
    assert len(raced) > (0 if joining == PRODUCTS else 10)


def test_gradients_through_joined_regions(priced):
    priced(1.0, 2.0, 3.0)
    module, x = network()
    jitted, x = jit(module), x.requires_grad_()
    expected, found = (
        torch.autograd.grad(program(x).square().sum(), [x, *module.parameters()]) for program in (module, jitted)
    )
    torch.testing.assert_close(found, expected)
    backward = [op.fused for op in thunder.last_backward_traces(jitted)[-1].ops if op.fused]
    assert any(map(has_product, backward))


@pytest.mark.parametrize(("apart", "fuses"), [(1.0, True), (2.9, False), (5.0, False)])
def test_a_region_of_one_operation_is_timed(apart, fuses, priced):
    priced(1.0, apart, 3.0)
    x = torch.randn(LARGE, LARGE)
    for origin in ("measured", "kept"):
        jitted = jit(torch.relu)
        jitted(x)
        RUNS.clear()
        assert torch.equal(jitted(x), x.relu())
        assert bool(RUNS) == fuses
        assert origin == "measured" or bool(fused(jitted)) == fuses


@pytest.mark.parametrize(("size", "options"), [(4, {}), (LARGE, {"select": "order"}), (LARGE, {"measure_budget": 0.0})])
def test_small_ones_and_such_that_are_not_timed_are_no_regions(size, options, priced):
    priced(1.0, 1.0, 3.0)
    jitted = jit(torch.relu, **options)
    jitted(torch.randn(size, size))
    assert not COMPILED


@pytest.mark.parametrize(("effects", "expected"), [((), True), ((Effect(RANDOM, Access.WRITE),), False)])
def test_one_that_cannot_be_timed_is_no_region(effects, expected):
    x, y = (Var(name, TensorType((LARGE, LARGE), (LARGE, 1), "float32", "cpu")) for name in "xy")
    draw = BoundSymbol(Symbol("aten.bernoulli"), (x,), outs=y, effects=effects)
    measurer = Measurer([FUSER], {"core": {"memory": "keep", "measure_budget": 1.0}})
    fuser = ActiveFuser(FUSER, ClaimContext())
    for ops, wanted in (((draw,), expected), ((draw, replace(draw, args=(y,), outs=Var("z", y.type))), True)):
        region = Trace("region", (x,), ops, (ops[-1].outs,), Stage.LOWERED)
        assert may_win(CompiledRegion(fuser, region), measurer) == wanted
