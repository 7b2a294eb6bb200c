"""Programs for many sizes, fused: as in eager PyTorch at each, compiled once for all that kernels are valid for."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

import thunder
from examples.models import GPT, GPTConfig, Llama, LlamaConfig
from tests.faults import fault_of_torch_2_10
from tests.matrices import SIZES, STEPS, program, step
from thunder.ir.types import NumberType
from thunder.runtime.library import LIBRARY
from thunder_inductor.plugin import INDUCTOR

PLAIN_SIZES = fault_of_torch_2_10("matrix products of batches take plain sizes, so that there is a program for each")


@pytest.fixture(autouse=True)
def _fresh():
    LIBRARY.clear()


def jit(fn):
    return thunder.jit(fn, executors=[INDUCTOR], dynamic=True)


def symbolic(jitted):
    """The regions with symbolic sizes of all programs."""
    found = {region for record in jitted._thunder_records for region in record.regions}
    return [r for r in found if any(isinstance(p.type, NumberType) for p in r.region.params)]


def compare(fn, sizes):
    jitted = jit(fn)
    for size in sizes:
        torch.testing.assert_close(step(jitted, size), step(fn, size), equal_nan=True)
    return jitted


def test_layers_and_their_gradients_at_all_batch_sizes():
    """Sizes of 0 and 1 have programs of their own; one region for each direction serves all others."""
    net = nn.Sequential(nn.LayerNorm(64), nn.Tanh(), nn.LayerNorm(64))

    def gradients(fn, x):
        x = x.detach().clone().requires_grad_()
        out = fn(x)
        return [out.detach(), *torch.autograd.grad(out.square().mean(), [x, *net.parameters()])]

    jitted = jit(lambda x: net(x.sin() * 2))
    for n in (4, 6, 33, 1, 0, 2, 9):
        x = torch.randn(n, 64)
        torch.testing.assert_close(
            gradients(jitted, x), gradients(lambda x: net(x.sin() * 2), x), rtol=1e-4, atol=1e-5, equal_nan=True
        )
    assert len(jitted._thunder_records) == 3
    assert len(symbolic(jitted)) == 2
    assert not any(len(list(variants(region))) > 1 for region in symbolic(jitted))


def test_sums_of_few_and_of_many_rows_are_different_kernels_of_one_program():
    """Inductor adds up more than 4096 numbers in another way."""

    def fn(x):
        return (x.sin() * 2).sum(0)

    jitted = jit(fn)
    for n in (5, 5000, 4096, 4097):
        x = torch.randn(n, 3)
        torch.testing.assert_close(jitted(x), fn(x), rtol=1e-4, atol=1e-3)
    assert len(jitted._thunder_records) == 1
    (region,) = symbolic(jitted)
    assert [v.region.params[1].type.example for v in variants(region)] == [5, 5000]


def variants(region):
    while region is not None:
        yield region
        region = region._next


def test_sizes_are_arguments_of_operations():
    """As integers, as floats, and as what is computed from several."""

    def fn(x):
        return x * x.shape[0] + x.shape[1] / 3 - x.numel()

    jitted = jit(fn)
    for n, m in ((4, 6), (5, 7), (2, 9)):
        x = torch.randn(n, m)
        torch.testing.assert_close(jitted(x), fn(x))
    (region,) = symbolic(jitted)
    assert [op.sym.name for op in region.region.ops] == ["aten.mul.Tensor", "aten.add.Tensor", "aten.sub.Tensor"]


def test_sizes_that_are_equal_at_first():
    """Of two inputs, of one input, and of what is computed from them."""

    def fn(x, y):
        return (x.sin() + 1).t().contiguous() * 2 + y[: x.shape[1], : x.shape[0]].cos()

    jitted = jit(fn)
    for n, m in ((4, 4), (4, 6), (7, 3), (5, 5)):
        x, y = torch.randn(n, m), torch.randn(9, 9)
        torch.testing.assert_close(jitted(x, y), fn(x, y))
    assert {len(list(variants(region))) for region in symbolic(jitted)} == {1}


@pytest.mark.slow
@pytest.mark.parametrize("steps", [("outer", "softmax", "without a row"), ("masked", "normalised", "doubled", "half")])
def test_programs_at_sizes_down_to_nothing(steps):
    compare(program(steps), [(5, 6), (3, 2), (2, 2), (1, 4), (4, 5)])


@pytest.mark.slow
@settings(max_examples=8)
@given(st.lists(st.sampled_from([*STEPS]), min_size=2, max_size=5), st.lists(SIZES, min_size=2, max_size=4))
def test_any_program_at_any_sizes(names, sizes):
    torch._dynamo.reset()
    fn = program(names)
    try:
        for size in sizes:
            step(fn, size)
    except (RuntimeError, IndexError):
        assume(False)  # eager refuses a size
    jitted = compare(fn, sizes)
    assert not [note for note in jitted._thunder_notes if note.kind in ("eager", "by size")]


@pytest.mark.slow
@PLAIN_SIZES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "make",
    [
        lambda: GPT(GPTConfig(vocab=10, context=16, layers=4, heads=2, width=16)),
        lambda: Llama(LlamaConfig(vocab=10, context=16, layers=4, heads=4, groups=2, width=16)),
    ],
    ids=["gpt", "llama"],
)
def test_a_transformer_at_all_batch_sizes_and_lengths(make, dtype):
    """The layers of a program share regions, and all sizes run the same."""
    net = make().to(dtype)
    jitted, tolerance = jit(net), 1e-4 if dtype is torch.float32 else 5e-2
    for shape in ((2, 7), (3, 9), (7, 7), (9, 16)):
        tokens, targets = torch.randint(0, 10, shape), torch.randint(0, 10, shape)
        ours, theirs = (torch.autograd.grad(fn(tokens, targets), [*net.parameters()]) for fn in (jitted, net))
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    (record,) = jitted._thunder_records
    assert len(symbolic(jitted)) == len(record.regions) < sum(record.regions.values()) * 0.6
    assert not any(region.failure or len(list(variants(region))) > 1 for region in record.regions)


@pytest.mark.slow
def test_a_second_batch_size_is_fused():
    """As Dynamo decides by default: the first size is for itself, the second shows that it changes."""
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.Flatten(), nn.Linear(64, 5), nn.LayerNorm(5)
    )
    reference = copy.deepcopy(net)
    jitted = thunder.jit(net, executors=[INDUCTOR])
    for n in (2, 3, 5, 4):
        x = torch.randn(n, 3, 6, 6)
        out, expected = jitted(x), reference(x)
        ours, theirs = (
            torch.autograd.grad(F.mse_loss(out, out * 0), net.parameters()),
            torch.autograd.grad(F.mse_loss(expected, expected * 0), reference.parameters()),
        )
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    assert len(jitted._thunder_records) == 2
    assert symbolic(jitted)


def test_nothing_is_timed_with_symbolic_sizes():
    """Neither regions nor the products that lead to them, with such sizes or without."""

    def fn(x, w):
        return ((w[:1] @ w).sin() * 2 + x).cos() @ w + 1, (x @ w).exp() * 3

    options = {"select": "measure", "measure_budget": 5.0}
    jitted = thunder.jit(fn, executors=[INDUCTOR], options=options)
    w = torch.randn(8, 8)
    for n in (4, 5, 7):
        x = torch.randn(n, 8)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(jitted(x, w), fn(x, w))
    assert not [note for note in jitted._thunder_notes if note.kind in ("eager", "by size")]
    assert symbolic(jitted)
    assert not any(
        decision.what == "inductor.region" and "mm" in decision.signature
        for r in jitted._thunder_records
        for decision in r.decisions
    )
