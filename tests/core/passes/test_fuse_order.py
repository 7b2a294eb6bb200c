"""Who runs what where executors claim calls and others fuse: the user's order decides."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder.extend import Claim, Executor, Grad, No, Op, Yes, symbol
from thunder.runtime.library import LIBRARY
from thunder.testing.fakes.fuser import FUSER, RUNS

HERE = __name__
_norm = symbol("norms.norm")


def kernel(x, shape, weight=None, bias=None, eps=1e-5):
    return F.layer_norm(x, shape, weight, bias, eps)


def check(cx, x, shape, weight=None, bias=None, eps=1e-5):
    return Yes() if x.shape[-1] % 2 == 0 else No("needs an even width")


def lower(x, shape, weight=None, bias=None, eps=1e-5):
    return _norm(x, shape, weight, bias, eps)


def forward(x, shape, weight=None, bias=None, eps=1e-5):
    return _norm(x, shape, weight, bias, eps), (x, shape)


def backward(saved, grad):
    x, shape = saved
    _, mean, rstd = torch.ops.aten.native_layer_norm(x, list(shape), None, None, 1e-5)
    return torch.ops.aten.native_layer_norm_backward(
        grad, x, list(shape), mean, rstd, None, None, [True, False, False]
    )[0]


NORMS = Executor(
    name="norms",
    symbols=(Op("norms.norm", impl=f"{HERE}:kernel"),),
    claims=(
        Claim(
            "torch.nn.functional.layer_norm",
            check=f"{HERE}:check",
            lower=f"{HERE}:lower",
            grad=Grad(forward=f"{HERE}:forward", backward=f"{HERE}:backward"),
        ),
        Claim("aten.sin"),
    ),
)


@pytest.fixture(autouse=True)
def fresh():
    LIBRARY.clear()
    RUNS.clear()


def program(x):
    return (F.layer_norm(x * 2, x.shape[-1:]) + 1).sin() * 3


def symbols(trace):
    return [op.sym.name for op in trace.ops]


@pytest.mark.parametrize("grad", [False, True])
def test_an_executor_before_the_fuser_keeps_what_it_claims(grad):
    x = torch.randn(4, 8, requires_grad=grad)
    jitted = thunder.jit(program, executors=[NORMS, FUSER], frontend="functional")
    torch.testing.assert_close(jitted(x), program(x))
    assert "norms.norm" in symbols(thunder.last_traces(jitted)[-1])
    assert RUNS


@pytest.mark.parametrize("grad", [False, True])
def test_what_a_fuser_before_it_supports_is_left_for_the_fuser(grad):
    x = torch.randn(4, 8, requires_grad=grad)
    jitted = thunder.jit(program, executors=[FUSER, NORMS], frontend="functional")
    torch.testing.assert_close(jitted(x), program(x))
    assert symbols(thunder.last_traces(jitted)[-1]) == ["fakefuser.region"]


def test_what_a_fuser_before_it_does_not_support_is_still_claimed():
    x = torch.randn(4, 8)
    options = {"fakefuser.skip": "aten.native_layer_norm"}
    jitted = thunder.jit(program, executors=[FUSER, NORMS], frontend="functional", options=options)
    torch.testing.assert_close(jitted(x), program(x))
    assert "norms.norm" in symbols(thunder.last_traces(jitted)[-1])


def test_what_an_executor_refuses_is_fused():
    x = torch.randn(4, 7)
    jitted = thunder.jit(program, executors=[NORMS, FUSER], frontend="functional")
    torch.testing.assert_close(jitted(x), program(x))
    assert symbols(thunder.last_traces(jitted)[-1]) == ["fakefuser.region"]
    refusals = [op.selection.refusals for op in thunder.last_traces(jitted)[2].ops if op.selection.refusals]
    assert [[refusal.reason for refusal in found] for found in refusals] == [["needs an even width"]]
