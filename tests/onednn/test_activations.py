"""Linear layers with an activation in one call: where, with what precision, and beside what is measured."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import thunder
from tests.onednn.subjects import FRONT_ENDS, distance, jit, operations, refusals
from tests.onednn.test_precision import FLOOR, LARGEST, SIZES, laid_out
from thunder.extend import ClaimContext, No, TensorType, Yes
from thunder.ir.types import contiguous_strides
from thunder_onednn import activations, entry, machine, weights
from thunder_onednn.plugin import ONEDNN

ACTIVATIONS = {
    "gelu": F.gelu,
    "tanh": lambda t: F.gelu(t, approximate="tanh"),
    "relu": F.relu,
    "method": torch.Tensor.relu,
    "in place": torch.Tensor.relu_,
    "silu": F.silu,
}
MODULES = [nn.GELU(), nn.GELU("tanh"), nn.ReLU(), nn.ReLU(inplace=True), nn.SiLU()]
ONE = ["onednn.linear"]


def fused(activation, *tensors, **options):
    """The result of one linear layer and activation, and what it ran as."""
    compiled = jit(lambda *tensors: activation(F.linear(*tensors)), **options)
    return compiled(*tensors), operations(compiled), thunder.last_traces(compiled)[-1].ops


@pytest.mark.parametrize("frontend", FRONT_ENDS)
@pytest.mark.parametrize("module", MODULES, ids=str)
def test_modules(frontend, module):
    layers = nn.Sequential(nn.Linear(32, 48), module, nn.Linear(48, 8))
    compiled, x = jit(layers, frontend=frontend), torch.randn(5, 32)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layers(x))
    assert [op.sym.name for op in thunder.last_traces(compiled)[-1].ops] == ["onednn.linear", "onednn.linear"]
    compiled(x).sum().backward()
    assert len(thunder.last_traces(compiled)[-1].ops) == 3  # in training, a derivative reads what lies between


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@settings(max_examples=8)
@given(st.data())
def test_as_near_to_float64_as_eager(name, dtype, data):
    """Of any layout. Errors are relative to what is summed."""
    activation = ACTIVATIONS[name]
    rows, inner, outer = (data.draw(SIZES) for _ in range(3))
    lead = data.draw(st.sampled_from([(), (2,), (3, 1)]))
    tensors = [data.draw(laid_out(*lead, rows, inner)), data.draw(laid_out(outer, inner))]
    tensors += [torch.randn(outer)] if data.draw(st.booleans()) else []
    tensors = [t.to(dtype) for t in tensors]
    exact = activation(F.linear(*(t.double() for t in tensors)))
    size = F.linear(*(t.double().abs() for t in tensors))
    eager = activation(F.linear(*tensors))
    found, ran, ops = fused(activation, *tensors)
    assert (found.dtype, found.stride()) == (eager.dtype, eager.stride())
    assert ran == ONE
    assert len(ops) == 1
    floor = FLOOR if dtype is torch.float32 else 2e-3
    assert distance(found, exact, size) <= LARGEST * distance(eager, exact, size) + floor


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_weights(dtype):
    weights._SEEN.clear()
    layer = nn.Sequential(nn.Linear(64, 48), nn.GELU()).to(dtype)
    compiled = jit(layer, pack=True)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(4, 64).to(dtype)
            torch.testing.assert_close(compiled(x), layer(x), rtol=2e-2 if dtype is torch.bfloat16 else 1e-5, atol=1e-2)
            assert operations(compiled) == ["onednn.packed_linear"]
        layer[0].weight.add_(1.0)
        torch.testing.assert_close(compiled(x), layer(x), rtol=2e-2 if dtype is torch.bfloat16 else 1e-5, atol=1e-2)
    (seen,) = weights._SEEN.values()
    assert seen.weight() is layer[0].weight


def test_autocast():
    """The casts to bfloat16 stay outside: the chain sees what runs."""
    layer, x = nn.Sequential(nn.Linear(64, 48), nn.GELU()), torch.randn(8, 64)
    compiled = jit(layer)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(x), layer(x), rtol=2e-2, atol=2e-2)
    assert operations(compiled) == ONE


def test_what_is_read_again_is_kept():
    def program(x, w):
        h = F.linear(x, w)
        return F.gelu(h) + h

    compiled, x, w = jit(program), torch.randn(4, 8), torch.randn(8, 8)
    torch.testing.assert_close(compiled(x, w), program(x, w))
    assert len(thunder.last_traces(compiled)[-1].ops) == 3


def tensor(*shape, dtype="float32", device="cpu"):
    return TensorType(shape, contiguous_strides(shape), dtype, device)


def asked(input, weight, bias=None, *, measured=False, when="faster", pack=False):
    cx = ClaimContext(options={"when": when, "pack": pack}, measured=measured)
    return activations.check(cx, F.linear, input, weight, bias, then=((F.gelu, (), {}),))


REFUSED = {
    "on the CPU": [tensor(8, 8, device="cuda:0"), tensor(8, 8, device="cuda:0")],
    "empty": [tensor(0, 8), tensor(8, 8)],
    "does not multiply in float64": [tensor(8, 8, dtype="float64"), tensor(8, 8, dtype="float64")],
    "does not multiply in float16": [tensor(8, 8, dtype="float16"), tensor(8, 8, dtype="float16")],
    "a vector as bias": [tensor(8, 8), tensor(8, 8), tensor(1, 8)],
    "differ in dtype": [tensor(8, 8), tensor(8, 8, dtype="bfloat16")],
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_run_is_refused(why):
    for how in ({"when": "always"}, {"measured": True}, {}):
        answer = asked(*REFUSED[why], **how)
        assert isinstance(answer, No)
        assert why in answer.reason


def test_small_calls_are_refused_unless_measured(monkeypatch):
    monkeypatch.setattr(machine, "refusal", lambda: "")
    for dtype, enough in machine.ACTIVATED.items():
        rows = enough // 64
        below, above = ([tensor(n, 8, dtype=dtype), tensor(8, 8, dtype=dtype)] for n in (rows, rows + 1))
        assert "too few" in asked(*below).reason
        assert isinstance(asked(*below, measured=True), Yes)
        assert isinstance(asked(*below, when="always"), Yes)
        assert asked(*above) == Yes()
    monkeypatch.setattr(machine, "refusal", lambda: "another vendor")
    assert asked(*[tensor(1024, 1024)] * 2).reason == "another vendor"
    assert asked(*[tensor(1024, 1024, dtype="bfloat16")] * 2) == Yes()
    assert asked(tensor(8, 1024, dtype="bfloat16"), tensor(1024, 1024, dtype="bfloat16"), pack=True) == Yes(
        candidates=("packed", "plain")
    )


def test_reasons_reach_the_user():
    compiled = jit(lambda x, w: F.gelu(F.linear(x, w)), when="faster")
    compiled(torch.randn(4, 8), torch.randn(8, 8))
    (reason,) = [r for r in refusals(compiled, "torch.nn.functional.gelu") if "as one" in r]
    assert "256 multiplications are too few" in reason


def test_measured(monkeypatch, tmp_path):
    """Every activation and dtype races, with a packed weight too, against the two calls."""
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))
    options = {"select": "measure", "onednn.pack": True, "measure_budget": 60.0}
    for name, dtype in itertools.product(("gelu", "relu", "silu"), (torch.float32, torch.bfloat16)):
        layers = nn.Sequential(nn.Linear(64, 64), {"gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU}[name]()).to(dtype)
        compiled, x = (
            thunder.jit(layers, executors=[ONEDNN], frontend="functional", options=options),
            torch.randn(8, 64),
        )
        with torch.no_grad():
            torch.testing.assert_close(compiled(x.to(dtype)), layers(x.to(dtype)), rtol=2e-2, atol=2e-2)
        decision = compiled._thunder_records[-1].decisions[-1]
        assert list(decision.costs) == ["onednn (packed)", "onednn (plain)", "its parts"]
        assert decision.origin == "measured"


@pytest.mark.parametrize("broken", [("gelu", "tanh"), ("swish", "none")])
def test_post_ops_are_tried(monkeypatch, broken):
    """An activation that oneDNN computes otherwise than it is meant refuses every call."""
    entry.wrong.cache_clear()
    monkeypatch.setitem(entry.POST_OPS, broken, torch.sin)
    assert "come out wrong" in entry.wrong()
    entry.wrong.cache_clear()
