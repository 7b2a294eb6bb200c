"""Bools are bytes in the memory of regions on CPUs; nobody sees it but the clock."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import thunder
from thunder.extend import ClaimContext, Trace
from thunder_inductor.plugin import INDUCTOR
from thunder_inductor.regions import compile, show

SPECIAL = [0.0, -0.0, 1.0, -2.5, 1e-45, torch.inf, -torch.inf, torch.nan]


def jit(fn):
    return thunder.jit(fn, executors=[INDUCTOR])


def regions(jitted) -> list[Trace]:
    return [op.fused for op in thunder.last_traces(jitted)[-1].ops if op.fused]


def assert_equal(fn, *args: Tensor):
    """Values, dtypes and strides, with what is equal and what is not a number at the same places."""
    jitted = jit(fn)
    torch.testing.assert_close(jitted(*args), fn(*args), rtol=0, atol=0, equal_nan=True, check_stride=True)
    assert regions(jitted)
    return jitted


def masks(x: Tensor, y: Tensor, m: Tensor, row: Tensor) -> list[Tensor]:
    """Bools that are given and made, in other layouts, reduced, joined, and between other operations."""
    above, columns = x > y, m[:, ::2]
    return [
        above, above & m, ~m | (x < 0), (m ^ above).t(), torch.cat([m, above]), columns & (x[:, ::2] > 0),
        x.masked_fill(row, -1.0) * 2, torch.where(m, x, y) + 1, torch.where(above, m, row), x * m, (x * 2).isnan(),
        above.any(1), (x > -9).all(0), m.sum(1) + 1, above.float().mean(), m.logical_not().any(), (x > 0).all(),
        m.expand(2, *m.shape) & (x > 0), (x == x).to(torch.int64) + 1, m.bfloat16() + 1, (m & above).half() * 2,
    ]  # fmt: skip


def test_masks_equal_eager():
    x, y = torch.randn(40, 70), torch.randn(40, 70)
    assert_equal(masks, x, y, torch.randn(40, 70) > 0, torch.randn(70) > 0)


def test_kernels_have_bytes():
    x, m = torch.randn(40, 70), torch.randn(40, 70) > 0
    jitted = assert_equal(lambda x, m: ((x > 0) & m, x.masked_fill(m, 0.0)), x, m)
    (region,) = regions(jitted)
    source = show(ClaimContext(cache_key=1), region)
    assert "uint8_t*" in source
    assert "bool*" not in source


def test_nothing_asks_one_element_after_the_other_whether_it_is_a_number():
    (region,) = regions(assert_equal(lambda x: (x * 2).isnan(), torch.randn(40, 70)))
    assert "isnan(" not in show(ClaimContext(cache_key=1), region)


def test_masks_in_other_layouts_equal_eager():
    x, y, m = torch.randn(70, 40).t(), torch.randn(40, 140)[:, ::2], (torch.randn(70, 40) > 0).t()
    assert_equal(masks, x, y, m, torch.tensor(True).expand(70))


def test_results_are_bools_that_own_their_memory():
    x = torch.randn(64, 64)
    above, _ = jit(lambda x: (x > 0, x * 2 + 1))(x)
    assert above.dtype is torch.bool
    assert above._base is None
    assert above.logical_not_().eq(x <= 0).all()


def test_a_mask_that_backward_reads_last_is_overwritten_only_by_backward():
    x, m = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64) > 0

    def fn(x):
        kept = (x > 0) & m
        return torch.where(kept, x.sin(), 0.0).masked_fill(kept, 2.0) + x.masked_fill(m, 0.0)

    jitted = jit(fn)
    for _ in range(2):
        found, want = (torch.autograd.grad(program(x).sum(), x) for program in (jitted, fn))
        torch.testing.assert_close(found, want)


def test_conversions_of_special_values():
    def fn(*tensors):
        return [part for x in tensors for part in ((x + 0).bool(), (x * 1).isnan(), torch.nan_to_num(x * 1), ~(x > 0))]

    dtypes = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
    assert_equal(fn, *(torch.tensor(SPECIAL * 8, dtype=dtype) for dtype in dtypes))


def test_comparisons_of_integers():
    """With numbers that are no integers of their dtype, too."""

    def compared(x, numbers):
        a, b = x ^ 0, x.flip(0) ^ 0
        return [a == b, a < b, a >= b, a.bool(), *(part for n in numbers for part in (a == n, a < n, a > n))]

    def fn(*tensors):
        return [part for x in tensors for part in compared(x, (0, -1, 300, 0.5, torch.iinfo(x.dtype).max, 2**40))]

    dtypes = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    limits = [(dtype, torch.iinfo(dtype)) for dtype in dtypes]
    numbers = [([0, 1, 2, info.max, info.max - 1, info.min, info.min + 1], dtype) for dtype, info in limits]
    assert_equal(fn, *(torch.tensor(values * 8, dtype=dtype) for values, dtype in numbers))


def test_bools_alone_stay_outside():
    m, n, x = torch.randn(512, 512) > 0, torch.randn(512, 512) > 0, torch.randn(512, 512)
    for fn, args, fused in (
        (lambda m, n: (m & n) | ~m, (m, n), False),
        (lambda m, n: m == n, (m, n), False),
        (lambda x, m: (x > 0) & m, (x, m), True),
        (lambda x, m: x.masked_fill(m, 0.0), (x, m), True),
    ):
        jitted = jit(fn)
        torch.testing.assert_close(jitted(*args), fn(*args))
        assert bool(regions(jitted)) == fused


@pytest.mark.parametrize("reduce", [torch.any, torch.all])
def test_reductions_of_bytes_are_bytes(reduce):
    """Of which Inductor's own ``any`` makes bools."""
    x = torch.randint(3, (64, 64), dtype=torch.uint8)

    def fn(x):
        return reduce(x * 2, 1)

    jitted = jit(fn)
    torch.testing.assert_close(jitted(x), fn(x))
    assert "aten.any.dim" not in {part.sym.name for region in regions(jitted) for part in region.ops}


def test_memory_of_a_mask_becomes_that_of_bytes():
    def fn(mask):
        return (mask.to(torch.uint8) + 1) * 3

    mask = torch.randn(64, 64) > 0
    jitted = jit(fn)
    (region,) = [jitted(mask), *regions(jitted)][1:]
    kernel = compile(ClaimContext(cache_key=1), replace(region, spent=region.params)).result()
    given = mask.clone()
    (made,) = kernel(given)
    torch.testing.assert_close(made, fn(mask))
    assert made.data_ptr() == given.data_ptr()
