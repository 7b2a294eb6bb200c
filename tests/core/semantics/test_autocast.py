"""Autocast inside and outside of a program, nested and disabled, against eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import thunder

FRONTENDS = ["functional", "dynamo"]
SETTINGS = st.sampled_from([None, torch.bfloat16, torch.float16, False])


def region(setting):
    """An autocast region: None for none, False for a disabled one, else the dtype."""
    if setting is None:
        return torch.autocast("cpu", enabled=torch.is_autocast_enabled("cpu"))
    return torch.autocast("cpu", dtype=setting or torch.bfloat16, enabled=setting is not False)


def observe(f, outer):
    g = torch.Generator().manual_seed(0)
    x, w = torch.randn(4, 4, generator=g).requires_grad_(), torch.randn(4, 4, generator=g).requires_grad_()
    with region(outer):
        outs = f(x, w)
    sum(t.float().sum() for t in outs).backward()
    assert not torch.is_autocast_enabled("cpu")
    return [t.detach() for t in outs], x.grad, w.grad


@settings(max_examples=40)
@given(SETTINGS, SETTINGS, SETTINGS)
def test_nested_regions(outer, middle, inner):
    def program(x, w):
        first = F.linear(x, w)
        with region(middle):
            a = x @ w
            with region(inner):
                b = F.linear(a.float(), w)
                c = torch.softmax(b, -1)
            d = b @ w.to(b.dtype) + a.to(b.dtype)
        return first, a, b, c, d

    assert_close(observe(thunder.jit(program, frontend="functional"), outer), observe(program, outer))


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_a_disabled_region_in_an_enabled_one(frontend):
    def program(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = F.linear(x, w)
            with torch.autocast("cpu", enabled=False):
                b = F.linear(a.float(), w)
            c = a @ w
        return a, b, c, x @ w

    assert_close(observe(thunder.jit(program, frontend=frontend), None), observe(program, None))


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_the_ambient_setting_is_guarded(frontend):
    f = thunder.jit(lambda x, w: (x @ w,), frontend=frontend)
    for outer, dtype in [(None, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.float16, torch.float16)]:
        assert observe(f, outer)[0][0].dtype == dtype
