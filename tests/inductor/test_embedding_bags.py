"""Bags of one row each are lookups; all others are left to PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import thunder
from benchmarks.steady import held_bytes
from thunder.extend import ClaimContext, No, TensorType, Yes
from thunder_inductor.embedding_bags import check
from thunder_inductor.plugin import INDUCTOR


def jit(fn, **options):
    return thunder.jit(fn, executors=[INDUCTOR], **options)


@st.composite
def lookups(draw):
    """Indices, some of them twice, a table, and how the rows of a bag are put together."""
    rows, width, bags = draw(st.integers(1, 5)), draw(st.integers(1, 9)), draw(st.integers(0, 7))
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
    indices = torch.randint(rows, (bags, 1), dtype=draw(st.sampled_from([torch.int64, torch.int32])))
    mode = draw(st.sampled_from(["sum", "mean", "max"] if dtype is not torch.bfloat16 else ["sum", "mean"]))
    return indices, torch.randn(rows, width, dtype=dtype, requires_grad=True), mode


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(lookups())
def test_lookups_equal_eager(lookup):
    """Values and gradients."""
    indices, table, mode = lookup

    def fn(indices, table):
        return F.embedding_bag(indices, table, mode=mode) * 2

    expected, actual = fn(indices, table), jit(fn)(indices, table)
    torch.testing.assert_close(actual, expected, check_stride=True)
    g = torch.randn_like(expected)
    found, want = (torch.autograd.grad(out, table, g) for out in (actual, expected))
    torch.testing.assert_close(found, want, check_stride=True)


class Rows(nn.Module):
    """Indices (tables, bags) to the sum of the rows of all tables."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(50, 64) for _ in range(3))

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        rows = [table(one[:, None]) for table, one in zip(self.tables, indices, strict=True)]
        return torch.stack(rows, 1).relu().sum()


def test_lookups_are_in_regions_and_save_indices():
    module, indices = Rows(), torch.randint(50, (3, 256))
    jitted = jit(module)
    torch.testing.assert_close(jitted(indices), module(indices), rtol=1e-5, atol=1e-3)
    (region,) = [op.fused for op in thunder.last_traces(jitted)[-1].ops if op.fused]
    assert [op.sym.name for op in region.ops].count("aten.embedding") == 3
    assert held_bytes(jitted, module, (indices,)) <= held_bytes(module, module, (indices,))


def test_an_index_that_is_no_row_is_pytorchs_error():
    jitted = jit(Rows())
    jitted(torch.randint(50, (3, 256)))
    with pytest.raises(IndexError, match="out of range"):
        jitted(torch.full((3, 256), 50))


def tensor(*shape: int, dtype="float32", device="cpu") -> TensorType:
    return TensorType(shape, (shape[-1], 1)[-len(shape) :], dtype, device)


INDICES, TABLE = tensor(6, 1, dtype="int64"), tensor(50, 16)


@pytest.mark.parametrize(
    ("input", "options", "reason"),
    [
        (tensor(6, 2, dtype="int64"), {}, "its bags"),
        (tensor(6, dtype="int64"), {"offsets": tensor(6, dtype="int64")}, "its bags"),
        (INDICES, {"max_norm": 1.0}, "it changes the rows"),
        (INDICES, {"per_sample_weights": tensor(6, 1), "mode": "sum"}, "it changes the rows"),
        (INDICES, {"padding_idx": 0}, "it changes the rows"),
        (INDICES, {"sparse": True}, "its gradient"),
        (INDICES, {"scale_grad_by_freq": True}, "its gradient"),
    ],
)
def test_refusals(input, options, reason):
    answer = check(ClaimContext(), input, TABLE, **options)
    assert isinstance(answer, No)
    assert answer.reason.startswith(reason)
    assert isinstance(check(ClaimContext(), INDICES, TABLE), Yes)


def test_other_devices_are_refused():
    assert isinstance(check(ClaimContext(), INDICES, tensor(50, 16, device="cuda:0")), No)
