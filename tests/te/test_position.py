"""The synchronisation of scales is where it must be in every program, and runs exactly once per step and direction."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from torch.utils.checkpoint import checkpoint

import thunder
import thunder_te
from tests.core.testing.networks import counted
from tests.te.networks import Network, Spec, specs, train
from thunder.ir import Phase, Stage, verify_schedule
from thunder_te import sync
from thunder_te.plugin import TE

CLOSERS = ("sync_fp8_meta_fwd", "sync_fp8_meta_bwd")
RECIPE = thunder_te.DelayedScaling(amax_history_len=4)


@contextlib.contextmanager
def recorded() -> Iterator[dict[str, list[tuple]]]:
    """The calls of both closers, each with its states."""
    calls: dict[str, list[tuple]] = {name: [] for name in CLOSERS}
    with contextlib.ExitStack() as stack:
        for name in CLOSERS:
            closer = getattr(sync, name)

            def call(*states, name=name, closer=closer):
                calls[name].append(states)
                closer(*states)

            stack.enter_context(mock.patch.object(sync, name, call))
        yield calls


def law(spec: Spec, frontend: str) -> None:
    module = Network(spec)
    with counted() as backwards:
        train(module, spec)
    expected = sum(backwards.values())
    jitted = thunder.jit(module, executors=[TE], frontend=frontend)
    with recorded() as calls, thunder_te.autocast(recipe=RECIPE):
        for step in range(2):
            train(jitted, spec, seed=step)
    forward, backward = (calls[name] for name in CLOSERS)
    assert len(forward) == 2 * bool(spec.live)
    assert all(len(set(states)) == len(states) == len(spec.live) for states in forward)
    assert sum(map(len, backward)) == 2 * expected
    assert all(states and len(set(states)) == len(states) for states in backward)
    of_kind = thunder.executor_state(jitted)
    assert len(of_kind.get("te.forward", {})) == len(spec.live)
    for state in {state for states in forward for state in states}:
        assert (state.history != 0).sum(0).tolist() == [2, 2]
    for state in {state for states in backward for state in states}:
        updates = sum(state in states for states in backward)
        assert (state.history != 0).sum().item() <= min(updates, 3)
    check_traces(jitted)


def check_traces(jitted) -> None:
    """Each backward program ends with the closer iff it has an FP8 operation; forward closes what it touches."""
    for record in jitted._thunder_records:
        forward = record.traces[-1]
        names = [op.sym.name for op in forward.ops if op.phase is Phase.FORWARD]
        touches = "te.observe" in names
        assert names.count("te.sync_fp8_meta_fwd") == touches
        assert not touches or "te.observe" not in names[names.index("te.sync_fp8_meta_fwd") :]
        for piece in (trace for trace in record.backward_traces if trace.stage is Stage.SCHEDULED):
            verify_schedule({Phase.FORWARD: forward, Phase.BACKWARD: piece})
            names = [op.sym.name for op in piece.ops]
            touches = "te.reference.linear_bwd" in names
            assert names.count("te.sync_fp8_meta_bwd") == touches
            assert not touches or names[-1] == "te.sync_fp8_meta_bwd"
            assert "te.observe" not in names
            assert "te.sync_fp8_meta_fwd" not in names


@given(specs())
@settings(max_examples=40)
def test_every_program_ends_with_its_sync(spec: Spec) -> None:
    law(spec, "functional")


@given(specs())
@settings(max_examples=4)
def test_every_program_ends_with_its_sync_with_dynamo(spec: Spec) -> None:
    torch._dynamo.reset()
    law(spec, "dynamo")


@given(specs())
@settings(max_examples=15)
def test_checkpointing_changes_nothing(spec: Spec) -> None:
    """Results, gradients and scales are equal to the bit, with and without recomputation."""
    found = []
    for checkpointed in (False, True):
        blocks = tuple(replace(block, checkpointed=checkpointed) for block in spec.blocks)
        jitted = thunder.jit(Network(replace(spec, blocks=blocks)), executors=[TE], frontend="functional")
        with thunder_te.autocast(recipe=RECIPE):
            values = [train(jitted, spec, seed) for seed in range(2)]
        found.append((values, jitted.executor_state_dict()))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


@pytest.mark.parametrize("frontend", ["functional", "dynamo"])
def test_recomputation_uses_the_scales_of_its_forward(frontend):
    """Which the sync at the end of forward has replaced by then: they are saved, and not read again."""
    block = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16), torch.nn.Tanh())

    class Checkpointed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.block = block

        def forward(self, x):
            return checkpoint(self.block, x, use_reentrant=False)

    jitted = thunder.jit(Checkpointed(), executors=[TE], frontend=frontend)
    for _ in range(2):
        with thunder_te.autocast(recipe=RECIPE):
            jitted(torch.randn(8, 16) * 10).sum().backward()
    backward = thunder.last_backward_traces(jitted)[-1]
    again = [op for op in backward.ops if op.sym.name == "te.reference.linear_fwd"]
    assert len(again) == 2
    scales = [op.args[3] for op in again]
    assert all(v in backward.params for v in scales)
    assert {op.sym.name for op in backward.ops}.isdisjoint({"te.scales", "te.observe", "te.sync_fp8_meta_fwd"})
    forward = thunder.last_traces(jitted)[-1]
    made = {op.outputs[0]: op.sym.name for op in forward.ops if op.outputs}
    assert [made[v] for v in scales] == ["te.scales"] * 2


@pytest.mark.parametrize("frontend", ["functional", "dynamo"])
def test_the_text_ends_with_the_sync(frontend):
    module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16))
    jitted = thunder.jit(module, executors=["torch", TE], frontend=frontend)
    with thunder_te.autocast(recipe=RECIPE):
        jitted(torch.randn(8, 16)).sum().backward()
    backward = thunder.last_backward_traces(jitted)[-1]
    lines = [line.strip() for line in str(backward).splitlines()]
    end = next(n for n, line in enumerate(lines) if line.startswith("return "))
    last = next(line for line in reversed(lines[:end]) if not line.startswith(("del ", "#")))
    assert last.startswith("sync_fp8_meta_bwd(")
    assert last.count("state_te_backward_") == 2
