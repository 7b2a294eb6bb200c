"""Writes through arguments and views, against eager: values, memory, gradients, what the caller sees afterwards."""

from __future__ import annotations

import contextlib
import operator
from random import Random

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import thunder
from tests.faults import fault_of_torch_2_10
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


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("lookup", [F.embedding, F.embedding_bag])
@pytest.mark.parametrize("first", [0, 4])
def test_a_table_that_a_lookup_scales_keeps_its_gradients(lookup, first, frontend):
    """``max_norm`` writes into a parameter, or a view of it, with grad mode off; what was read before it stays."""
    table, indices = torch.randn(12, 5), torch.tensor([[0, 3], [7, 3]])

    def program(table, indices):
        rows = lookup(indices, table[first:] if first else table, max_norm=1.0)
        return rows.sin().sum() + table.cos().sum()

    def step(fn):
        leaf = table.clone().requires_grad_()
        loss = fn(leaf, indices)
        loss.backward()
        return loss, leaf, leaf.grad

    torch.testing.assert_close(step(thunder.jit(program, frontend=frontend)), step(program))


def moving_average(w, buffer):
    buffer.data.mul_(0.9).add_(w, alpha=0.1)
    return buffer * w


def detached_and_read(w, buffer):
    part = buffer.detach()[1:]
    part.mul_(w[1:])
    return part * 2, buffer * w


def detached_before_the_history(w, buffer):
    part = buffer.detach()
    buffer.mul_(w)
    part[0].add_(1.5)
    return buffer * 2, part * 1


def detached_of_a_detached(w, buffer):
    first = buffer.clone().detach()
    second = first.t().detach()
    first.mul_(w)
    second[0] += 1
    return first * 2, second * 3


def detached_and_written_with_itself(w, buffer):
    a = w * 1
    a.detach().mul_(a)
    return a * 1


def detached_values_returned(w, buffer):
    copy = buffer.clone()
    data = copy.data
    copy.mul_(w)
    data.zero_()
    return copy * 2, data


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize(
    "program",
    [
        moving_average,
        detached_and_read,
        detached_before_the_history,
        detached_of_a_detached,
        detached_and_written_with_itself,
        detached_values_returned,
    ],
)
def test_each_history_of_one_memory_sees_the_writes_of_others_without_gradients(program, frontend):
    def make(seed):
        leaf, a = leaf_and_copy(seed)
        return [leaf], [a, a.detach().exp()]

    agrees(make, program, frontend)


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_one_of_several_histories_of_the_memory_of_arguments_is_written(order, frontend):
    def make(seed):
        leaf, a = leaf_and_copy(seed)
        buffer = a.detach().exp()
        given = [buffer, buffer.detach(), buffer[1:].detach()]
        return [leaf], [a, *[given[i] for i in order]]

    def program(a, first, second, third):
        first *= a[-len(first) :]
        second.t()[0] += 1
        return third * 2, first * a[-len(first) :], second * 3

    agrees(make, program, frontend)


@pytest.mark.parametrize("alias", [lambda a: a.detach(), lambda a: a.data.t(), lambda a: a.detach()[1:]])
def test_two_histories_for_memory_that_the_caller_gets_are_declined(alias):
    def program(a, w):
        part = alias(a)
        part.add_(w)
        return part

    with pytest.raises(CaptureError, match="values that require grad"):
        thunder.jit(program, frontend="functional")(torch.ones(3, 3), torch.ones(3, requires_grad=True))


def test_a_dtype_view_read_before_the_write():
    def program(n):
        halves = n.view(torch.int32) + 1
        n[:, 1:] = 0
        return halves.view(torch.int64)

    agrees(lambda seed: ([], [torch.arange(12).reshape(3, 4) - seed]), program)


@fault_of_torch_2_10("quantile compares values, which fake tensors do not have")
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


@pytest.mark.parametrize("write", [operator.iadd, operator.imul, operator.ipow, operator.itruediv, operator.isub])
def test_operators_in_place(write):
    def make(seed):
        leaf, a = leaf_and_copy(seed)
        return [leaf], [a]

    def program(a):
        a = write(a, 2.0)
        part = a[1:]
        part = write(part, a[:1])
        return [a, part]

    agrees(make, program)


def statistics(x, mean, var):
    """A training step of batch norm between two passes that use what it learns."""
    F.batch_norm(x, mean, var, training=True)
    return F.batch_norm(x, mean, var)


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_statistics_of_batch_norm_are_written_without_moving_their_version(frontend):
    """Autograd does not see that write in eager: what was saved before it can still be differentiated."""
    x, mean, var = torch.randn(5, 3, requires_grad=True), torch.zeros(3), torch.ones(3)
    expected = [x.detach().clone().requires_grad_(), mean.clone(), var.clone()]

    def losses(fn, x, mean, var):
        return [F.batch_norm(x, mean, var).square().sum(), fn(x, mean, var).square().sum()]

    for fn, args in ((statistics, expected), (thunder.jit(statistics, frontend=frontend), [x, mean, var])):
        sum(losses(fn, *args)).backward()
    torch.testing.assert_close([x.grad, mean, var], [expected[0].grad, *expected[1:]])
    assert (mean._version, var._version) == (expected[1]._version, expected[2]._version)


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_evaluation_then_training_under_one_backward(frontend):
    found = []
    for jit in (lambda module: module, lambda module: thunder.jit(module, frontend=frontend)):
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
        run, x, y = jit(module), torch.randn(5, 3), torch.randn(5, 3)
        (run.eval()(x).square().sum() + run.train()(y).square().sum()).backward()
        found.append([*[p.grad for p in module.parameters()], *module.buffers()])
    torch.testing.assert_close(*found)


def beside_its_expansion(a, b):
    a.tril_()
    return b * 2


def inside_its_expansion(b, a):
    a.tril_()
    return b * 2


def through_a_view_of_it(b):
    b[0].add_(1)
    return b * 2


def silently(b):
    with torch.no_grad():
        b[1].mul_(3)
    return b * 2


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (beside_its_expansion, lambda a, b: [a, b]),
        (inside_its_expansion, lambda a, b: [b, a]),
        (through_a_view_of_it, lambda a, b: [b]),
        (silently, lambda a, b: [b]),
    ],
)
def test_memory_of_an_expanded_argument_is_written(program, arguments, grad, frontend):
    def make(seed):
        leaf, a = leaf_and_copy(seed)
        a = a if grad else a.detach()
        return ([leaf] if grad else []), arguments(a, a.expand(2, *a.shape))

    agrees(make, program, frontend)
