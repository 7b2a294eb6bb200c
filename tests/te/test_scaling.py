"""The arithmetic of scales, to the bit, against Python's own floats."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.te.fp8 import History
from thunder_te import DelayedScaling, Format
from thunder_te.precision import Precision, Rule
from thunder_te.reference.tensorwise import current_scale, power_of_two_below
from thunder_te.scaling import advance, resized


def rule(largest: float = 448.0, **changes: object) -> Rule:
    recipe = DelayedScaling(**changes)
    return Precision(recipe).rule("forward")._replace(largest=largest)


def stepped(rule: Rule, history: list[list[float]], newest: list[float], scale: list[float] | None = None):
    """The history (a list of values for each scale) and scales after a step, as lists."""
    rows = torch.tensor(history).t().contiguous()
    scales = torch.tensor(scale) if scale else torch.ones(len(newest))
    after, scales = advance(rows, scales, torch.tensor(newest), rule)
    return after.t().tolist(), scales.tolist()


def test_a_step_as_the_library_does_it():
    assert stepped(rule(amax_history_len=4), [[0, 8, 0, 0]], [2]) == ([[0, 0, 0, 2]], [56])
    assert stepped(rule(amax_history_len=4, margin=1), [[0] * 4] * 2, [2, 4])[1] == [112, 56]
    assert stepped(rule(largest=57344.0, margin=1), [[0] * 4], [14])[1] == [2048]


def test_the_formats_of_a_recipe():
    hybrid, plain = Precision(DelayedScaling()), Precision(DelayedScaling(fp8_format=Format.E4M3))
    assert (hybrid.rule("forward").largest, hybrid.rule("backward").largest) == (448, 57344)
    assert (plain.rule("forward").largest, plain.rule("backward").largest) == (448, 448)
    assert (hybrid.how("weight"), hybrid.how("grad")) == (("delayed", "E4M3"), ("delayed", "E5M2"))


def test_what_was_not_seen_keeps_history_and_scale():
    history = [[0.0, 8.0, 1.0], [0.0, 8.0, 1.0]]
    after, scale = stepped(rule(amax_history_len=3), history, [0.0, 2.0], scale=[7.0, 7.0])
    assert after == [[0, 8, 1], [0, 1, 2]]
    assert scale == [7, 56]


@pytest.mark.parametrize("amax", [math.inf, math.nan])
def test_an_amax_that_is_not_finite_keeps_the_scale(amax):
    assert stepped(rule(amax_history_len=2), [[0.0, 1.0]], [amax], scale=[3.0])[1] == [3.0]


def test_a_scale_that_is_too_large_is_the_largest_number():
    assert stepped(rule(amax_history_len=1), [[0.0]], [1e-38])[1] == [torch.finfo(torch.float32).max]


AMAXES = st.one_of(st.just(0.0), st.floats(2.0**-140, 2.0**100, width=32), st.just(math.inf))


@given(
    amaxes=st.lists(AMAXES, max_size=12),
    steps=st.integers(1, 6),
    margin=st.integers(-2, 3),
    algorithm=st.sampled_from(["max", "most_recent"]),
    largest=st.sampled_from([448.0, 57344.0]),
)
@settings(max_examples=200)
def test_histories_equal_those_of_python(amaxes, steps, margin, algorithm, largest):
    expected = History(steps, largest, margin, algorithm)
    how = rule(largest, amax_history_len=steps, margin=margin, amax_compute_algo=algorithm)
    history, scale = torch.zeros(steps, 1), torch.ones(1)
    for amax in amaxes:
        expected.step(amax)
        history, scale = advance(history, scale, torch.tensor([amax]), how)
        assert history[:, 0].tolist() == expected.values
        assert scale.item() == expected.scale


def test_algorithms_of_the_user():
    how = rule(amax_history_len=3, amax_compute_algo=lambda history: history.sum(0))
    assert stepped(how, [[0, 1, 3], [0, 0, 0]], [4, 7])[1] == [56, 64]
    recipe = DelayedScaling(
        scaling_factor_compute_algo=lambda amax, scale, largest, r: scale * amax + r.margin, margin=1
    )
    assert stepped(Precision(recipe).rule("forward"), [[0, 1]], [2], scale=[5])[1] == [11]


@given(st.lists(st.floats(0.5, 8, width=32), min_size=1, max_size=8), st.integers(1, 8))
def test_a_history_of_another_length_keeps_the_newest(values, steps):
    values[0] = 0.0
    after = resized(torch.tensor(values)[:, None], steps)[:, 0].tolist()
    kept = values[1:][::-1][: steps - 1][::-1]
    assert after == [0.0] * (steps - len(kept)) + kept


def current(amax: float, form: str = "E4M3", epsilon: float = 0.0, power: bool = False) -> float:
    return current_scale(torch.tensor(amax), ("current", form, epsilon, power)).item()


def test_scales_of_the_tensor_itself():
    assert current(2.0) == 224
    assert current(2.0, "E5M2") == 28672
    assert current(0.0) == current(math.inf) == current(math.nan) == 1
    assert current(1e-3, epsilon=2.0) == 224
    assert current(1e-38) == torch.finfo(torch.float32).max
    assert current(3.0, power=True) == 128


@given(st.floats(2.0**-120, 2.0**120, width=32))
def test_powers_of_two_below(x):
    assert power_of_two_below(torch.tensor(x)).item() == 2.0 ** (math.frexp(x)[1] - 1)
