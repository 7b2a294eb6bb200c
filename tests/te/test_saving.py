"""Scales are saved and restored beside the module's own state; training goes on equal to the bit."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

import thunder
import thunder_te
from tests.te.test_training import RECIPE, jit, mlp, same, sgd, step

FRONT_ENDS = ("functional", "dynamo")


def saved(value):
    """What ``torch.save`` and ``torch.load`` make of a value."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("frontend", FRONT_ENDS)
@pytest.mark.parametrize("after_first_call", [False, True])
def test_training_is_resumed_to_the_bit(frontend, after_first_call):
    jitted = jit(mlp(), frontend)
    optimizer = torch.optim.Adam(jitted.parameters())
    for seed in range(4):
        step(jitted, optimizer, seed)
    checkpoint = saved(
        {"model": jitted.state_dict(), "optimizer": optimizer.state_dict(), "fp8": jitted.executor_state_dict()}
    )
    expected = [step(jitted, optimizer, seed) for seed in range(4, 8)]

    resumed = jit(mlp(), frontend)
    if after_first_call:
        step(resumed, sgd(resumed), 99)
    resumed.load_state_dict(checkpoint["model"])
    resumed.load_executor_state_dict(checkpoint["fp8"])
    optimizer = torch.optim.Adam(resumed.parameters())
    optimizer.load_state_dict(checkpoint["optimizer"])
    assert [step(resumed, optimizer, seed) for seed in range(4, 8)] == expected
    same(resumed.executor_state_dict(), jitted.executor_state_dict())


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_names_are_those_of_modules(frontend):
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([mlp()])
            self.head = nn.Linear(16, 16, bias=False)

        def forward(self, x):
            return self.head(self.head(self.blocks[0](x)))

    module = Shared()
    keys = list(module.state_dict())
    jitted = jit(module, frontend)
    step(jitted, sgd(jitted), 0)
    found = jitted.executor_state_dict()
    assert sorted(found) == ["blocks.0.0.weight", "blocks.0.2.weight", "head.weight", "head.weight_1"]
    assert {kind for of_site in found.values() for kind in of_site} == {"te.forward", "te.backward"}
    assert list(jitted.state_dict()) == list(module.state_dict()) == keys


def test_what_is_saved_is_a_copy_and_survives_being_loaded_and_saved_again():
    jitted = jit(mlp())
    optimizer = sgd(jitted)
    step(jitted, optimizer, 0)
    first = jitted.executor_state_dict()
    kept = copy.deepcopy(first)
    step(jitted, optimizer, 1)
    same(first, kept)
    other = jit(mlp())
    other.load_executor_state_dict(first)
    same(other.executor_state_dict(), first)


def test_a_layer_that_is_new_starts_anew():
    jitted = jit(mlp())
    step(jitted, sgd(jitted), 0)
    state = jitted.executor_state_dict()
    del state["2.weight"]
    other = jit(mlp())
    other.load_executor_state_dict(state)
    with thunder_te.autocast(recipe=RECIPE), torch.no_grad():
        other(torch.zeros(8, 16))
    states = thunder.executor_state(other)["te.forward"]
    assert [state.trained for state in states.values()] == [True, False]
