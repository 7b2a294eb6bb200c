"""Writes through arguments and views, against eager: values, memory, gradients, what the caller sees afterwards."""

from __future__ import annotations

import contextlib
from random import Random

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import thunder
from tests.fuzz.check import verdict
from tests.fuzz.compare import difference
from tests.fuzz.generate import generate
from thunder.errors import CaptureError

FRONTENDS = ["functional", "dynamo"]


def agrees(make, program, frontend="functional", mode=contextlib.nullcontext):
    """Assert that the jitted program does what eager does, over two calls."""
    assert difference(make, program, thunder.jit(program, frontend=frontend), mode) is None


def leaf_and_copy(seed, shape=(4, 3)):
    """A leaf, and a value computed from it that may be written in place."""
    leaf = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    return leaf, leaf * 1


@settings(max_examples=150)
@given(st.integers(0, 10**6))
def test_random_programs(seed):
    outcome, reason = verdict(generate(Random(seed)))
    assert outcome != "wrong", reason


@pytest.mark.slow
@settings(max_examples=15)
@given(st.integers(0, 10**6))
def test_random_programs_through_dynamo(seed):
    outcome, reason = verdict(generate(Random(seed), statements=5), "dynamo")
    assert outcome != "wrong", reason


def slices(a):
    a[1:] *= 2
    a[:, 0].add_(a[:, 1])
    a.t()[0, 1:] = a[0, :1]
    return a * 1


def masks(a):
    a[a > 0] = 0.5
    a.masked_fill_(a < -1, -1)
    return a.sum(0)


def indices(a):
    a.index_put_((torch.tensor([0, 1, 0]),), torch.ones(3), accumulate=True)
    a[[2, 1]] = a[[0, 0]]
    a.index_add_(1, torch.tensor([0, 2]), torch.ones(4, 2))
    return a.exp()


def out_arguments(a):
    with torch.no_grad():
        torch.add(a, 1, out=a)
    flat = torch.empty(3)
    torch.sum(a.detach(), 0, out=flat)
    return a * flat


def through_views(a):
    flat = a.view(-1)
    row = flat[3:6]
    row.mul_(flat[:3])
    column = a.select(1, 2)
    column.sigmoid_()
    return flat * 2, row.sum()


def relabelled(a):
    b = a * 2
    b.unsqueeze_(0).squeeze_(0).t_()
    b += 1
    return b, b.t()


def before_and_after(a):
    before = a * a
    a.neg_()
    return before, a * a, before - a


def under_no_grad(a):
    with torch.no_grad():
        a.mul_(2)
        view = a[0]
    return a * view


def filled_repeatedly(a):
    b = a[:, :1].detach().clone().expand(4, 3)
    b.fill_(2.0)
    return a * b


PROGRAMS = [slices, masks, indices, out_arguments, through_views, relabelled, before_and_after, under_no_grad]


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("program", [*PROGRAMS, filled_repeatedly], ids=lambda f: f.__name__)
def test_writes_into_an_argument(program, frontend):
    def make(seed):
        leaf, a = leaf_and_copy(seed)
        return [leaf], [a]

    agrees(make, program, frontend)


@pytest.mark.parametrize(
    "regions",
    [
        (lambda b: b, lambda b: b),
        (lambda b: b, lambda b: b[1:]),
        (lambda b: b[:3], lambda b: b[1:]),
        (lambda b: b[:, :2], lambda b: b[:, 1:]),
        (lambda b: b[:, ::2], lambda b: b[:, 1:2]),
        (lambda b: b[0], lambda b: b.view(-1)),
        (lambda b: b.t(), lambda b: b),
        (lambda b: b[:2], lambda b: b[2:]),
    ],
)
@pytest.mark.parametrize("needs_grad", [False, True])
def test_arguments_that_share_memory(regions, needs_grad):
    def make(seed):
        leaf, base = leaf_and_copy(seed)
        base = base if needs_grad else base.detach()
        return [leaf], [region(base) for region in regions] + [base]

    def program(a, b, _):
        a.mul_(2)
        b.add_(1)
        total = a.sum() * b.sum()
        b.sub_(total.detach())
        return total, a * 3, b * 1

    agrees(make, program)


def test_values_that_require_grad_are_written_into_an_argument_that_does_not():
    def make(seed):
        leaf, a = leaf_and_copy(seed)
        return [leaf], [torch.zeros(4, 3), a]

    def program(buffer, a):
        buffer[1:].copy_(a[1:])
        return buffer * 2

    agrees(make, program)


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_a_leaf_that_requires_grad_cannot_be_written(frontend):
    def program(a):
        a.add_(1)
        return a

    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        thunder.jit(program, frontend=frontend)(torch.ones(3, requires_grad=True))


def test_two_histories_for_one_memory_are_declined():
    def program(a):
        a.detach().mul_(a)
        return a * 1

    with pytest.raises(CaptureError, match="values that require grad"):
        thunder.jit(program, frontend="functional")(torch.ones(3, requires_grad=True) * 1)


def test_a_dtype_view_read_before_the_write():
    def program(n):
        halves = n.view(torch.int32) + 1
        n[:, 1:] = 0
        return halves.view(torch.int64)

    agrees(lambda seed: ([], [torch.arange(12).reshape(3, 4) - seed]), program)


def test_temporaries_of_an_operator_may_change_their_sizes():
    def make(seed):
        leaf, a = leaf_and_copy(seed)
        return [leaf], [a]

    agrees(make, lambda a: [a.quantile(0.4, dim=1)])


def test_sizes_of_an_argument_changed_in_place_are_declined():
    with pytest.raises(CaptureError, match="changes the sizes"):
        thunder.jit(lambda a: a.unsqueeze_(0), frontend="functional")(torch.ones(3))


def test_assignment_through_a_mask_with_gradients_for_base_and_values():
    def make(seed):
        leaf, base = leaf_and_copy(seed, (2, 3))
        fill = torch.randn(3, generator=torch.Generator().manual_seed(seed + 1), requires_grad=True)
        return [leaf, fill], [base, torch.tensor([[True, False, True], [False, False, True]]), fill]

    def program(base, mask, fill):
        out = base.clone()
        out[mask] = fill
        return [out * out]

    agrees(make, program)


@pytest.mark.parametrize("write", [F.relu, F.hardtanh, F.elu, F.leaky_relu])
def test_inplace_flags(write):
    def make(seed):
        leaf, a = leaf_and_copy(seed)
        return [leaf], [a]

    def program(a):
        write(a[1:], inplace=True)
        return [a * 2]

    agrees(make, program)
