"""Results that share memory with an argument or with each other, against eager."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import thunder
from tests.fuzz.compare import difference

FRONTENDS = ["functional", "dynamo"]

VIEWS = {
    "itself": lambda x: x,
    "row": lambda x: x[1],
    "columns": lambda x: x[:, ::2],
    "transposed": lambda x: x.t(),
    "flat": lambda x: x.view(-1),
    "reshaped": lambda x: x.reshape(2, -1),
    "expanded": lambda x: x.expand(2, 4, 4),
    "diagonal": lambda x: x.diagonal(),
    "detached": lambda x: x.detach(),
    "split": lambda x: x.split(2)[1],
    "unbound": lambda x: x.unbind(1)[0],
    "real": lambda x: x.real,
    "contiguous": lambda x: x.contiguous(),
    "same dtype": lambda x: x.to(torch.float32),
    "strided": lambda x: x.as_strided((2, 2), (1, 4), 2),
    "unfolded": lambda x: x.unfold(0, 2, 1),
}
NAMES = st.sampled_from(sorted(VIEWS))


def make(seed):
    leaf = torch.randn(4, 4, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    return [leaf], [leaf * 1]


def agrees(program, frontend="functional"):
    assert difference(make, program, thunder.jit(program, frontend=frontend), torch.enable_grad) is None


@given(NAMES, NAMES, st.booleans())
def test_views_of_an_argument(first, second, cut):
    def program(x):
        with torch.set_grad_enabled(not cut):
            one = VIEWS[first](x)
        two = VIEWS[second](x)
        return [one, two, one.sum() * two]

    agrees(program)


@given(NAMES, NAMES)
def test_views_of_a_result(first, second):
    def program(x):
        y = x.sin()
        return [VIEWS[first](y), VIEWS[second](y), y]

    agrees(program)


@given(NAMES, NAMES)
def test_views_of_what_was_written(first, second):
    def program(x):
        view = VIEWS[first](x) if first not in ("expanded", "unfolded", "detached") else x
        view.mul_(2) if first not in ("split", "unbound") else x.mul_(2)
        return [VIEWS[second](x), x]

    agrees(program)


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("name", ["itself", "row", "transposed", "flat", "detached"])
def test_on_both_front_ends(name, frontend):
    def program(x):
        y = x * 2
        return [VIEWS[name](x), VIEWS[name](y), y]

    agrees(program, frontend)


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_a_result_written_in_place_is_seen_by_the_argument(frontend):
    f = thunder.jit(lambda x: x.t()[1:], frontend=frontend)
    for _ in range(2):
        x = torch.zeros(2, 3)
        f(x).add_(1)
        assert x.tolist() == [[0, 1, 1], [0, 1, 1]]


def test_the_same_result_twice_is_one_tensor():
    f = thunder.jit(lambda x: (lambda y: (y, y, y.view(-1)))(x + 1), frontend="functional")
    a, b, c = f(torch.zeros(2, 2))
    assert a is b
    assert c.data_ptr() == a.data_ptr()


def test_results_without_common_memory_stay_apart():
    f = thunder.jit(lambda x: (x + 1, x + 1), frontend="functional")
    a, b = f(torch.zeros(2))
    a.add_(1)
    assert b.tolist() == [1, 1]
