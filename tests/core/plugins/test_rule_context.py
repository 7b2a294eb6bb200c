"""What rules, states and caches are given: the context of the claim, the name of the call, a key compared by value."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import thunder
from thunder.extend import Claim, Executor, Grad, Option, Yes
from thunder.observe.explain import rows
from thunder.testing.fakes import FAKE


@dataclass(frozen=True)
class Key:
    """Equal to every other key of its value, but not the same object."""

    value: int


HERE = ModuleType("rules_with_context")
HERE.seen = []
HERE.value = 1
HERE.key = lambda options: Key(HERE.value)
HERE.check = lambda cx, input: Yes(f"times {cx.cache_key.value}")
sys.modules[HERE.__name__] = HERE


def lower(input, *, cx):
    HERE.seen.append(cx)
    return input * cx.options["factor"]


def forward(input, *, cx):
    return lower(input, cx=cx), (cx.options["factor"],)


HERE.lower, HERE.forward = lower, forward
HERE.backward = lambda saved, grad: (grad * saved[0],)
NAMES = {name: f"{HERE.__name__}:{name}" for name in ("check", "lower", "forward", "backward", "key")}
EXECUTOR = Executor(
    name="scaling",
    claims=(
        Claim(
            "torch.sin",
            check=NAMES["check"],
            lower=NAMES["lower"],
            grad=Grad(forward=NAMES["forward"], backward=NAMES["backward"]),
        ),
    ),
    options=(Option("factor", int, 3, "what it multiplies by"),),
    cache_key=NAMES["key"],
    numerics="approximate",
)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setenv("THUNDER_STRICT", "1")
    HERE.seen.clear()
    HERE.value = 1


def jit(fn, frontend="functional", **options):
    return thunder.jit(fn, executors=[EXECUTOR], frontend=frontend, options=options)


@pytest.mark.parametrize("frontend", ["functional", "dynamo"])
def test_rules_are_given_the_context_of_the_claim(frontend):
    f = jit(lambda x: torch.sin(x), frontend, **{"scaling.factor": 5})
    x = torch.ones(2, requires_grad=True)
    f(x).sum().backward()
    assert x.grad.tolist() == [5, 5]
    assert {(cx.options["factor"], cx.cache_key, cx.needs_grad, cx.grad_mode) for cx in HERE.seen} == {
        (5, Key(1), (True,), True)
    }
    HERE.seen.clear()
    with torch.no_grad():
        assert f(x).tolist() == [5, 5]
    assert {(cx.needs_grad, cx.grad_mode) for cx in HERE.seen} == {((False,), False)}


def test_the_detail_of_an_answer_is_explained():
    (row,) = rows(thunder.explain(jit(lambda x: torch.sin(x)))(torch.ones(2)).records[0])
    assert row.executor == "scaling (times 1)"


def test_keys_are_compared_by_value():
    f = jit(lambda x: torch.sin(x))
    for value in (1, 1, 2, 1):
        HERE.value = value
        f(torch.ones(2))
    assert thunder.cache_misses(f) == 2


def test_states_are_named_after_their_call():
    jitted = thunder.jit(nn.Sequential(nn.Linear(4, 4)), executors=[FAKE], frontend="functional")
    jitted(torch.randn(2, 4)).sum().backward()
    assert {state.of for by_site in thunder.executor_state(jitted).values() for state in by_site.values()} == {
        "_0_weight"
    }


@pytest.mark.parametrize("frontend", ["functional", "dynamo"])
def test_recomputation_sees_the_states_of_calls_without_gradient(frontend):
    """A frozen layer at the start of a checkpointed region must not touch its state again in backward."""
    first, second = nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 4)

    class Region(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x):
            return checkpoint(lambda v: self.second(self.first(v).tanh()).tanh(), x, use_reentrant=False)

    jitted = thunder.jit(Region(), executors=[FAKE], frontend=frontend)
    out = jitted(torch.randn(2, 4))
    states = thunder.executor_state(jitted)["fake.forward"]
    assert sorted(states) == ["first_weight", "second_weight"]
    assert [(state.updates, state.closes) for state in states.values()] == [(1, 1)] * 2
    out.sum().backward()
    assert [(state.updates, state.closes) for state in states.values()] == [(1, 1)] * 2
