"""What is in a region only where regions are timed: matrix products, alone and between others; single operations."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db

import thunder
from tests.inductor.test_models import Network
from tests.inductor.test_operators import TOLERANCE, calls, check
from thunder.extend import ClaimContext, No
from thunder.runtime import fusing
from thunder_inductor.plugin import INDUCTOR
from thunder_inductor.supports import supports

PRODUCTS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm")
MEASURED = ClaimContext(cache_key=1, measured=True)


@pytest.fixture(autouse=True)
def _nothing_known(tmp_path, monkeypatch):
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))


def products(dtype):
    """Their calls in PyTorch's database of operators: scales, biases of all forms, sizes of 1, transposed operands."""
    entries = [
        info for info in op_db if info.name in ("mm", "addmm", "bmm", "baddbmm", "matmul", "nn.functional.linear")
    ]
    return [call for call in calls(dtype, entries, MEASURED) if call.op.sym.name in PRODUCTS]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64], ids=str)
def test_alone_they_compute_what_they_do_in_eager(dtype):
    found = products(dtype)
    assert {call.op.sym.name for call in found} == set(PRODUCTS)
    check(found)


def test_they_are_supported_where_regions_are_timed():
    dtype = torch.float64  # in float32 a product of small matrices is a loop of any region
    answers = [supports(ClaimContext(cache_key=1), call.op) for call in products(dtype)]
    assert answers
    assert all(isinstance(answer, No) and "no kernel of its own" in answer.reason for answer in answers)


@pytest.fixture
def joined(monkeypatch):
    """The regions that something joined: all that may be."""
    regions = []

    def gains(region, apart, measurer) -> bool:
        regions.append(region.region)
        return True

    monkeypatch.setattr(fusing, "gains", gains)
    monkeypatch.setattr(fusing, "is_slower", lambda region, measurer: False)
    return regions


def jit(program):
    options = {"select": "measure", "measure_budget": 1e9}
    return thunder.jit(program, executors=[INDUCTOR], frontend="functional", options=options)


PROGRAMS = {
    "bias, transposed weight": lambda x, y, b: F.linear(x, y.t(), b).relu() + 1,
    "result in another layout": lambda x, y, b: (x @ y).t().sin().mul(2),
    "two of them": lambda x, y, b: (x @ y).sigmoid() * (y.t() @ x.t()).t(),
    "reduced": lambda x, y, b: torch.baddbmm(b, x[None], y[None], beta=0.5).exp().sum(-1),
    "beside its results": lambda x, y, b: ((x @ y).sin().cos(), (x.sin() * 2).cos(), y + 1),
    "expanded": lambda x, y, b: torch.bmm(x.expand(3, 16, 24), y.expand(3, 24, 32)).transpose(0, 1).tanh() + b,
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_between_other_operations(program, dtype, joined):
    x, y, b = (torch.randn(shape, dtype=dtype) for shape in ((16, 24), (24, 32), (32,)))
    found, expected = jit(program)(x, y, b), program(x, y, b)
    rtol, atol = TOLERANCE[dtype]
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)
    found, expected = (out if isinstance(out, tuple) else (out,) for out in (found, expected))
    assert [t.stride() for t in found] == [t.stride() for t in expected]
    memory = [t.data_ptr() for t in (x, y, b, *found)]
    assert len(set(memory)) == len(memory)
    assert any(op.sym.name in PRODUCTS for region in joined for op in region.ops)


@pytest.mark.slow
def test_in_a_model(joined):
    torch.manual_seed(0)
    model, tokens = Network(2), torch.randint(0, 50, (2, 16))
    fused = copy.deepcopy(model)
    jitted = jit(fused)
    for step, module in ((jitted, fused), (model, model)):
        for _ in range(2):
            module.zero_grad()
            step(tokens).backward()
    for got, want in zip(fused.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(got.grad, want.grad)
    assert any(op.sym.name in PRODUCTS for region in joined for op in region.ops)


@pytest.mark.slow
def test_an_operation_that_pytorch_runs_slowly_is_a_region():
    """On a real clock: its variance takes 35 to 90 times as long as a kernel of Inductor."""
    x = torch.randn(256, 512)
    jitted = jit(lambda x: x.var(0))
    torch.testing.assert_close(jitted(x), x.var(0))
    (decision,) = jitted._thunder_records[-1].decisions
    assert decision.chosen == "inductor"
    assert [op.sym.name for op in thunder.last_traces(jitted)[-1].ops] == ["inductor.region"]
