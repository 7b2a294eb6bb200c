"""The example package keeps the contract: its rules agree with PyTorch, forward and backward."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thunder.extend import ClaimContext, No, TensorType, Yes, resolve
from thunder.plugins.manager import registry
from thunder.plugins.options import resolve_options
from thunder.plugins.selection import select_executors
from thunder.plugins.symbols import RECORDER
from thunder.plugins.targets import unknown_targets, unresolved

TARGETS = {"torch.nn.functional.gelu": torch.nn.functional.gelu, "torch.sin": torch.sin}


@pytest.fixture
def example(installed):
    installed("thunder-example")
    return select_executors("example", registry())[0]


def test_everything_it_names_exists(example):
    assert unknown_targets(example) == ()
    assert unresolved(example) == ()
    assert {claim.target for claim in example.claims} == set(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_rules_agree_with_pytorch(example, target):
    claim, values = example.claim(target), torch.linspace(-4, 4, 97, dtype=torch.float64)
    forward, backward = resolve(claim.grad.forward), resolve(claim.grad.backward)
    expected = TARGETS[target](x := values.clone().requires_grad_())
    (expected_grad,) = torch.autograd.grad(expected, x, grad := torch.cos(values))
    out, saved = forward(values)
    (actual_grad,) = backward(saved, grad)
    torch.testing.assert_close(out, expected.detach())
    torch.testing.assert_close(actual_grad, expected_grad)
    if claim.lower is not None:
        torch.testing.assert_close(resolve(claim.lower)(values), expected.detach())


def test_rules_are_recorded_by_symbol(example):
    calls = []

    class Recorder:
        def call_symbol(self, op, args, kwargs):
            calls.append(op.name)
            return args[0]

    token = RECORDER.set(Recorder())
    try:
        out, saved = resolve("thunder_example.rules:gelu_forward")(x := torch.ones(2))
        resolve("thunder_example.rules:gelu_backward")(saved, x)
    finally:
        RECORDER.reset(token)
    assert out is x
    assert calls == ["example.gelu", "example.gelu_backward"]


def test_check(example):
    @given(
        st.sampled_from(["float16", "float32", "float64", "int64"]), st.sampled_from(["none", "tanh"]), st.booleans()
    )
    def law(dtype, approximate, double):
        options = resolve_options({"example.double": double}, [example])["example"]
        x = TensorType((4, 3), (3, 1), dtype, "cpu")
        answer = example.claim("torch.nn.functional.gelu").ask(ClaimContext(options=options), x, approximate)
        runs = approximate == "none" and (dtype == "float32" or (dtype == "float64" and double))
        assert isinstance(answer, Yes if runs else No)

    law()
