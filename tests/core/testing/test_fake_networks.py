"""On random networks, states are updated and closed exactly as often as eager runs the layers they belong to."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

import thunder
from tests.core.testing.networks import Network, Spec, counted, live_calls, specs
from thunder.ir import Phase, Stage, verify_schedule
from thunder.testing.fakes import FAKE, kernels


@pytest.fixture(autouse=True)
def _checked(monkeypatch):
    monkeypatch.setenv("THUNDER_VERIFY", "1")
    monkeypatch.setenv("THUNDER_STRICT", "1")


def step(module, spec: Spec):
    """Results and gradients (of the input and every parameter) of one training step."""
    torch.manual_seed(1)
    x = torch.randn(5, spec.width, requires_grad=spec.first)
    results = module(x)
    loss = [r.square().sum() for r, wanted in zip(results, spec.wanted, strict=True) if wanted and r.requires_grad]
    if loss:
        sum(loss).backward()
    return [r.detach() for r in results], [x.grad, *(p.grad for p in module.parameters())]


def law(spec: Spec, frontend: str) -> None:
    expected = step(Network(spec), spec)
    with counted() as backwards:
        step(Network(spec), spec)
    module = Network(spec)
    jitted = thunder.jit(module, executors=[FAKE], frontend=frontend)
    for _ in range(2):
        kernels.CALLS.clear()
        module.zero_grad()
        actual = step(jitted, spec)
        torch.testing.assert_close(actual, expected)
        closed = {name: [state for n, states in kernels.CALLS if n == name for state in states] for name in CLOSERS}
        runs = spec.width % 2 == 0
        assert len(closed["fake.sync_forward"]) == runs * len(live_calls(spec))
        assert sum(name == "fake.sync_forward" for name, _ in kernels.CALLS) == bool(closed["fake.sync_forward"])
        assert len(closed["fake.sync_backward"]) == runs * sum(backwards.values())
        assert all(len(set(states)) == len(states) for states in closed.values())
    states = thunder.executor_state(jitted)
    assert set(states.get("fake.forward", {})) == set(names(live_calls(spec)) if runs else ())
    assert all(state.updates == state.closes == 2 for state in states.get("fake.forward", {}).values())
    backward = states.get("fake.backward", {}).values()
    assert all(state.updates == state.closes for state in backward)
    assert sum(state.updates for state in backward) == 2 * runs * sum(backwards.values())
    check_traces(jitted)


CLOSERS = ("fake.sync_forward", "fake.sync_backward")


def names(layers: list[int]) -> list[str]:
    """The names of call sites, from the layer of each call."""
    seen: list[int] = []
    found = []
    for layer in layers:
        again = f"_{seen.count(layer)}" if layer in seen else ""
        found.append(f"layers_{layer}_weight{again}")
        seen.append(layer)
    return found


def check_traces(jitted) -> None:
    """Closers are the last operations that touch their states, and every piece of backward owes its own."""
    for record in jitted._thunder_records:
        forward = record.traces[-1]
        pieces = [trace for trace in record.backward_traces if trace.stage is Stage.SCHEDULED]
        verify_schedule({Phase.FORWARD: forward})
        for piece in pieces:
            verify_schedule({Phase.FORWARD: forward, Phase.BACKWARD: piece})
            touches = any(op.sym.name == "fake.linear_bwd" for op in piece.ops)
            assert [op.sym.name for op in piece.ops].count("fake.sync_backward") == touches
            assert (piece.ops[-1].sym.name == "fake.sync_backward") == touches


@given(specs())
@settings(max_examples=60)
def test_states_follow_the_layers(spec: Spec) -> None:
    law(spec, "functional")


@given(specs())
@settings(max_examples=6)
def test_states_follow_the_layers_with_dynamo(spec: Spec) -> None:
    torch._dynamo.reset()
    law(spec, "dynamo")
