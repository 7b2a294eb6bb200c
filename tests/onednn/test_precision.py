"""float32 stays float32: results and gradients are as near to float64 as those of eager PyTorch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from tests.onednn.subjects import FRONT_ENDS, distance, jit, operations, step

LARGEST = 3.0
"""By what factor an error may exceed that of eager PyTorch."""

FLOOR = 1e-7
"""What error is always forgiven: one rounding of float32, which small sums may happen to avoid."""


def check(program, *tensors):
    """The program, run by this executor, against eager float32 and float64. Errors are relative to what is summed."""
    compiled = jit(program)
    doubles = [t.double() for t in tensors]
    found, eager, exact = step(compiled, *tensors), step(program, *tensors), step(program, *doubles)
    assert found[0].stride() == eager[0].stride()
    for ours, theirs, true, size in zip(found, eager, exact, step(program, *doubles, positive=True), strict=True):
        assert ours.dtype is torch.float32
        assert distance(ours, true, size) <= LARGEST * distance(theirs, true, size) + FLOOR
    return operations(compiled)


@pytest.mark.parametrize("bias", [False, True])
def test_linear_layers(bias):
    x, w, b = torch.randn(4, 96, 320), torch.randn(200, 320), torch.randn(200)
    ran = check(F.linear, x, w, b) if bias else check(F.linear, x, w)
    assert sorted(ran) == ["onednn.linear", "onednn.linear", "onednn.matmul"]


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_linear_layers_in_bfloat16(frontend):
    tensors = [t.bfloat16() for t in (torch.randn(4, 96, 320), torch.randn(200, 320), torch.randn(200))]
    compiled, doubles = jit(F.linear, frontend=frontend), [t.double() for t in tensors]
    runs = [step(compiled, *tensors), step(F.linear, *tensors), step(F.linear, *doubles)]
    for ours, theirs, true, size in zip(*runs, step(F.linear, *doubles, positive=True), strict=True):
        assert ours.dtype is torch.bfloat16
        assert distance(ours, true, size) <= LARGEST * distance(theirs, true, size)
    assert operations(compiled) == ["onednn.linear", "onednn.linear"]


def test_sums_with_a_bias_in_bfloat16():
    tensors = [t.bfloat16() for t in (torch.randn(200), torch.randn(96, 320), torch.randn(320, 200))]
    compiled, exact = jit(torch.addmm), torch.addmm(*(t.double() for t in tensors))
    found, eager, size = compiled(*tensors), torch.addmm(*tensors), torch.addmm(*(t.double().abs() for t in tensors))
    assert distance(found, exact, size) <= LARGEST * distance(eager, exact, size)
    assert operations(compiled) == ["onednn.linear"]


def test_long_sums():
    """Where half precision would show most."""
    check(F.linear, torch.randn(16, 8192), torch.randn(24, 8192))
    check(torch.matmul, torch.rand(3, 16, 4096), torch.rand(3, 4096, 8))


@st.composite
def laid_out(draw, *shape):
    """A tensor of a shape, in some order of dimensions, in the middle of a larger one or with an expanded dimension."""
    order = draw(st.permutations(range(len(shape))))
    gap = draw(st.sampled_from([0, 0, 3]))
    big = torch.randn([shape[n] + gap for n in order])
    t = big[tuple(slice(gap, None) for _ in order)].permute([order.index(n) for n in range(len(shape))])
    if draw(st.integers(0, 5)) == 0:
        t = t[:1].expand(shape)
    return t


SIZES = st.sampled_from([1, 2, 3, 7, 16, 33, 64])


@settings(max_examples=15)
@given(st.data())
def test_linear_of_any_layout(data):
    rows, inner, outer = (data.draw(SIZES) for _ in range(3))
    lead = data.draw(st.sampled_from([(), (2,), (3, 1)]))
    x, w = data.draw(laid_out(*lead, rows, inner)), data.draw(laid_out(outer, inner))
    bias = data.draw(st.sampled_from([(), (torch.randn(outer),)]))
    assert check(F.linear, x, w, *bias)


@settings(max_examples=15)
@given(st.data())
def test_products_of_any_layout(data):
    rows, inner, outer = (data.draw(SIZES) for _ in range(3))
    batch = data.draw(st.sampled_from([(), (2,), (5,)]))
    a, b = data.draw(laid_out(*batch, rows, inner)), data.draw(laid_out(*batch, inner, outer))
    assert check(torch.bmm if batch else torch.mm, a, b)


@settings(max_examples=15)
@given(st.data())
def test_sums_with_products_of_any_layout(data):
    rows, inner, outer = (data.draw(SIZES) for _ in range(3))
    batch = data.draw(st.sampled_from([(), (2,)]))
    shape = data.draw(st.sampled_from([(outer,), (rows, outer), (1, outer), (rows, 1), (*batch, rows, outer)]))
    beta, alpha = (data.draw(st.sampled_from([1, 0, 2, 0.5])) for _ in range(2))
    a, b = data.draw(laid_out(*batch, rows, inner)), data.draw(laid_out(*batch, inner, outer))
    function = torch.baddbmm if batch else torch.addmm
    check(lambda c, a, b: function(c, a, b, beta=beta, alpha=alpha), torch.randn(shape), a, b)


def test_what_is_not_read_may_be_anything():
    c, a, b = torch.full((8, 8), torch.nan), torch.randn(8, 16), torch.randn(16, 8)
    compiled = jit(lambda c, a, b: torch.addmm(c, a, b, beta=0))
    torch.testing.assert_close(compiled(c, a, b), a @ b)
    assert operations(compiled) == ["onednn.addmatmul"]


@pytest.mark.parametrize(
    ("program", "shapes", "ran"),
    [
        (torch.matmul, [(6, 8), (8, 10)], 3),
        (torch.matmul, [(2, 3, 6, 8), (2, 3, 8, 10)], 3),
        (torch.matmul, [(2, 6, 8), (8, 10)], 3),
        (lambda a, b: a @ b.mT, [(6, 8), (5, 8)], 3),
        (lambda a, b: torch.einsum("bik,bjk->bij", a, b), [(2, 6, 8), (2, 5, 8)], 3),
        (lambda a, b: torch.tensordot(a, b, dims=1), [(2, 6, 8), (8, 5)], 3),
    ],
)
def test_composites_are_opened(program, shapes, ran):
    assert len(check(program, *(torch.randn(shape) for shape in shapes))) == ran
