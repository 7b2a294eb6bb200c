"""Copies to other memory formats: free where regions read them, and never wrong."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import thunder
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Trace
from thunder.passes.layouts import is_relayout
from thunder.runtime.library import LIBRARY
from thunder.testing.fakes.fuser import FUSER

FORMATS = {4: (torch.contiguous_format, torch.channels_last), 5: (torch.contiguous_format, torch.channels_last_3d)}


@pytest.fixture(autouse=True)
def fresh():
    LIBRARY.clear()
    torch.manual_seed(0)


def fused(fn):
    return thunder.jit(fn, executors=[FUSER])


def last(t: Tensor) -> Tensor:
    return t.clone(memory_format=torch.channels_last)


def rows(t: Tensor) -> Tensor:
    return t.clone(memory_format=torch.contiguous_format)


def copies(trace: Trace) -> list[BoundSymbol]:
    """Those that are made: outside of regions."""
    return [op for op in trace.ops if is_relayout(op)]


def forward(jitted) -> Trace:
    return next(trace for trace in reversed(thunder.last_traces(jitted)) if trace.name != "epilogue")


@st.composite
def programs(draw):
    """Operations on the values made so far: copies to a format, what is fused, what is not, and views."""
    kinds = st.sampled_from(["first", "second", "fused", "sum", "outside", "view"])
    steps = draw(st.lists(st.tuples(kinds, st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=9))
    results = draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
    shape = draw(st.sampled_from([(2, 3, 4, 5), (1, 2, 3, 2), (2, 1, 3, 3), (2, 3, 1, 1), (2, 2, 3, 2, 2)]))
    return shape, steps, results


def run(shape, steps, results, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    first, second = FORMATS[len(shape)]
    apply = {
        "first": lambda a, b: a.clone(memory_format=first),
        "second": lambda a, b: a.clone(memory_format=second),
        "fused": lambda a, b: torch.tanh(a) * 2,
        "sum": lambda a, b: a + b,
        "outside": lambda a, b: torch.cumsum(a, 1),
        "view": lambda a, b: a.transpose(-1, -2).transpose(-1, -2),
    }
    values = [x, y]
    for kind, a, b in steps:
        values.append(apply[kind](values[a % len(values)], values[b % len(values)]))
    return tuple(values[r % len(values)] for r in results)


@settings(max_examples=60, deadline=None)
@given(programs(), st.booleans())
def test_programs_compute_what_they_do_in_eager(program, trains):
    shape, steps, results = program
    inputs = [torch.randn(shape, dtype=torch.float64).requires_grad_(trains) for _ in range(2)]
    jitted = fused(lambda x, y: run(shape, steps, results, x, y))
    for _ in range(2):
        expected, actual = run(shape, steps, results, *inputs), jitted(*inputs)
        torch.testing.assert_close(actual, expected, check_stride=True)
        if trains:
            found, want = (
                torch.autograd.grad(outs, inputs, [torch.ones_like(t) for t in outs], allow_unused=True)
                for outs in (actual, expected)
            )
            torch.testing.assert_close(found, want)  # autograd adds those of several results up in an order of its own


def test_a_copy_that_only_regions_read_is_not_made():
    jitted = fused(lambda x: torch.tanh(rows(torch.cumsum(last(x), 1))) + 1)
    x = torch.randn(2, 3, 4, 5)
    assert torch.equal(jitted(x), torch.tanh(torch.cumsum(x, 1)) + 1)
    assert [str(op.outs.type) for op in copies(forward(jitted))] == ["cpu f32[2, 3, 4, 5]"]  # that of the argument
    assert copies(forward(jitted))[0].inputs[0].name == "x"


def test_a_region_writes_the_format_that_others_need_and_regions_read_it_there():
    def fn(x):
        t = torch.tanh(x) * 2
        return torch.cumsum(last(t), 1) + torch.sin(t)

    x, jitted = torch.randn(2, 3, 4, 5), fused(fn)
    torch.testing.assert_close(jitted(x), fn(x), rtol=0, atol=0)
    trace = forward(jitted)
    assert copies(trace) == []
    first, second = (op for op in trace.ops if op.fused)
    (written,) = first.outputs
    assert written.type.stride == (60, 1, 15, 3)
    assert written in second.inputs
    assert is_relayout(second.fused.ops[0])


def test_a_value_that_is_needed_in_both_formats_is_written_in_both():
    def fn(x):
        t = torch.tanh(x) * 2
        return torch.cumsum(last(t), 1) + torch.cumsum(t, 1)

    x, jitted = torch.randn(2, 3, 4, 5), fused(fn)
    torch.testing.assert_close(jitted(x), fn(x), rtol=0, atol=0)
    first = next(op for op in forward(jitted).ops if op.fused)
    assert {v.type.stride for v in first.outputs} == {(60, 20, 5, 1), (60, 1, 15, 3)}


def test_a_value_is_saved_in_one_format():
    def fn(x, w):
        t = torch.cumsum(x, 1)
        return F.conv2d(last(t), w).sum() + torch.sin(t).sum()

    inputs = torch.randn(2, 3, 4, 5, requires_grad=True), torch.randn(3, 3, 1, 1, requires_grad=True)
    jitted = fused(fn)
    found, want = (torch.autograd.grad(program(*inputs), inputs) for program in (jitted, fn))
    torch.testing.assert_close(found, want)
    saved = [v.type.stride for v in thunder.last_backward_traces(jitted)[-1].params if v.type.shape == (2, 3, 4, 5)]
    assert saved == [(60, 1, 15, 3)]


def test_what_a_program_copies_may_be_written_to_before_backward():
    def fn(x, w):
        return torch.sin(last(x) * w)

    x, w = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5, requires_grad=True)
    want = torch.autograd.grad(fn(x, w).sum(), w)
    out = fused(fn)(x, w)
    x.zero_()
    torch.testing.assert_close(torch.autograd.grad(out.sum(), w), want)


def test_what_regions_hand_over_is_in_the_format_around():
    """A residual connection past an operation that is in no region."""

    def fn(x, w):
        t = torch.tanh(rows(F.conv2d(last(x), w)))
        return torch.sin(rows(F.conv2d(last(torch.cos(t)), w))) + t

    x, w = torch.randn(2, 3, 4, 5), torch.randn(3, 3, 1, 1)
    jitted = fused(fn)
    torch.testing.assert_close(jitted(x, w), fn(x, w))
    first, second = (op for op in forward(jitted).ops if op.fused)
    assert {v.type.stride for v in first.outputs} == {(60, 1, 15, 3)}
    assert len([v for v in second.inputs if v in first.outputs]) == 1


def test_each_region_takes_its_own_copy():
    def fn(x, w):
        a = rows(F.conv2d(last(x), w))
        return torch.cumsum(last(torch.tanh(a) * 2), 1) + torch.sin(a) * 3

    x, w = torch.randn(2, 3, 4, 5), torch.randn(3, 3, 1, 1)
    jitted = fused(fn)
    torch.testing.assert_close(jitted(x, w), fn(x, w))
    first, second = (op for op in forward(jitted).ops if op.fused)
    assert len(first.outputs) == 1
    assert set(first.inputs) < set(second.inputs)


def test_copies_of_a_program_stay_apart_where_views_of_them_leave_it():
    def fn(x):
        t = torch.sin(x)
        return last(t)[0], last(t)[0]

    one, other = fused(fn)(torch.randn(2, 3, 4, 5, requires_grad=True))
    assert one.data_ptr() != other.data_ptr()
