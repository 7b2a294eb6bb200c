"""Norms against PyTorch: values, gradients, what is kept for backward."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import thunder
from tests.apex.programs import close, executors, jit, step, wide
from thunder_apex.plugin import APEX

ERROR = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2**-8, torch.bfloat16: 2**-5}
"""Relative to the largest value: float32 sums of a few roundings, of 16-bit inputs and results."""

SHAPES = [((6,), 1), ((4, 5), 1), ((2, 3, 8), 1), ((2, 3, 4), 2), ((3, 4), 2)]


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
@given(
    shape=st.sampled_from(SHAPES),
    dtype=st.sampled_from(list(ERROR)),
    present=st.tuples(st.booleans(), st.booleans()),
    eps=st.sampled_from([None, 1e-5, 0.5]),
    efficient=st.booleans(),
    needs=st.tuples(*[st.booleans()] * 3).filter(any),
)
@settings(max_examples=80)
def test_values_and_gradients(device, name, shape, dtype, present, eps, efficient, needs):
    sizes, count = shape
    normalized = sizes[len(sizes) - count :]
    generator = torch.Generator().manual_seed(0)

    def new(sizes):
        t = torch.rand(sizes, generator=generator) + 0.5  # away from zero: results are divided by weights
        return (t * (torch.randint(0, 2, sizes, generator=generator) * 2 - 1)).to(device, dtype)

    x, weight, bias = new(sizes), new(normalized), new(normalized)
    present = present if name == "layer_norm" else present[:1]
    parameters = [p for p, there in zip((weight, bias), present) if there]
    tensors = [x, *parameters]
    for t, needed in zip(tensors, needs):
        t.requires_grad_(needed)
    x.requires_grad_(x.requires_grad or not any(t.requires_grad for t in tensors))
    keywords = {} if eps is None else {"eps": eps}

    def norm(x, *parameters):
        rest = iter(parameters)
        return getattr(F, name)(x, normalized, *[next(rest) if there else None for there in present], **keywords)

    jitted = jit(norm, memory_efficient=efficient)
    grad = new(sizes).detach()
    actual, expected = step(jitted, *tensors, grad=grad), step(norm, *map(wide, tensors), grad=grad.double())
    if name == "rms_norm" and eps is None and dtype is not torch.float64:
        keywords["eps"] = torch.finfo(torch.float32).eps
        expected = step(norm, *map(wide, tensors), grad=grad.double())
    assert executors(jitted)[name] == ("apex (memory efficient)" if efficient else "apex")
    assert all(t.dtype is dtype for t in actual)
    close(actual, expected, ERROR[dtype] * (2 if efficient else 1))


@pytest.mark.parametrize("dtype", list(ERROR), ids=str)
def test_default_eps_of_rms_norm_is_that_of_pytorch(device, dtype):
    """Values so small that it counts."""
    x = (torch.randn(3, 16, device=device) * 1e-3).to(dtype)
    jitted = jit(lambda x: F.rms_norm(x, (16,)))
    close([jitted(x)], [F.rms_norm(x, (16,))], ERROR[dtype])


@pytest.mark.parametrize("frontend", ["functional", "dynamo"])
@pytest.mark.parametrize("efficient", [False, True])
def test_modules(device, frontend, efficient):
    module = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.LayerNorm(16, bias=False), nn.RMSNorm(16))
    module = module.to(device)
    x = torch.randn(4, 8, device=device)
    wanted = torch.autograd.grad(module(x).square().sum(), list(module.parameters()))
    options = {"apex.memory_efficient": efficient}
    jitted = thunder.jit(module, executors=[APEX], frontend=frontend, options=options)
    found = torch.autograd.grad(jitted(x).square().sum(), list(module.parameters()))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    symbols = [op.sym.name for op in thunder.last_traces(jitted)[-1].ops]
    assert symbols.count("apex.layer_norm_fwd") == 2
    assert symbols.count("apex.rms_norm_fwd") == 1


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_what_is_kept(device, name):
    """The input, or the result, which the next operation keeps anyway."""
    x, weight = torch.randn(4, 8, device=device).requires_grad_(), torch.rand(8, device=device).requires_grad_()

    def program(x, weight):
        return getattr(F, name)(x * 2, (8,), weight).square()

    kept = {}
    for efficient in (False, True):
        jitted = jit(program, memory_efficient=efficient)
        jitted(x, weight)
        saved = thunder.last_traces(jitted)[-1].result[2]
        kept[efficient] = sum(v.type.shape == (4, 8) for v in saved)
    assert kept == {False: 2, True: 1}


def test_gradients_of_any_layout(device):
    """The kernel takes contiguous gradients only."""
    x, grad = torch.randn(6, 8, device=device).requires_grad_(), torch.randn(8, 6, device=device)
    for fn in (lambda x: F.layer_norm(x, (8,)).t() * 1, lambda x: F.rms_norm(x, (8,)).t() * 1):
        torch.testing.assert_close(step(jit(fn), x, grad=grad), step(fn, x, grad=grad))
