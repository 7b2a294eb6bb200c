"""States of executors belong to call sites of a jitted function, whatever it is compiled for."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from thunder.errors import PluginError, ThunderError
from thunder.extend import Claim, Executor, Op, Scope, StateKind, Updates, symbol
from thunder.testing.fakes import FAKE, kernels

FRONT_ENDS = ("functional", "dynamo")


@pytest.fixture(autouse=True)
def _checked(monkeypatch):
    monkeypatch.setenv("THUNDER_VERIFY", "1")
    monkeypatch.setenv("THUNDER_STRICT", "1")
    kernels.CALLS.clear()
    torch._dynamo.reset()
    torch.manual_seed(0)


class Model(nn.Module):
    """Two layers, the first applied twice, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.dropout(self.body(x).relu(), 0.1, self.training)
        return self.head(self.body(x))


SITES = ["body_weight", "body_weight_1", "head_weight"]


def forward_states(jitted) -> dict[str, kernels.Scales]:
    return thunder.executor_state(jitted)["fake.forward"]


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_an_instance_outlives_recompilation(frontend):
    jitted = thunder.jit(Model(), executors=[FAKE], frontend=frontend)
    jitted(torch.randn(2, 4)).sum().backward()
    first = dict(forward_states(jitted))
    assert sorted(first) == SITES
    jitted(torch.randn(7, 4))
    jitted(torch.randn(7, 3, 4))
    jitted.eval()(torch.randn(2, 4)).sum().backward()
    with torch.no_grad():
        jitted(torch.randn(2, 4))
    jitted.body.requires_grad_(False)
    jitted.train()(torch.randn(2, 4, requires_grad=True)).sum().backward()
    assert len(jitted._thunder_records) >= 5
    assert forward_states(jitted) == first  # Scales are equal only to themselves
    assert {name: (s.updates, s.closes) for name, s in first.items()} == dict.fromkeys(SITES, (6, 6))
    backward = thunder.executor_state(jitted)["fake.backward"]
    assert {name: (s.updates, s.closes) for name, s in backward.items()} == dict.fromkeys(SITES, (3, 3))


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_backward_touches_the_states_of_its_own_forward(frontend):
    jitted = thunder.jit(Model(), executors=[FAKE], frontend=frontend)
    for step in range(3):
        jitted(torch.randn(2 + step, 4)).sum().backward()
    states = thunder.executor_state(jitted)
    assert {s.read for s in states["fake.backward"].values()} == {3}
    assert {s.updates for s in states["fake.forward"].values()} == {3}


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_calls_without_a_parameter_are_named_after_what_they_call(frontend):
    jitted = thunder.jit(lambda x, w: F.linear(F.linear(x, w), w), executors=[FAKE], frontend=frontend)
    w = torch.randn(4, 4)
    jitted(torch.randn(2, 4), w)
    first = dict(forward_states(jitted))
    jitted(torch.randn(3, 4), w)
    assert sorted(first) == ["linear", "linear_1"]
    assert forward_states(jitted) == first


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_what_is_computed_from_a_parameter_alone_counts_as_it(frontend):
    class Derived(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.weight = nn.Parameter(torch.ones(4, 1)), nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            weight = (self.weight * self.scale).t().contiguous()
            return F.linear(F.linear(x, weight), self.weight.clone())

    jitted = thunder.jit(Derived(), executors=[FAKE], frontend=frontend)
    jitted(torch.randn(2, 4))
    assert sorted(forward_states(jitted)) == ["weight", "weight_1"]


def test_parts_that_a_graph_break_makes_have_states_of_their_own():
    @torch._dynamo.disable
    def outside(x):
        return x

    def program(x, w):
        return F.linear(outside(F.linear(x, w)), w)

    jitted = thunder.jit(program, executors=[FAKE])
    w = torch.randn(4, 4, requires_grad=True)
    jitted(torch.randn(2, 4), w).sum().backward()
    first = dict(forward_states(jitted))
    assert sorted(first) == ["graph1.linear", "linear"]
    jitted(torch.randn(5, 4), w).sum().backward()
    assert forward_states(jitted) == first
    assert {s.updates for s in first.values()} == {2}


def test_a_call_keeps_its_name_where_another_call_is_refused():
    """An odd number of features is refused: the second use of a weight stays the second."""
    jitted = thunder.jit(lambda x, w, v: (F.linear(x, w), F.linear(v, v)), executors=[FAKE], frontend="functional")
    v = torch.randn(4, 4)
    jitted(torch.randn(2, 3), torch.randn(2, 3), v)
    assert sorted(forward_states(jitted)) == ["linear_1"]
    first = forward_states(jitted)["linear_1"]
    jitted(torch.randn(2, 4), torch.randn(2, 4), v)
    assert sorted(forward_states(jitted)) == ["linear", "linear_1"]
    assert forward_states(jitted)["linear_1"] is first


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_jitted_functions_and_copies_have_their_own(frontend):
    module, x = Model(), torch.randn(2, 4)
    one, two = (thunder.jit(module, executors=[FAKE], frontend=frontend) for _ in range(2))
    one(x)
    three = copy.deepcopy(one)
    two(x), three(x)
    instances = [state for jitted in (one, two, three) for state in forward_states(jitted).values()]
    assert len(set(instances)) == 9


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_a_state_can_be_put_in_before_the_first_call(frontend):
    old = thunder.jit(Model(), executors=[FAKE], frontend=frontend)
    old(torch.randn(2, 4))
    new = thunder.jit(Model(), executors=[FAKE], frontend=frontend)
    thunder.executor_state(new)["fake.forward"] = copy.deepcopy(forward_states(old))
    new(torch.randn(2, 4))
    assert {name: s.updates for name, s in forward_states(new).items()} == dict.fromkeys(SITES, 2)
    assert {name: s.updates for name, s in forward_states(old).items()} == dict.fromkeys(SITES, 1)


@pytest.mark.parametrize("scope", [Scope.TRACE, Scope.PROCESS])
def test_wider_scopes_share_one_instance(scope):
    shared = replace(FAKE, states=tuple(replace(kind, scope=scope) for kind in FAKE.states))
    one, two = (thunder.jit(Model(), executors=[shared], frontend="functional") for _ in range(2))
    for jitted in (one, two):
        jitted(torch.randn(2, 4)).sum().backward()
    closed = [states for name, states in kernels.CALLS if name == "fake.sync_forward"]
    assert [len(states) for states in closed] == [1, 1]
    assert (closed[0] == closed[1]) is (scope is Scope.PROCESS)
    assert len([name for name, _ in kernels.CALLS if name == "fake.sync_backward"]) == 2


def counted_mm(x, w):
    return symbol("counting.mm")(x, w)


def run_mm(x, w, states):
    states[0].update(x)
    return x @ w


COUNTING = Executor(
    name="counting",
    symbols=(Op("counting.mm", impl=f"{__name__}:run_mm", meta="torch:mm", effects=(Updates("counting.seen"),)),),
    states=(StateKind(name="counting.seen", init="thunder.testing.fakes.kernels:Scales", scope=Scope.CALLSITE),),
    claims=(Claim("aten.mm", lower=f"{__name__}:counted_mm"),),
)


def test_an_operator_of_a_derivative_has_no_state_of_its_own():
    """It has no name that is the same in the next compilation, so another operator would get its state."""
    jitted = thunder.jit(torch.mm, executors=[COUNTING], frontend="functional")
    x, w = torch.randn(2, 3), torch.randn(3, 4)
    for rows in (2, 5):
        jitted(torch.randn(rows, 3), w)
    (state,) = thunder.executor_state(jitted)["counting.seen"].values()
    assert state.updates == 2
    with pytest.raises(PluginError, match=r"counting\.seen belongs to a call of the program"):
        jitted(x.requires_grad_(), w).sum().backward()
    wider = replace(COUNTING, states=(replace(COUNTING.states[0], scope=Scope.TRACE),))
    jitted = thunder.jit(torch.mm, executors=[wider], frontend="functional")
    jitted(x, w).sum().backward()
    assert thunder.executor_state(jitted)["counting.seen"][""].updates >= 2


def test_torch_compile_does_not_keep_states():
    from thunder.frontends.dynamo import backend

    for executors, warned in (([FAKE], True), ("torch", False)):
        torch._dynamo.reset()
        compiled = torch.compile(Model(), backend=backend, options={"executors": executors})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            compiled(torch.randn(2, 4)).sum().backward()
        found = [str(w.message) for w in caught if "Use thunder.jit" in str(w.message)]
        assert bool(found) is warned
        assert all(text.startswith("fake.forward, fake.backward: ") for text in found)


def test_only_jitted_functions_have_states():
    with pytest.raises(ThunderError, match="is not jitted"):
        thunder.executor_state(len)
    assert thunder.executor_state(thunder.jit(len)) == {}
