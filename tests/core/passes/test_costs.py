"""The cost model against sums done by hand."""

from __future__ import annotations

import torch

import thunder
from thunder.ir.types import TensorType
from thunder.passes.costs import Machine, fused_cost, saves, size, unfused_cost
from thunder.runtime.library import LIBRARY
from thunder.testing.fakes.fuser import COMPILED, FUSER


def region_of(program, *args):
    LIBRARY.clear()
    COMPILED.clear()
    thunder.jit(program, executors=[FUSER], frontend="functional")(*args)
    return COMPILED[-1]


def test_bytes_of_a_tensor():
    assert size(TensorType((4, 8), (8, 1), "float32", "cpu")) == 128
    assert size(TensorType((4, 8), (0, 1), "bfloat16", "cpu")) == 16  # one row, repeated
    assert size(TensorType((0, 8), (0, 1), "float32", "cpu")) == 0
    assert size(TensorType((), (), "int64", "cpu")) == 8


def test_a_region_reads_its_inputs_and_writes_its_results_once():
    """Three operations of 400 bytes in and out; the view between costs nothing."""
    region = region_of(lambda x: (x.sin() * 2).view(25, 4).exp(), torch.ones(10, 10))
    assert (unfused_cost(region).calls, unfused_cost(region).moved, unfused_cost(region).peak) == (3, 2400, 800)
    assert (fused_cost(region).calls, fused_cost(region).moved, fused_cost(region).peak) == (1, 800, 800)


def test_one_call_holds_its_inputs_to_the_end():
    """One by one, the 1200 bytes that are summed are gone before the 400 of a result are made."""
    region = region_of(lambda x, y: (y + x.sum()).exp(), torch.ones(300), torch.ones(100))
    assert fused_cost(region).peak == 1200 + 400 + 400
    assert unfused_cost(region).peak == 1200 + 400 + 4


def test_gain_is_time_of_calls_and_bytes():
    region = region_of(lambda x: (x.sin() * 2).exp(), torch.ones(10, 10))
    machine = Machine(call=2.0, speed=10.0)
    assert unfused_cost(region).time(machine) == 3 * 2 + (2400 + 0.25 * 800) / 10
    assert fused_cost(region).time(machine, 3.0) == 2 + 3 + (800 + 0.25 * 800) / 10
    assert saves(region, 0.0) > 0 > saves(region, 10.0)
