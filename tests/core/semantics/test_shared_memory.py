"""Arguments that share memory in unusual ways: gaps, several histories, views of several results."""

from __future__ import annotations

import contextlib

import pytest
import torch

import thunder
from tests.fuzz.compare import Declined, difference


def differs(make, program, frontend):
    return difference(make, program, thunder.jit(program, frontend=frontend), contextlib.nullcontext)


def agrees(make, program, frontend):
    assert differs(make, program, frontend) is None


def gap(seed):
    t = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))[..., ::2]
    return [], [t]


def test_a_view_may_show_the_gaps_of_an_argument_but_not_write_them():
    def reads(a):
        beside = a.as_strided((2,), (1,), 0)
        a.mul_(2)
        return [beside * 1, a.sum()]

    def writes(a):
        a.as_strided((2,), (1,), 0).sub_(2)
        return [a * 1]

    for frontend in ("functional", "dynamo"):
        assert differs(gap, reads, frontend) is None
    assert differs(gap, writes, "dynamo") is None
    with pytest.raises(Declined, match="beside"):
        differs(gap, writes, "functional")


def test_an_empty_view_of_an_argument_with_gaps_may_be_written():
    def make(seed):
        return [], [torch.tensor([float(seed)])[..., ::2]]

    agrees(make, lambda a: [a[1:].add_(0), a * 2], "functional")


@pytest.mark.parametrize("frontend", ["functional", "dynamo"])
def test_views_taken_before_the_base_is_written_may_be_one_of_several(frontend):
    def make(seed):
        leaf = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        whole = leaf * 1
        return [leaf], [whole, whole.chunk(2, -1)[0]]

    def program(whole, chunk):
        first = chunk.unbind(1)[0]
        whole.fill_(3)
        return [first]

    agrees(make, program, frontend)


@pytest.mark.parametrize("frontend", ["functional", "dynamo"])
@pytest.mark.parametrize("program", [lambda a, b: [b.mul_(2), a * 3], lambda a, b: [a.mul_(2), b * 3]])
def test_an_argument_and_its_detached_alias_keep_their_own_histories(program, frontend):
    def make(seed):
        leaf = torch.randn(4, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        whole = leaf * 1
        return [leaf], [whole, whole.detach()]

    agrees(make, program, frontend)


def test_arguments_with_two_histories_on_one_memory_are_refused():
    def make(seed):
        leaf = torch.randn(4, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        return [leaf], [leaf * 1, (leaf * 1).detach().requires_grad_()]

    def share(seed):
        leaves, (whole, _) = make(seed)
        return leaves, [whole, whole.detach().requires_grad_()[:]]

    def program(a, b):
        return [a.mul_(2), b * 3]

    agrees(make, program, "functional")
    with pytest.raises(Declined, match="both require grad"):
        differs(share, program, "functional")


@pytest.mark.parametrize("frontend", ["functional", "dynamo"])
def test_a_write_under_no_grad_inside_func_grad_hides_only_itself(frontend):
    def make(seed):
        x = torch.randn(3, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        return [x], [x]

    def inner(x):
        z = x * 2
        with torch.no_grad():
            z.mul_(3)
            z[0] = 7
        return (z * z).sum()

    agrees(make, lambda x: [torch.func.grad(inner)(x).sum()], frontend)


@pytest.mark.parametrize("frontend", ["functional", "dynamo"])
@pytest.mark.parametrize("part", [slice(None), slice(2, None), slice(1, 4)])
@pytest.mark.parametrize("offset", [0, 1, 2])
def test_gradients_of_a_view_that_counts_from_the_storage(part, offset, frontend):
    def make(seed):
        x = torch.randn(6, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        return [x], [x]

    def program(x):
        return [x[part].as_strided((2,), (1,), offset).sin(), (x * 2)[part].as_strided((2,), (1,), offset).exp()]

    agrees(make, program, frontend)


def test_a_tensor_that_autograd_alone_keeps_is_not_kept_by_the_program():
    def make(seed):
        leaf = torch.randn(2, 3, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        return [leaf], [leaf * 1]

    def program(a):
        a.abs_()
        a.addcmul_(a, a)  # saves itself: a cycle that no collector sees
        return [a]

    agrees(make, program, "functional")
