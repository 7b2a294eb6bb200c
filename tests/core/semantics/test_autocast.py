"""Autocast inside and outside of a program, nested and disabled, against eager."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import thunder

FRONTENDS = ["functional", "dynamo"]
SETTINGS = st.sampled_from([None, True, False])


def region(enabled, dtype):
    """An autocast region; ``enabled`` is None for one that changes nothing."""
    if enabled is None:
        return contextlib.nullcontext()
    return torch.autocast("cpu", dtype=dtype, enabled=enabled)


def compare(f, program, outer=None, dtype=torch.bfloat16):
    """The same results bit by bit; gradients up to the order in which low precision was summed up."""
    (outs, *gradients), (wanted, *expected) = observe(f, outer, dtype), observe(program, outer, dtype)
    assert_close(outs, wanted, rtol=0, atol=0)
    assert_close(gradients, expected, rtol=4e-2, atol=4e-2)


def observe(f, outer, dtype):
    g = torch.Generator().manual_seed(0)
    x, w = torch.randn(4, 4, generator=g).requires_grad_(), torch.randn(4, 4, generator=g).requires_grad_()
    with region(outer, dtype):
        outs = f(x, w)
    sum(t.float().sum() for t in outs).backward()
    assert not torch.is_autocast_enabled("cpu")
    return [t.detach() for t in outs], x.grad, w.grad


@settings(max_examples=40)
@given(SETTINGS, SETTINGS, SETTINGS, st.sampled_from([torch.bfloat16, torch.float16]))
def test_nested_regions(outer, middle, inner, dtype):
    def program(x, w):
        first = F.linear(x, w)
        with region(middle, dtype):
            a = x @ w
            with region(inner, dtype):
                b = F.linear(a.float(), w)
                c = torch.softmax(b, -1)
            d = b @ w.to(b.dtype) + a.to(b.dtype)
        return first, a, b, c, d

    compare(thunder.jit(program, frontend="functional"), program, outer, dtype)


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_a_disabled_region_in_an_enabled_one(frontend):
    def program(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = F.linear(x, w)
            with torch.autocast("cpu", enabled=False):
                b = F.linear(a.float(), w)
            c = a @ w
        return a, b, c, x @ w

    compare(thunder.jit(program, frontend=frontend), program)


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_the_ambient_setting_is_guarded(frontend):
    f = thunder.jit(lambda x, w: (x @ w,), frontend=frontend)
    for outer, dtype in [(None, torch.float32), (True, torch.bfloat16), (True, torch.float16)]:
        assert observe(f, outer, dtype)[0][0].dtype == dtype


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_a_call_that_casts_values_of_its_own(frontend, monkeypatch):
    """``rms_norm`` is made of operators that autocast runs in float32, and casts the result back."""
    monkeypatch.setenv("THUNDER_STRICT", "1")

    def program(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.rms_norm(x @ w, (4,), w[0]) * 2, F.rms_norm(x, (4,))

    compare(thunder.jit(program, frontend=frontend), program)
