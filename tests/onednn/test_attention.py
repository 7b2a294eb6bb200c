"""Attention against eager's, with all its masks; what is kept for backward; and how much lives at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from tests.onednn.subjects import distance, jit, operations, step
from thunder_onednn import attention


def near(program, tensors, factor, floor):
    """The program, run by this executor, is about as near to float64 as in eager."""
    compiled = jit(program)
    found, eager = step(compiled, *tensors), step(program, *tensors)
    exact = step(program, *(t.double() if t.is_floating_point() else t for t in tensors))
    assert operations(compiled) == ["onednn.attention", "onednn.attention_backward"]
    for ours, theirs, true in zip(found, eager, exact, strict=True):
        assert ours.dtype is theirs.dtype
        size = true if true.norm() > 1e-3 else torch.ones(1)  # gradients that cancel
        assert distance(ours, true, size) <= factor * distance(theirs, true, size) + floor
    assert found[0].stride() == eager[0].stride()


@st.composite
def cases(draw):
    """Sizes, keyword arguments and the shape of a mask."""
    batch, groups, shared = (draw(st.integers(1, 3)) for _ in range(3))
    queries, keys = (draw(st.sampled_from([1, 2, 5, 64, 127, 129, 200])) for _ in range(2))
    size, out = (draw(st.sampled_from([1, 3, 8, 32])) for _ in range(2))
    heads = groups * shared
    shapes = [(batch, heads, queries, size), (batch, groups, keys, size), (batch, groups, keys, out)]
    options = {"enable_gqa": True} if shared > 1 else {}
    options |= draw(st.sampled_from([{}, {"scale": 0.3}]))
    kind = draw(st.sampled_from(["none", "causal", "bool", "float"]))
    mask = draw(st.sampled_from([(queries, keys), (batch, 1, 1, keys), (1, heads, queries, keys), (heads, 1, keys)]))
    return shapes, options, kind, mask


def program_of(options, kind, mask):
    if kind == "causal":
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, **options)
    if kind == "none":
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options)
    mask = torch.randn(mask) > -0.5 if kind == "bool" else torch.randn(mask)

    def program(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, mask if mask.dtype is torch.bool else mask.to(q), **options)

    return program


@settings(max_examples=25)
@given(cases(), st.booleans())
def test_like_eager(case, transposed):
    shapes, options, kind, mask = case
    tensors = [torch.randn(shape) for shape in shapes]
    if transposed:  # as models make them, of one projection
        tensors = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in tensors]
    near(program_of(options, kind, mask), tensors, factor=3, floor=5e-7)


@settings(max_examples=10)
@given(cases())
def test_like_eager_in_bfloat16(case):
    shapes, options, kind, mask = case
    near(program_of(options, kind, mask), [torch.randn(shape).bfloat16() for shape in shapes], factor=2, floor=4e-3)


def test_large_scores_in_bfloat16():
    """Scores of which bfloat16 would keep three digits: probabilities must not be wrong by a factor."""
    q, k, v = (torch.randn(1, 2, 64, 32).bfloat16() for _ in range(3))
    near(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=5.0), [q, k, v], factor=2, floor=4e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_query_that_sees_nothing(dtype):
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[2] = False
    tensors = [torch.randn(1, 2, n, 8).to(dtype) for n in (4, 6, 6)]

    def program(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    found, eager = step(jit(program), *tensors), step(program, *tensors)
    assert not found[0][:, :, 2].any()
    for ours, theirs in zip(found, eager, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2 if dtype is torch.bfloat16 else 1e-5)


def test_what_is_kept_for_backward():
    """q, k and v alone: less than eager, which keeps the result and a number for each query besides."""
    q, k, v = (torch.randn(2, 2, 160, 16, requires_grad=True) for _ in range(3))
    kept: list[torch.Tensor] = []
    compiled = jit(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    compiled(q, k, v)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        compiled(q, k, v)
    assert {t.data_ptr() for t in kept} == {t.data_ptr() for t in (q, k, v)}


class Largest(TorchDispatchMode):
    """The most elements that a result of an operator has had."""

    elements = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        out = op(*args, **(kwargs or {}))
        for t in out if isinstance(out, tuple) else (out,):
            if isinstance(t, torch.Tensor):
                self.elements = max(self.elements, t.untyped_storage().nbytes() // t.element_size())
        return out


@pytest.mark.parametrize("causal", [False, True])
def test_memory_is_linear_in_the_length(causal):
    largest = {}
    for length in (1024, 2048, 4096):
        q, k, v, grad = (torch.randn(1, 2, length, 8) for _ in range(4))
        with Largest() as mode:
            attention.forward(q, k, v, None, causal, 0.3)
            attention.backward(grad, q, k, v, None, causal, 0.3)
        largest[length] = mode.elements
        assert largest[length] <= max(attention.QUERIES[1] * length, attention.BLOCK // 4)
    assert largest[4096] <= 2 * max(largest[2048], attention.BLOCK // 4)


@given(st.integers(0, 70), st.integers(1, 24))
def test_heads_of_a_block(fitting, heads):
    """Of many sequences whole, else an equal part of one; and no fewer than the next choice would be."""
    together = attention._together(fitting, heads)
    possible = [n for n in range(1, max(fitting, 1) + 1) if n % heads == 0 or heads % n == 0]
    assert together == max(n for n in possible if n == 1 or n <= fitting)


def test_blocks_cover_all_queries_once():
    for shape, keys in (((2, 3, 200, 8), 70), ((5, 4, 64, 8), 64), ((1, 8, 3000, 8), 3000), ((3, 7, 129, 8), 5000)):
        q, k = torch.empty(shape), torch.empty(*shape[:2], keys, 8)
        blocks = list(attention.Scores(q, k, None, True, 1.0).blocks())
        seen = torch.zeros(shape[0] * shape[1], shape[2], dtype=torch.int)
        for block in blocks:
            seen[block.heads, block.queries] += 1
            whole = (block.heads.start % shape[1], block.heads.stop % shape[1]) == (0, 0)
            first, last = block.heads.start // shape[1], (block.heads.stop - 1) // shape[1]
            assert whole or first == last
        assert bool((seen == 1).all())
