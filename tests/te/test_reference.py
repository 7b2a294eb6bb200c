"""The reference engine: casts to the bit against exact fractions; products within the error of the formats."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.te.fp8 import BITS, rounded
from thunder_te.reference import blockwise, engine, tensorwise

FORMS = ("E4M3", "E5M2")
NUMBERS = st.floats(-1e5, 1e5, width=32)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@given(st.lists(NUMBERS, min_size=1, max_size=20), st.sampled_from(FORMS), st.floats(2.0**-20, 2.0**20, width=32))
def test_casts_round_to_the_nearest(numbers, form, scale):
    t = torch.tensor([numbers])
    (data, inverse), amax = tensorwise.quantise(t, torch.tensor(scale), ("delayed", form))
    expected = [rounded(x, form) for x in (t * scale).flatten().tolist()]
    assert data.float().flatten().tolist() == expected
    assert amax.item() == max(map(abs, t.flatten().tolist()))
    assert inverse.item() == (1 / torch.tensor(scale)).item()


def test_every_fp8_number_is_exact_in_bfloat16():
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        numbers = torch.arange(256, dtype=torch.uint8).view(dtype)
        finite = numbers[torch.isfinite(numbers.float())]
        assert torch.equal(finite.to(torch.bfloat16).double(), finite.double())


@given(st.floats(2.0**-126, 2.0**126, width=32))
def test_exponents_of_blocks_round_up(amax):
    fraction, exponent = math.frexp(amax)
    assert blockwise.biased_exponent(torch.tensor([amax])).item() == exponent - (fraction == 0.5) + 127


def test_exponents_of_special_blocks():
    special = torch.tensor([0.0, math.inf, math.nan, 2.0**-149, 2.0**-127, 1.5 * 2.0**-127, 3.4e38])
    assert blockwise.biased_exponent(special).tolist() == [0, 254, 255, 0, 0, 1, 254]


def test_powers_of_two_are_exact():
    exponents = torch.arange(-127, 128, dtype=torch.int32)
    assert blockwise.power_of_two(exponents).tolist() == [math.ldexp(1, n) for n in range(-127, 128)]


@given(st.integers(0, 2**32), st.sampled_from(FORMS))
@settings(max_examples=20)
def test_blocks_are_cast_with_a_power_of_two_each(seed, form):
    t = normal(4, 64, seed=seed) * torch.logspace(-9, 9, 4)[:, None]
    data, exponents = blockwise._along_columns(t, form)
    values = blockwise.values((data, exponents), 1).double()
    for row in range(4):
        for block in range(2):
            numbers = t[row, 32 * block : 32 * block + 32].tolist()
            amax = max(map(abs, numbers)) / BITS[form][2]
            power = 2.0 ** math.ceil(math.log2(amax))
            expected = [rounded(x / power, form) * power for x in numbers]
            assert values[row, 32 * block : 32 * block + 32].tolist() == expected


def test_both_directions_of_a_block_quantised_matrix():
    t = normal(64, 96)
    parts, _ = blockwise.quantise(t, None, ("mxfp8", "E4M3"))
    assert torch.equal(
        blockwise.values(parts, 0), blockwise.values(blockwise.quantise(t.t(), None, ("mxfp8", "E4M3"))[0], 1).t()
    )


HOWS = {
    "delayed": lambda form: ("delayed", form),
    "current": lambda form: ("current", form, 0.0, False),
    "mxfp8": lambda form: ("mxfp8", form),
}
UNIT = {"E4M3": 2.0**-4, "E5M2": 2.0**-3}
"""Half a unit in the last place of a number between 1 and 2."""


def largest_error(a: Tensor, b: Tensor, forms: tuple[str, str]) -> Tensor:
    """How far a product of quantised matrices may be from the exact one, element by element.

    A cast moves a normal number by at most its size times the unit of the format, and a smaller one by at most the unit
    times the least normal number, which is less than 2**-10 of the largest number. So each product is off by its size
    times the sum of the units and their product; the result is rounded to bfloat16 (2**-8) on top.
    """
    ua, ub = (UNIT[form] for form in forms)
    sizes = (a.abs() + a.abs().max() * 2.0**-10) @ (b.abs() + b.abs().max() * 2.0**-10)
    return sizes * (ua + ub + ua * ub) * (1 + 2.0**-8) + (a @ b).abs() * 2.0**-8


def usual_error(forms: tuple[str, str]) -> float:
    """The relative error of a product of random matrices, in the norm.

    Errors are even between minus and plus half a unit in the last place: u / sqrt(3) at 1, and, with mantissas spread
    evenly in the logarithm, sqrt(3 / (8 ln 2)) = 0.74 of that on average over 1 to 2. Those of the factors add in
    squares.
    """
    average = math.sqrt(3 / (8 * math.log(2))) / math.sqrt(3)
    return average * math.hypot(*(UNIT[form] for form in forms))


@pytest.mark.parametrize("recipe", HOWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@given(seed=st.integers(0, 2**32), sizes=st.sampled_from([(64, 128, 32), (64, 64, 96)]))
@settings(max_examples=5)
def test_products_are_within_the_error_of_the_formats(recipe, dtype, seed, sizes):
    rows, inputs, outputs = sizes
    x, w = normal(rows, inputs, seed=seed).to(dtype), (normal(outputs, inputs, seed=seed + 1) * 0.05).to(dtype)
    g = (normal(rows, outputs, seed=seed + 2) * 1e-2).to(dtype)
    fwd, bwd = HOWS[recipe]("E4M3"), HOWS[recipe]("E5M2")
    scales = torch.stack([448 / t.abs().max().float() for t in (x, w)]) if recipe == "delayed" else None
    scale = (57344 / g.abs().max().float())[None] if recipe == "delayed" else None
    weight, _ = engine.weight_parts(w, scales, fwd)
    out, parts, _ = engine.linear_fwd(x, weight, None, scales, fwd)
    of_input, of_weight, _ = engine.linear_bwd(g, parts, weight, scale, bwd)
    x, w, g = x.double(), w.double(), g.double()
    for actual, a, b, forms in (
        (out, x, w.t(), ("E4M3", "E4M3")),
        (of_input, g, w, ("E5M2", "E4M3")),
        (of_weight, g.t(), x, ("E5M2", "E4M3")),
    ):
        assert actual.dtype is dtype
        exact = a @ b
        error = (actual.double() - exact).abs()
        assert (error <= largest_error(a, b, forms) + exact.abs() * torch.finfo(dtype).eps + 1e-7).all()
        assert 0.5 < error.norm() / exact.norm() / usual_error(forms) < 1.2
