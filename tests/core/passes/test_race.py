"""Racing under a clock of our own: which candidate is found the fastest does not depend on the noise."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thunder.ir.types import TensorType
from thunder.lang.values import tensor_type
from thunder.passes.race import FEW, LEAST, race, random_tensors


class Machine:
    """A clock, and work that takes its time on it: noise adds to it, now and then a lot."""

    def __init__(self, seed: int = 0, noise: float = 0.0) -> None:
        self.now = 0.0
        self.runs: dict[str, int] = {}
        self._random = random.Random(seed)
        self._noise = noise

    def clock(self) -> float:
        return self.now

    def work(self, label: str, seconds: float):
        def run() -> None:
            self.runs[label] = self.runs.get(label, 0) + 1
            slow = 20 if self._random.random() < 0.1 else 1
            self.now += seconds * (1 + slow * self._noise * self._random.random())

        return run

    def race(self, costs: dict[str, float], seconds: float = 100.0):
        return race({label: self.work(label, cost) for label, cost in costs.items()}, self.clock, seconds)


COSTS = st.dictionaries(st.sampled_from("abcd"), st.floats(1e-6, 1e-2), min_size=2)


@given(COSTS)
def test_without_noise_the_times_are_exact(costs):
    found = Machine().race(costs)
    assert found == pytest.approx(costs, rel=1e-6)


@given(st.integers(0, 1000), st.floats(1e-5, 1e-2), st.floats(1.3, 4))
def test_noise_does_not_change_who_is_fastest(seed, cost, factor):
    found = Machine(seed, noise=0.5).race({"slow": cost * factor, "fast": cost})
    assert min(found, key=found.get) == "fast"


def test_candidates_take_turns():
    machine, order = Machine(), []
    runs = {label: (lambda label=label: (order.append(label), machine.work(label, 1e-3)())) for label in "ab"}
    race(runs, machine.clock, 100.0)
    assert "".join(order[4:]).startswith("ab" * LEAST)


def test_a_hopeless_candidate_gets_few_turns():
    machine = Machine()
    machine.race({"fast": 1e-4, "near": 1.1e-4, "hopeless": 1e-3})
    assert machine.runs["hopeless"] == 2 + LEAST
    assert machine.runs["near"] > machine.runs["hopeless"]


def test_a_long_call_is_run_a_few_times_only():
    machine = Machine()
    assert machine.race({"slow": 0.3, "fast": 0.2}) == pytest.approx({"slow": 0.3, "fast": 0.2})
    assert machine.runs == {"slow": 1 + FEW, "fast": 1 + FEW}


@given(COSTS, st.floats(1e-5, 1.0))
def test_what_does_not_fit_into_the_time_is_not_begun(costs, seconds):
    machine = Machine()
    found = machine.race(costs, seconds)
    if found is None:
        assert machine.now <= 2 * sum(costs.values()) + 1e-9
    else:
        assert found == pytest.approx(costs, rel=1e-6)


TYPES = st.builds(
    lambda shape, order, dtype, expanded: _type(shape, order, dtype, expanded),
    st.lists(st.integers(0, 4), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.int64, torch.bool]),
    st.booleans(),
)


def _type(shape, order, dtype, expanded) -> TensorType:
    dims = list(range(len(shape)))
    order.shuffle(dims)
    t = torch.empty(shape, dtype=dtype).permute(dims)
    return tensor_type(t[:1].expand(3, *t.shape[1:]) if expanded and t.shape[0] else t)


@given(TYPES)
def test_random_tensors_have_their_types(type):
    (t,) = random_tensors([type])
    assert tensor_type(t) == type
    assert not t.numel() or t.dtype.is_floating_point or t.dtype.is_complex or set(t.flatten().tolist()) <= {0, 1}


def test_random_tensors_leave_the_generator_alone():
    before = torch.get_rng_state()
    random_tensors([tensor_type(torch.empty(8, 8))])
    assert torch.equal(torch.get_rng_state(), before)


def test_a_large_tensor_has_all_its_elements():
    (t,) = random_tensors([tensor_type(torch.empty(3, 1 << 20))])
    assert t.std() == pytest.approx(1, rel=0.1)
    assert t[2].std() == pytest.approx(1, rel=0.1)


def test_no_second_candidate_is_run_after_the_time():
    machine = Machine()
    assert machine.race({"endless": 50.0, "fast": 1e-3}, seconds=10.0) is None
    assert machine.runs == {"endless": 1}
