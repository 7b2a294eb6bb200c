"""While a program is recorded: the user's objects stay what they are, and nothing of the recording outlives it."""

from __future__ import annotations

import functools
import random
import threading
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.testing import assert_close

import thunder
from thunder.errors import CaptureError

X = torch.tensor([1.0, -2.0, 3.0])
KEPT: dict[str, Any] = {}


def functional(fn: Any) -> Any:
    return thunder.jit(fn, frontend="functional")


def test_other_threads_see_real_parameters_while_a_module_is_recorded() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.add_(1)
            reached.set()
            assert go_on.wait(10)
            return self.fc(x) * self.seen

    reached, go_on, net = threading.Event(), threading.Event(), Net()
    results: list[torch.Tensor] = []
    recording = threading.Thread(target=lambda: results.append(functional(net)(X)))
    recording.start()
    assert reached.wait(10)
    tensors = [*net.parameters(), *net.buffers()]
    outside = net.fc(X)  # a fake here would raise, or give a fake
    go_on.set()
    recording.join()
    assert not any(isinstance(t, FakeTensor) for t in (*tensors, outside))
    assert_close(results[0], outside)
    assert torch.equal(net.seen, torch.ones(3))


def test_a_program_meets_the_very_tensors_it_was_given() -> None:
    weight = nn.Parameter(torch.ones(3))
    names = {id(weight): 2.0}

    def program(x: torch.Tensor) -> torch.Tensor:
        same = x.add_(0) is x and weight.contiguous() is weight
        return x * weight * names[id(weight)] if same else x * 0

    assert_close(functional(program)(X.clone()), X * 2)


@functools.lru_cache(maxsize=4)
def table(n: int) -> torch.Tensor:
    return torch.arange(n)


@functools.cache
def tables(n: int) -> tuple[Any, ...]:
    return torch.arange(n), [torch.ones(n)]


def test_a_helper_that_memoises_tensors_works_inside_and_afterwards() -> None:
    table.cache_clear(), tables.cache_clear()
    f = functional(lambda x: x + table(3) + tables(3)[0] + tables(3)[1][0])
    expected = X + torch.arange(3) * 2 + 1
    assert_close(f(X), expected)
    assert torch.equal(table(3), torch.arange(3))
    assert torch.equal(tables(3)[1][0], torch.ones(3))
    assert_close(f(X), expected)


def test_a_tensor_kept_after_the_recording_is_refused_with_its_line_and_refuses_to_be_used() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        KEPT["tensor"] = iter([x * 2])  # the line
        return x + 1

    with pytest.raises(CaptureError, match=r"is kept after it(.|\n)*# the line"):
        functional(program)(X)
    with pytest.raises(CaptureError, match="is kept after it"):
        next(KEPT.pop("tensor")) + 1


def test_a_recording_that_failed_leaves_tensors_that_say_so() -> None:
    kept: list[torch.Tensor] = []
    keep = kept.append

    def program(x: torch.Tensor) -> torch.Tensor:
        keep(x * 2)
        return x + 1 if x.sum() > 0 else x

    with pytest.raises(CaptureError, match=r"if x.sum\(\) > 0"):
        functional(program)(X)
    with pytest.raises(CaptureError, match="is kept after it"):
        torch.sin(kept[0])


@pytest.mark.parametrize("draw", [random.random, numpy.random.rand])
def test_only_the_programs_own_numbers_are_refused(draw: Any) -> None:
    stop = threading.Event()

    def other() -> None:
        while not stop.wait(0.05):
            random.random(), numpy.random.rand()

    thread = threading.Thread(target=other)
    thread.start()
    try:
        for factor in range(20):
            assert_close(functional(lambda x, factor=factor: x * factor)(X), X * factor)
        with pytest.raises(CaptureError, match="draws a number with"):
            functional(lambda x: x * draw())(X)
    finally:
        stop.set()
        thread.join()


def test_seeding_inside_fork_rng_is_refused() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            return nn.functional.dropout(x)

    state = torch.get_rng_state()
    with pytest.raises(CaptureError, match="random generator"):
        functional(program)(X)
    assert torch.equal(torch.get_rng_state(), state)


class Counter:
    calls = 0
    scale = 2.0


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * Counter.scale

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * Counter.scale


class Count(Scale):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        Counter.calls += 1
        return x * 2


def test_attributes_of_classes_that_custom_functions_read_are_guarded(monkeypatch: Any) -> None:
    f = functional(lambda x: Scale.apply(x))
    for scale in (2.0, 5.0, 2.0):
        monkeypatch.setattr(Counter, "scale", scale)
        x = X.clone().requires_grad_()
        f(x).sum().backward()
        assert_close((f(X), x.grad), (X * scale, torch.full((3,), scale)))
    assert thunder.cache_misses(f) == 4  # with gradients and without, for two scales


def test_a_program_that_changes_an_attribute_of_a_class_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"changes Counter\.calls"):
        functional(lambda x: Count.apply(x))(X.clone().requires_grad_())
    assert Counter.calls == 0


def test_attributes_of_tensors_are_guarded() -> None:
    f = functional(lambda x: x * getattr(x, "scale", 1))
    plain, scaled = X.clone(), X.clone()
    scaled.scale = 2  # type: ignore[attr-defined]
    assert_close((f(scaled), f(plain)), (X * 2, X))
    scaled.scale = 5  # type: ignore[attr-defined]
    assert_close(f(scaled), X * 5)
    weight = nn.Parameter(X.clone())
    weight.mask = torch.tensor([1.0, 0.0, 1.0])  # type: ignore[attr-defined]
    g = functional(lambda x: x * weight.mask)
    assert_close(g(X), X * weight.mask)
    weight.mask = torch.zeros(3)  # type: ignore[attr-defined]
    assert_close(g(X), X * 0)
    assert thunder.cache_misses(g) == 1  # it is an input


def test_an_attribute_that_the_program_gives_a_tensor_is_refused() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.scale = 2  # type: ignore[attr-defined]
        return x + 1

    x = X.clone()
    with pytest.raises(CaptureError, match="attributes of a tensor"):
        functional(program)(x)
    assert not vars(x)


class Slotted:
    __slots__ = ("scale", "shift")

    def __init__(self, scale: float) -> None:
        self.scale, self.shift = scale, X.clone()


class Plain:
    def __init__(self, scale: float) -> None:
        self.scale = scale


def test_objects_with_slots_and_objects_in_containers_are_guarded() -> None:
    slotted, inside = Slotted(2.0), [Plain(1.0), (Plain(3.0),), {"a": Plain(1.0)}]
    f = functional(lambda x: x * slotted.scale * inside[1][0].scale * inside[2]["a"].scale + slotted.shift)
    assert_close(f(X), X * 6 + X)
    slotted.scale = 5.0
    assert_close(f(X), X * 15 + X)
    inside[1][0].scale = 1.0  # type: ignore[index]
    inside[2]["a"].scale = 2.0  # type: ignore[index]
    slotted.shift = X * 2
    assert_close(f(X), X * 10 + X * 2)


@pytest.mark.parametrize("seeding", [True, False])
def test_a_state_of_the_generator_that_the_program_sets_is_refused_whatever_it_was(seeding: bool) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        if seeding:
            torch.manual_seed(0)
            return x + torch.rand(3)
        with torch.random.fork_rng(devices=[]):
            first = torch.rand(3)
        return first + torch.rand(3)  # the same numbers again

    torch.manual_seed(0)
    with pytest.raises(CaptureError, match="random generator"):
        functional(program)(X)
