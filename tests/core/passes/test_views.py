"""Views of views, taken at once: the same values, layouts and memory, by fewer calls."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import thunder
from thunder.ir.trace import Trace
from thunder.passes.views import Views
from thunder.runtime.codegen import compile_trace
from thunder.testing.fakes.fuser import FUSER

STEPS = {
    "transpose": lambda x, n: x.transpose(n % x.dim(), -1),
    "permute": lambda x, n: x.permute(*range(1, x.dim()), 0),
    "unsqueeze": lambda x, n: x.unsqueeze(n % x.dim()),
    "squeeze": lambda x, n: x.squeeze(),
    "flatten": lambda x, n: x.flatten(),
    "reshape": lambda x, n: x.reshape(2, -1),
    "expand": lambda x, n: x.expand(2, *x.shape),
    "unflatten": lambda x, n: x.unflatten(n % x.dim(), (1, -1)),
    "select": lambda x, n: x.select(n % x.dim(), x.shape[n % x.dim()] - 1),
    "slice": lambda x, n: x[n % x.shape[0] :],
    "last": lambda x, n: x.chunk(2, n % x.dim())[-1],
    "bits": lambda x, n: x.view(torch.int32),
    "detach": lambda x, n: x.detach(),
    "sin": lambda x, n: x.sin(),
}


def shortened(program, *args) -> tuple[Trace, Trace]:
    """The lowered trace of a program, and the same with few views."""
    jitted = thunder.jit(program, executors=[], frontend="functional")
    jitted(*args)
    (lowered,) = [trace for trace in thunder.last_traces(jitted) if trace.made_by == "lower"]
    return lowered, Views().shortened(lowered)


def strides(t: torch.Tensor) -> list[int]:
    """Those that mean something: fake kernels choose others for single elements than real ones."""
    return [stride for stride, size in zip(t.stride(), t.shape, strict=True) if size > 1]


def calls(trace: Trace) -> list[str]:
    return [op.sym.name.rpartition(".")[2] for op in trace.ops]


@given(
    path=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 3)), min_size=1, max_size=7),
    returned=st.sets(st.integers(0, 6), max_size=2),
)
def test_values_layouts_and_memory_are_the_same(path, returned):
    def program(x):
        values = [x]
        for name, n in path:
            last = values[-1]
            if last.dim() == 0 or last.dim() > 5 or (name == "sin" and last.dtype == torch.int32):
                break
            values.append(STEPS[name](last, n))
        return [value for place, value in enumerate(values) if place in returned] + [values[-1], values[-1] + 1]

    x = torch.randn(3 + 2 * 4 * 6)[3:].view(2, 4, 6)  # it does not begin where its memory does
    lowered, short = shortened(program, x)
    run, expected = compile_trace(short), program(x)
    found = run(x) if short.params else run()
    base = x.untyped_storage().data_ptr()
    for got, want in zip(found, expected, strict=True):
        assert torch.equal(got, want)
        assert (got.dtype, strides(got), got.storage_offset()) == (want.dtype, strides(want), want.storage_offset())
        assert (got.untyped_storage().data_ptr() == base) == (want.untyped_storage().data_ptr() == base)
    assert len(short.ops) <= len(lowered.ops)


def test_a_run_is_one_call():
    def program(x):
        return x.view(2, 3, 4).transpose(1, 2).unsqueeze(0) + 1

    assert calls(shortened(program, torch.randn(6, 4))[1]) == ["as_strided", "add"]


def test_one_that_leads_back_is_none():
    def program(x):
        return x[:, None].view(-1) + 1

    lowered, short = shortened(program, torch.randn(6))
    assert calls(lowered) == ["__getitem__", "view", "add"]
    assert calls(short) == ["add"]


def test_one_that_leads_back_is_another_tensor_where_it_is_a_result():
    def program(x):
        y = x.sin()
        return y, y[:, None].view(-1)

    x = torch.randn(6)
    y, back = compile_trace(shortened(program, x)[1])(x)
    assert back is not y
    assert back.data_ptr() == y.data_ptr()


def test_what_others_read_stays():
    def program(x):
        y = x.view(2, 12)
        return y.t() + 1, y + 1

    lowered, short = shortened(program, torch.randn(6, 4))
    assert short is lowered


@pytest.mark.parametrize("part", [lambda x: x.select(0, 1), lambda x: x[1:], lambda x: x.chunk(2)[1]])
def test_views_that_begin_elsewhere_end_a_run(part):
    def program(x):
        return part(x).unsqueeze(0).transpose(0, 1) + 1

    x = torch.randn(4, 6)
    lowered, short = shortened(program, x)
    assert torch.equal(compile_trace(short)(x)[0], program(x))
    assert calls(short) == [calls(lowered)[0], "as_strided", "add"]


def test_they_are_taken_at_once_between_regions():
    def program(x, w):
        y = (x.sin() * 2) @ w
        return (y.view(2, 3, 4).transpose(0, 1) @ w).cos() * 2

    x, w = torch.randn(6, 4), torch.randn(4, 4)
    jitted = thunder.jit(program, executors=[FUSER], frontend="functional")
    assert torch.equal(jitted(x, w), program(x, w))
    assert [name for name in calls(thunder.last_traces(jitted)[-1]) if name != "matmul"].count("as_strided") == 1
    assert not {"view", "transpose"}.intersection(calls(thunder.last_traces(jitted)[-1]))
