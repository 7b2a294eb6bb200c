"""Cheaper functions inside of decompositions, and small products in loops: as exact as PyTorch's, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import thunder
from tests.inductor.regions import Call, Calls
from thunder.extend import ClaimContext, Trace, Yes
from thunder_inductor.decompositions import by_some_rows
from thunder_inductor.plugin import INDUCTOR
from thunder_inductor.regions import compile, show
from thunder_inductor.supports import supports

CX = ClaimContext(cache_key=1)
TOLERANCE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 1e-2}
"""Relative to values of size one."""


SIZES = [(1, 1, 1), (2, 3, 4), (9, 9, 64), (9, 64, 9), (64, 9, 1), (1, 40, 3)]
"""Rows, inner elements and columns of products that are small."""

VALUES = (*torch.linspace(-12, 12, 4001).tolist(), -1e9, 1e9, -torch.inf, torch.inf, torch.nan)


def gelu(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


def gelu_backward(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.gelu_backward(torch.ones_like(x), x, approximate="tanh")


def region(program: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Call:
    """The last operation of a program."""
    with Calls() as calls:
        program(x)
    return calls.made[-1]


def test_gelu_is_as_exact_without_tanh():
    cases = [(program, torch.tensor(VALUES, dtype=dtype)) for program in (gelu, gelu_backward) for dtype in TOLERANCE]
    calls = [region(program, x) for program, x in cases]
    for (program, x), call, kernel in zip(cases, calls, [compile(CX, call.region) for call in calls], strict=True):
        (found,) = kernel.result()(*call.inputs)
        rtol = atol = TOLERANCE[x.dtype]
        torch.testing.assert_close(found.double(), program(x.double()), rtol=rtol, atol=atol, equal_nan=True)
        assert "tanh" not in show(CX, call.region)


def test_tanh_itself_is_exact_near_zero():
    x = torch.logspace(-20, 0, 64)
    call = region(torch.tanh, x)
    (found,) = compile(CX, call.region).result()(*call.inputs)
    torch.testing.assert_close(found, torch.tanh(x), rtol=4 * torch.finfo(x.dtype).eps, atol=0)


def products() -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of matrices of different sizes, each of both laid out in rows or in columns."""
    for (rows, inner, columns), first, second in product(SIZES, (False, True), (False, True)):
        a = torch.randn(3, inner, rows).mT if first else torch.randn(3, rows, inner)
        yield a, torch.randn(3, columns, inner).mT if second else torch.randn(3, inner, columns)


def test_small_products_equal_eager():
    cases = [region(lambda a, b=b: torch.bmm(a, b), a) for a, b in products()]
    for call, kernel in zip(cases, [compile(CX, call.region) for call in cases], strict=True):
        torch.testing.assert_close(
            kernel.result()(*call.inputs), call.expected, rtol=1e-5, atol=1e-5, check_stride=True
        )


@pytest.mark.parametrize("transposed", [False, True])
def test_small_products_with_what_reads_them_equal_eager(transposed):
    """And with their gradients."""

    def fn(a, b):
        product = torch.bmm(a, b)
        return (product.mT if transposed else product).sin() + a.sum() * b.mean()

    factors = torch.randn(64, 9, 16, requires_grad=True), torch.randn(64, 16, 9, requires_grad=True)
    jitted = thunder.jit(fn, executors=[INDUCTOR])
    actual, expected = jitted(*factors), fn(*factors)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4, check_stride=True)
    g = torch.randn_like(expected)
    found, want = (torch.autograd.grad(out, factors, g) for out in (actual, expected))
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-3, check_stride=True)
    assert all(
        "aten.bmm" in fused(traces) for traces in (thunder.last_traces(jitted), thunder.last_backward_traces(jitted))
    )


def fused(traces: list[Trace]) -> set[str]:
    return {part.sym.name for op in traces[-1].ops if op.fused for part in op.fused.ops}


@pytest.mark.parametrize(
    ("first", "second", "in_loops"),
    [
        (torch.empty(512, 9, 64), torch.empty(512, 64, 9), True),
        (torch.empty(512, 64, 9).mT, torch.empty(512, 64, 9), True),
        (torch.empty(512, 9, 64), torch.empty(512, 9, 64).mT, True),  # along the inner elements
        (torch.empty(512, 64, 9), torch.empty(512, 9, 9).mT, False),
        (torch.empty(512, 64, 9).mT, torch.empty(512, 9, 64).mT, False),
        (torch.empty(64, 64, 64), torch.empty(64, 64, 64), False),
        (torch.empty(512, 9, 64).bfloat16(), torch.empty(512, 64, 9).bfloat16(), False),
    ],
)
def test_which_products_are_loops(first, second, in_loops):
    with Calls() as calls:
        torch.bmm(first, second)
    assert isinstance(supports(ClaimContext(), calls.made[-1].op), Yes) == in_loops


SUMS = [
    ((64, 96), [0]), ((512, 8), [0]), ((2, 64, 24), [0, 1]), ((2, 64, 24), [1, 0]), ((2, 64, 24), [-2, -3]),
    ((65, 96), [0]), ((64, 96), [1]), ((64, 96), [0, 1]), ((8, 16, 24), [1]), ((8, 96), [0]),
]  # fmt: skip
"""Sizes, and dimensions that are summed over: by groups of rows in the first line."""


def test_sums_over_rows_equal_eager():
    inputs = [torch.randn(sizes) for sizes, _ in SUMS]
    inputs += [torch.randn(96, 64).t(), torch.randn(128, 32).bfloat16(), torch.randint(9, (128, 32))]
    dims = [dim for _, dim in SUMS] + [[0]] * 3
    cases = [region(lambda x, d=d, k=k: x.sum(d, keepdim=k), x) for x, d in zip(inputs, dims) for k in (False, True)]
    for call, kernel in zip(cases, [compile(CX, call.region) for call in cases], strict=True):
        torch.testing.assert_close(
            kernel.result()(*call.inputs), call.expected, rtol=1e-5, atol=1e-4, check_stride=True
        )


def test_which_sums_are_by_groups_of_rows():
    by_groups = [by_some_rows(torch.ones(sizes), dim) is not NotImplemented for sizes, dim in SUMS]
    assert by_groups == [True] * 5 + [False] * 5
