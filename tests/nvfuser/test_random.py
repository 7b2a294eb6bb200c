"""Random numbers of a seed and an offset: other ones than eager's, the same forward, backward and again."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import thunder
from tests.nvfuser import philox
from tests.nvfuser.programs import NVFUSER_HERE, regions
from thunder.extend import ClaimContext, No, TensorType, Yes
from thunder_nvfuser import claims, random
from thunder_nvfuser.fuser import show

pytestmark = pytest.mark.usefixtures("on_stand_in")

RNG = {"nvfuser.rng": True}


def jit(fn, **changes):
    settings = {"executors": [NVFUSER_HERE], "frontend": "functional", "options": RNG, **changes}
    return thunder.jit(fn, **settings)


def mixed(x):
    return F.gelu(F.dropout(x * 2, 0.3)) * x.sigmoid()


def rows(*shape):
    return torch.randn(shape, requires_grad=True)


def counters(x):
    return [torch.tensor([value]) for value in x]


def test_philox_gives_the_numbers_of_its_authors():
    """Known answers of Random123."""
    low = 0xFFFFFFFF
    for counter, key, answer in (
        ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((low,) * 4, (low, low), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ):
        assert [word.item() for word in philox.philox(counters(counter), key)] == list(answer)


def test_dropout_keeps_what_the_seed_says():
    """Of each element, the number that the seed and its place give decides."""
    x = rows(40, 50)
    torch.manual_seed(1)
    out = jit(lambda x: F.dropout(x, 0.3))(x)
    torch.manual_seed(1)
    seed, offset = (value.item() for value in random.draw(x.device))
    kept = philox.uniform(x.shape, seed, offset, torch.float32) >= 0.3
    torch.testing.assert_close(out, x * kept / 0.7)
    (grad,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(grad, kept / 0.7)


@pytest.mark.parametrize("frontend", ["functional", "dynamo"])
def test_backward_makes_the_mask_again_from_two_numbers(frontend):
    x = rows(40, 50)
    fn = jit(mixed, frontend=frontend)
    out = fn(x)
    _, _, saved = thunder.last_traces(fn)[-1].result
    assert sorted(v.type.numel for v in saved) == [1, 1, x.numel()], "the seed, the offset and the input"
    forward, backward = regions(fn)
    assert all("nvfuser.uniform" in [op.sym.name for op in region.ops] for region in (forward, backward))
    (grad,) = torch.autograd.grad(out.sum(), x)
    kept = out != 0
    y = x.detach().requires_grad_()
    (want,) = torch.autograd.grad((F.gelu(y * 2 * kept / 0.7) * y.sigmoid()).sum(), y)
    torch.testing.assert_close(grad, want)


def test_numbers_do_not_depend_on_what_is_fused():
    """By a kernel of their own, if no region holds them."""
    x = rows(16, 32)
    results = []
    for fuel in (0, 1, 2):
        torch.manual_seed(3)
        out = jit(mixed, options={**RNG, "nvfuser.fuel": fuel})(x)
        results.append([out, *torch.autograd.grad(out.sum(), x)])
    for other in results[1:]:
        torch.testing.assert_close(other, results[0])


def test_the_derivative_of_a_derivative_sees_the_same_mask():
    x = rows(16, 32)
    out = jit(lambda x: F.dropout(x, 0.5) ** 3)(x)
    kept = out != 0
    (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    torch.testing.assert_close(first, 24 * x**2 * kept)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 48 * x * kept)


def test_what_is_checkpointed_sees_the_same_mask():
    x = rows(16, 32)
    out = jit(lambda x: checkpoint(lambda x: F.dropout(x.exp(), 0.5).sin(), x, use_reentrant=False))(x)
    (grad,) = torch.autograd.grad(out.sum(), x)
    kept, e = out != 0, x.exp()
    torch.testing.assert_close(grad, kept * 2 * e * (2 * e).cos())


def test_each_draw_and_each_call_has_numbers_of_its_own():
    fn = jit(lambda x: (torch.rand_like(x), torch.rand_like(x)))
    x = torch.randn(1000)
    numbers = [*fn(x), *fn(x)]
    assert len({t.sum().item() for t in numbers}) == 4
    torch.manual_seed(5)
    again = fn(x)
    torch.manual_seed(5)
    torch.testing.assert_close(fn(x), again, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("draw", "mean", "variance"),
    [
        (torch.rand_like, 1 / 2, 1 / 12),
        (torch.randn_like, 0, 1),
        (lambda x: torch.rand(x.shape, dtype=x.dtype, device=x.device), 1 / 2, 1 / 12),
        (lambda x: torch.randn(*x.shape, dtype=x.dtype, device=x.device), 0, 1),
        (lambda x: torch.bernoulli(torch.full_like(x, 0.25)), 1 / 4, 3 / 16),
        (lambda x: F.dropout(torch.ones_like(x), 0.2), 1, 1 / 4),
    ],
)
def test_moments_and_types_are_those_of_eager(draw, mean, variance, dtype):
    """Of 40000 numbers; also of a tensor whose strides eager keeps."""
    x = torch.empty(200, 200, dtype=dtype).t()
    fn = jit(lambda x: draw(x) + 0)
    found, eager = fn(x), draw(x) + 0
    assert (found.dtype, found.shape, found.stride()) == (eager.dtype, eager.shape, eager.stride())
    assert any("nvfuser." in op.sym.name for op in thunder.last_traces(fn)[-1].ops)
    assert found.double().mean().item() == pytest.approx(mean, abs=0.02)
    assert found.double().var().item() == pytest.approx(variance, abs=0.03)


def test_what_is_shown_takes_numbers():
    fn = jit(mixed)
    fn(rows(4, 5))
    text = show(ClaimContext(), regions(fn)[0])
    assert "define_scalar(None" in text
    assert re.search(r"inputs = \[\n(    (0|torch\..*),\n)+\]", text)
    assert text.count("\n    0,") == 2


def test_without_the_option_numbers_are_those_of_eager():
    x = rows(16, 32)
    for fn in (mixed, torch.rand_like, lambda x: torch.bernoulli(x.sigmoid())):
        torch.manual_seed(2)
        want = fn(x)
        torch.manual_seed(2)
        torch.testing.assert_close(jit(fn, options={})(x), want)


X = TensorType((4, 6), (6, 1), "float32", "cpu")


@pytest.mark.parametrize(
    ("reason", "check", "args", "kwargs"),
    [
        ("no numbers", claims.dropout, (X, 0.5, False), {}),
        ("no numbers", claims.dropout, (X, 0.0), {}),
        ("no numbers", claims.dropout, (X, 1.0), {}),
        ("not on cuda:0", claims.factory, (4, 6), {"device": torch.device("cuda:0")}),
        ("draws no int64", claims.like, (X,), {"dtype": torch.int64}),
        ("sizes that are known, not []", claims.factory, ((),), {}),
        ("sizes that are known, not [0, 3]", claims.factory, (0, 3), {}),
        ("without generator", claims.factory, (3,), {"generator": torch.Generator()}),
        ("without requires_grad", claims.like, (X,), {"requires_grad": True}),
        ("without p", claims.bernoulli, (X, 0.5), {}),
    ],
)
def test_refusals_say_why(reason, check, args, kwargs):
    found = check(ClaimContext(options={"rng": True}), *args, **kwargs)
    assert isinstance(found, No)
    assert reason in found.reason


def test_the_option_is_what_is_asked_for_first():
    assert isinstance(claims.dropout(ClaimContext(options={"rng": True}), X), Yes)
    found = claims.dropout(ClaimContext(options={"rng": False}), X)
    assert found == No("nvFuser draws other numbers than PyTorch: only with the option nvfuser.rng")
