"""Measured selection together with all else: state, composites, checkpointing, autocast, failures."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import thunder
from tests.core.runtime.measuring import FRONT_ENDS, LONG, MEASURE, agree, decisions, layer, runs_on
from tests.core.testing import racing
from tests.core.testing.racing import racer
from thunder.errors import ExecutionError
from thunder.extend import Claim, Executor, No, Yes
from thunder.frontends.dynamo import backend
from thunder.runtime import measured
from thunder.testing.fakes import FAKE

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_an_executor_with_state_is_not_measured(frontend):
    module, x = layer()
    for executors, expected in (([FAKE, racer("plain", "plain")], "fake"), ([racer("plain", "plain"), FAKE], "plain")):
        jitted = thunder.jit(module, executors=executors, frontend=frontend, options=MEASURE)
        agree(module, jitted, x)
        assert runs_on(jitted) == [expected]
        (decision,) = decisions(jitted)
        assert decision.origin == "order"
        assert "fake.forward" in decision.why
    states = [state for kind in thunder.executor_state(jitted).values() for state in kind.values()]
    assert not states


def refuse_unless_measured(cx, *args, **kwargs):
    return Yes("plain") if cx.measured else No("expected to be slower")


def test_a_check_that_guesses_is_asked_again_where_nothing_is_measured(priced):
    priced(guess=1.0, torch=2.0)
    module, x = layer()
    guess = racer("guess", "plain")
    guess = replace(guess, claims=(replace(guess.claims[0], check=f"{__name__}:refuse_unless_measured"),))
    for options, expected in (({}, "torch"), (LONG, "guess"), ({"measure_budget": 0.0}, "torch")):
        jitted = thunder.jit(
            module, executors=[guess], frontend="functional", options=(MEASURE | options) if options else {}
        )
        jitted(x[: 3 if options == LONG else 5])
        assert runs_on(jitted) == [expected]


def square_first(a, b):
    return torch.mm(a, b)


MATMUL = Executor(name="products", claims=(Claim("aten.mm", lower=f"{__name__}:square_first"),))


@pytest.mark.parametrize(
    ("own", "whole", "expected"), [(1.0, 3.0, "products"), (9.0, 1.0, "torch"), (1.0, 0.5, "torch")]
)
def test_a_composite_is_opened_only_if_that_is_faster(own, whole, expected, priced):
    """The parts and the whole race, after those that can run a part have."""
    prices = priced(products=own, torch=2.0)
    plain = prices.trial

    def trial(subject, ops, *rest):
        made = plain(subject, ops, *rest)
        if subject.call.sym.name == "torch.matmul" and len(ops) == 1:
            return replace(made, run=lambda *_: setattr(prices, "now", prices.now + whole))
        return made

    measured.trial = trial
    x, w = torch.randn(2, 3, 4), torch.randn(4, 5)
    jitted = thunder.jit(torch.matmul, executors=[MATMUL], frontend="functional", options=MEASURE | LONG)
    torch.testing.assert_close(jitted(x, w), torch.matmul(x, w))
    executors = {op.selection.executor for op in thunder.last_traces(jitted)[-1].ops}
    assert ("products" in executors) == (expected == "products")


def test_operators_of_a_derived_backward_race_too(priced):
    priced(products=1.0, torch=2.0)
    module, x = layer()
    jitted = thunder.jit(module, executors=[MATMUL], frontend="functional", options=MEASURE | LONG)
    agree(module, jitted, x)
    backward = thunder.last_backward_traces(jitted)[-1]
    assert "products" in {decision.chosen for decision in decisions(jitted)}
    assert "mm" not in {op.sym.name.partition(".")[2] for op in backward.ops if op.selection.executor == "torch"}


@pytest.mark.parametrize("culprit", ["linear", "of_weight"])
def test_a_candidate_that_fails_leaves_the_call_to_the_order(culprit, monkeypatch):
    def fail(*args):
        raise ValueError("a bad kernel")

    module, x = layer()
    jitted = thunder.jit(module, executors=[racer("bad", "plain")], frontend="functional", options=MEASURE)
    monkeypatch.setattr(racing, culprit, fail)
    with pytest.raises(ExecutionError, match="a bad kernel"):
        jitted(x).sum().backward()
    (decision,) = decisions(jitted)
    assert (decision.chosen, decision.origin, decision.why) == ("bad", "order", "ValueError: a bad kernel")


def entropy(input, target, weight=None, reduction="mean"):
    return torch.nn.functional.binary_cross_entropy(input, target, weight, reduction=reduction)


def lookup(input, weight, *args, **kwargs):
    return weight[input]


ENTROPY = Executor(name="entropy", claims=(Claim("torch.nn.functional.binary_cross_entropy", check=None),))
LOOKUP = Executor(name="lookup", claims=(Claim("torch.nn.functional.embedding", lower=f"{__name__}:lookup"),))


def test_random_values_that_a_call_refuses_leave_it_to_the_order():
    jitted = thunder.jit(F.binary_cross_entropy, executors=[ENTROPY], frontend="functional", options=MEASURE)
    x, target = torch.rand(4), torch.rand(4)
    torch.testing.assert_close(jitted(x, target), F.binary_cross_entropy(x, target))
    (decision,) = decisions(jitted)
    assert "between 0 and 1" in decision.why
    assert decision.origin == "order"


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_integers_are_valid_indices(frontend):
    jitted = thunder.jit(F.embedding, executors=[LOOKUP], frontend=frontend, options=MEASURE)
    index, weight = torch.tensor([[3, 1], [4, 1]]), torch.randn(5, 6)
    torch.testing.assert_close(jitted(index, weight), weight[index])
    assert [decision.origin for decision in decisions(jitted)] == ["measured"]


def test_random_draws_are_not_measured_and_the_seed_holds():
    noisy = Executor(name="noisy", claims=(Claim("torch.nn.functional.dropout"),))
    jitted = thunder.jit(lambda x: F.dropout(F.linear(x, x), 0.5), executors=[noisy, racer("slow", "often")],
                         frontend="functional", options=MEASURE)  # fmt: skip
    x = torch.randn(8, 8)
    torch.manual_seed(3)
    actual = jitted(x)
    torch.manual_seed(3)
    torch.testing.assert_close(actual, F.dropout(F.linear(x, x), 0.5))
    assert {decision.what for decision in decisions(jitted)} == {"torch.nn.functional.linear"}


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_checkpointing(frontend, priced):
    priced(fast=1.0, torch=2.0)
    module, x = layer()

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, x):
            return checkpoint(self.module, x, use_reentrant=False)

    jitted = thunder.jit(Checkpointed(), executors=[racer("fast", "plain")], frontend=frontend, options=MEASURE | LONG)
    agree(Checkpointed(), jitted, x)
    assert runs_on(jitted) == ["fast"]
    backward = [op.sym.name for op in thunder.last_backward_traces(jitted)[-1].ops]
    assert backward.count("fast.linear") == 1


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_autocast(frontend, priced):
    """What is measured are calls of the dtypes that run."""
    priced(fast=1.0, torch=2.0)
    module, x = layer()
    jitted = thunder.jit(module, executors=[racer("fast", "plain")], frontend=frontend, options=MEASURE | LONG)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(jitted(x), module(x))
    (decision,) = decisions(jitted)
    assert decision.chosen == "fast"
    assert "bf16[64, 48]" in decision.signature


def test_the_backend_of_torch_compile():
    module, x = layer(256)
    options = {"select": "measure", "executors": [racer("slow", "often"), racer("same", "plain")]}
    compiled = torch.compile(module, backend=backend, options=options)
    agree(module, compiled, x)
    ordered = torch.compile(module, backend=backend, options=options | {"select": "order"})
    agree(module, ordered, x)
    with pytest.raises(Exception, match="cannot be 'best'"):
        torch.compile(module, backend=backend, options=options | {"select": "best"})(x)


def test_some_gradients_and_double_backward(priced):
    priced(fast=1.0, torch=2.0)
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)

    def program(x):
        y = first(x).tanh()
        return y, second(y)

    jitted = thunder.jit(program, executors=[racer("fast", "plain")], frontend="functional", options=MEASURE | LONG)
    x = torch.randn(3, 4, requires_grad=True)
    for f in (program, jitted):
        (g,) = torch.autograd.grad(f(x)[0].sum(), x, create_graph=True)
        f.grads = (g, *torch.autograd.grad(g.square().sum(), [x, first.weight]))
    torch.testing.assert_close(jitted.grads, program.grads)


def test_calls_of_sizes_known_only_at_run_time_are_left_to_the_order():
    torch._dynamo.reset()
    lookup = thunder.jit(F.embedding, executors=[LOOKUP], dynamic=True, options=MEASURE)
    for rows in (3, 5, 7):
        weight, index = torch.randn(9, 4), torch.arange(2 * rows).reshape(rows, 2) % 9
        torch.testing.assert_close(lookup(index, weight), weight[index])
    assert decisions(lookup) == []
    assert not [note for note in lookup._thunder_notes if note.kind == "by size"]
