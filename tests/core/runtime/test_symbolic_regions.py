"""Regions with sizes known only at run time: compiled once for all that their kernels are valid for."""

from __future__ import annotations

import re
import runpy
from dataclasses import replace
from random import Random

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import thunder
from tests.fuzz.check import verdict
from tests.fuzz.generate import generate
from tests.matrices import SIZES, STEPS, program, step
from thunder.ir.types import NumberType
from thunder.plugins import registry
from thunder.runtime.library import LIBRARY, VARIANTS
from thunder.testing.fakes.fuser import COMPILED, FUSER, RUNS

EVERYTHING = {"fakefuser.everything": True}


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setenv("THUNDER_VERIFY", "1")
    torch._dynamo.reset()
    LIBRARY.clear()
    COMPILED.clear()
    RUNS.clear()


def fused(fn, executor=FUSER, **options):
    named = {f"fakefuser.{name}": value for name, value in options.items()}
    return thunder.jit(fn, executors=[executor], dynamic=True, options=named)


def layers(x):
    for _ in range(3):
        x = (F.layer_norm(x, x.shape[-1:]).sin() * 2) @ x.t() @ x
    return x


def scaled(x):
    return x.sin() * x.shape[0] + 1


def numbers(region):
    return [param for param in region.params if isinstance(param.type, NumberType)]


def gradients(fn, x):
    x = x.detach().requires_grad_()
    out = fn(x)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), x)]


def test_one_region_serves_all_sizes_and_layers():
    jitted = fused(layers)
    for size in ((4, 3), (2, 9), (7, 5), (3, 3)):
        x = torch.randn(size)
        assert all(map(torch.equal, gradients(jitted, x), gradients(layers, x)))
    assert len(jitted._thunder_records) == 1
    assert all(map(numbers, COMPILED))
    assert len(COMPILED) < len(RUNS) / 8
    assert len({id(region) for region in RUNS}) == len(COMPILED)


def test_programs_share_regions_whatever_their_sizes_are_called():
    for n, fn in ((4, lambda x: scaled(x)), (6, lambda value: scaled(value.t()).exp() @ value)):
        x = torch.randn(n, n)
        assert torch.equal(fused(fn)(x), fn(x))
    first, second = COMPILED
    assert [op.sym.name for op in second.ops][1:-1] == [op.sym.name for op in first.ops]
    COMPILED.clear()
    assert torch.equal(fused(lambda y: scaled(y))(x), scaled(x))
    assert COMPILED == []


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([*STEPS]), min_size=1, max_size=6), st.lists(SIZES, min_size=2, max_size=5), st.booleans()
)
def test_programs_are_as_in_eager_at_all_sizes(names, sizes, everything):
    """Sizes that are equal at first and differ later, that become one or nothing, included."""
    torch._dynamo.reset()
    fn = program(names)
    jitted = fused(fn, everything=everything)
    for size in sizes:
        try:
            expected = step(fn, size)
        except (RuntimeError, IndexError):
            assume(False)  # eager refuses the size
        assert all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(step(jitted, size), expected))
    assert not [note for note in jitted._thunder_notes if note.kind in ("eager", "by size")]


@pytest.mark.slow
def test_random_programs():
    verdicts = [
        verdict(generate(Random(seed)), "dynamo", executors=[FUSER], options=EVERYTHING, dynamic=True)
        for seed in range(3000, 3030)
    ]
    assert [reason for outcome, reason in verdicts if outcome == "wrong"] == []
    assert any(map(numbers, COMPILED))


def assert_as_in_eager(jitted, fn, sizes):
    for n in sizes:
        x = torch.randn(n, 3)
        assert torch.equal(jitted(x), fn(x))


def test_a_region_is_compiled_again_for_sizes_that_its_kernel_does_not_fit():
    """What compiling asks is a condition of the region, not of the program."""
    jitted = fused(scaled, asks="n0 <= 5")
    assert_as_in_eager(jitted, scaled, (4, 5, 6, 3, 9, 2))
    assert len(jitted._thunder_records) == 1
    assert [numbers(region)[0].type.example for region in COMPILED] == [4, 6]
    assert [numbers(region)[0].type.example for region in RUNS] == [4, 4, 6, 4, 6, 4]


def test_a_region_that_fits_one_size_only_is_compiled_for_some_and_then_runs_unfused():
    jitted = fused(scaled, asks="int(n0)")
    assert_as_in_eager(jitted, scaled, range(2, 20))
    assert len(COMPILED) == len(RUNS) == VARIANTS
    assert len(jitted._thunder_records) == 1


def test_a_region_without_elements_runs_unfused():
    def rest(x):
        return x[2:].sin() * 2

    jitted = fused(rest)
    assert_as_in_eager(jitted, rest, (5, 2, 3, 2, 9))
    (region,) = jitted._thunder_records[0].regions
    RUNS.clear()
    for n, runs in ((6, 1), (2, 1), (7, 2), (2, 2)):
        x = torch.randn(n, 3)
        assert torch.equal(region.function()(x, n, 3)[0], rest(x))
        assert len(RUNS) == runs
    assert len(numbers(region.region)) == 2


def test_a_fuser_that_takes_no_symbolic_sizes_is_not_asked_about_them(monkeypatch):
    monkeypatch.setenv("THUNDER_STRICT", "1")
    plain = replace(FUSER, name="plainfuser", fuser=replace(FUSER.fuser, symbolic=False, supports=f"{__name__}:never"))
    jitted = thunder.jit(lambda x: scaled(x), executors=[plain], dynamic=True, options={"plainfuser.skip": "aten.sin"})
    assert_as_in_eager(jitted, scaled, (4, 5))
    assert RUNS == []


def never(cx, op):
    raise AssertionError(f"asked about {op.sym}")


def test_a_fuser_that_fails_shows_it_for_the_sizes_at_hand(capsys):
    jitted = fused(scaled, fails="run")
    x = torch.randn(4, 3)
    with pytest.warns(RuntimeWarning, match="fakefuser failed") as told:
        assert torch.equal(jitted(x), scaled(x))
    assert_as_in_eager(jitted, scaled, (5, 6))
    script = re.search(r"where +(\S+\.py)", str(told[0].message))[1]
    registry().register(FUSER)
    LIBRARY.clear()
    COMPILED.clear()
    with pytest.warns(RuntimeWarning, match="told to fail"):
        runpy.run_path(script, run_name="__main__")
    assert numbers(COMPILED[-1])
    unfused, again = capsys.readouterr().out.strip().split("\n(", 1)
    assert unfused.removeprefix("(") == again


def test_gradients_of_some_results():
    def two(x):
        return x.sin() * 2 + x.shape[1], (x.cos() + 1).sum(0)

    jitted = fused(two, asks="n0 > 3")
    for n in (4, 2, 5, 3):
        x = torch.randn(n, 5, requires_grad=True)
        for which in (0, 1):
            found, expected = (torch.autograd.grad(f(x)[which].sum(), x)[0] for f in (jitted, two))
            assert torch.equal(found, expected)
    assert len(jitted._thunder_records) == 1


def test_regions_with_symbolic_sizes_are_not_measured():
    jitted = thunder.jit(scaled, executors=[FUSER], dynamic=True, options={"select": "measure"})
    assert_as_in_eager(jitted, scaled, (4, 5))
    assert len(RUNS) == 2
    assert jitted._thunder_records[-1].decisions == []


def test_nothing_joins_a_region_with_symbolic_sizes(monkeypatch):
    """Neither a product with such sizes nor one without."""

    def fn(x, w):
        return ((w[:1] @ w).sin() * 2 + x).cos() @ w + 1, (x @ w).exp() * 3

    monkeypatch.setenv("THUNDER_STRICT", "1")
    jitted = thunder.jit(fn, executors=[FUSER], options={"select": "measure", "fakefuser.joins": "aten.mm"})
    w = torch.randn(8, 8)
    for n in (4, 5):
        x = torch.randn(n, 8)
        torch._dynamo.mark_dynamic(x, 0)
        assert all(map(torch.equal, jitted(x, w), fn(x, w)))
    assert any(map(numbers, RUNS))
    assert not [op for region in RUNS if numbers(region) for op in region.ops if op.sym.name == "aten.mm"]
    assert not [note for note in jitted._thunder_notes if note.kind in ("eager", "by size")]
