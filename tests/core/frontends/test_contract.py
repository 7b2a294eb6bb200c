"""Where Python state meets a compiled program: what is guarded, what is refused, and what eager does instead."""

from __future__ import annotations

import contextvars
import copy
import random
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import thunder
from thunder.errors import CaptureError, ThunderError

X = torch.tensor([1.0, -2.0, 3.0])
LEVEL: contextvars.ContextVar[int] = contextvars.ContextVar("level", default=1)


def functional(fn: Any) -> Any:
    return thunder.jit(fn, frontend="functional")


class Cache:
    def __init__(self, *layers: Any) -> None:
        self.layers = list(layers)
        self.length = 0

    def update(self, x: torch.Tensor) -> torch.Tensor:
        self.layers.append(Layer(x))
        self.length += len(x)
        return x


class Layer:
    def __init__(self, keys: torch.Tensor) -> None:
        self.keys = keys


def test_a_cache_that_would_keep_recorded_tensors_is_refused_and_stays_as_it_was() -> None:
    cache, f = Cache(), functional(lambda x, cache: cache.update(x) * 2)
    with pytest.raises(CaptureError, match=r"changes argument cache.layers in place(.|\n)*dynamo"):
        f(X, cache)
    assert (cache.layers, cache.length) == ([], 0)
    assert_close(thunder.jit(lambda x, cache: cache.update(x) * 2)(X, cache), X * 2)
    assert torch.equal(cache.layers[0].keys, X)


def test_the_attributes_of_objects_are_guarded() -> None:
    class Settings:
        scale = 1.0

        def __init__(self) -> None:
            self.scale, self.inner = 2.0, Layer(X.clone())

    settings = Settings()
    f = functional(lambda x: x * settings.scale + settings.inner.keys)
    assert_close(f(X), X * 3)
    settings.scale = 3.0
    assert_close(f(X), X * 4)
    settings.inner.keys = X * 2
    assert_close(f(X), X * 5)
    assert thunder.cache_misses(f) == 2


def test_a_context_variable_is_guarded_by_its_value() -> None:
    f = functional(lambda x: x * LEVEL.get())
    assert_close(f(X), X)
    token = LEVEL.set(7)
    assert_close(f(X), X * 7)
    LEVEL.reset(token)
    assert_close(f(X), X)
    assert thunder.cache_misses(f) == 2


@pytest.mark.parametrize("draw", [random.random, numpy.random.rand])
def test_numbers_that_python_draws_are_refused_and_the_generator_stays_as_it_was(draw: Any) -> None:
    random.seed(3)
    numpy.random.seed(3)
    with pytest.raises(CaptureError, match="draws a number with"):
        functional(lambda x: x * draw())(X)
    drawn = draw()
    random.seed(3)
    numpy.random.seed(3)
    assert draw() == drawn


@pytest.mark.parametrize("frontend", ["functional", "dynamo"])
def test_hooks_on_submodules_may_come_and_go(frontend: Any) -> None:
    torch.manual_seed(0)
    eager = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    model = copy.deepcopy(eager)
    jitted = thunder.jit(model, frontend=frontend)
    for _ in range(2):
        assert_close(jitted(X), eager(X))
        handles = [m[0].register_forward_hook(lambda module, args, out: out * 10) for m in (model, eager)]
        handles += [m[2].register_forward_pre_hook(lambda module, args: (args[0] + 1,)) for m in (model, eager)]
        assert_close(jitted(X), eager(X))
        for handle in handles:
            handle.remove()
    assert_close(jitted(X), eager(X))


class Units(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out + 1000 if func in (torch.mul, torch.Tensor.mul) else out


@pytest.mark.parametrize("frontend", ["functional", "dynamo"])
def test_a_tensor_that_overrides_torch_functions_keeps_its_class(frontend: Any) -> None:
    f = thunder.jit(lambda x: x * 2, frontend=frontend)
    assert type(f(X)) is torch.Tensor
    assert type(f(X.as_subclass(Units))) is Units
    assert_close(f(X.as_subclass(Units)).as_subclass(torch.Tensor), X * 2 + 1000)


def test_a_call_that_pytorch_refuses_raises_what_eager_raises_or_is_caught_as_in_eager() -> None:
    ran = []

    def caught(x: torch.Tensor) -> torch.Tensor:
        try:
            return x.view(7, 7)
        except RuntimeError:
            return x + 1

    def broken(x: torch.Tensor) -> torch.Tensor:
        ran.append(len(x))
        torch._dynamo.graph_break()
        return x.view(7, 7)

    assert_close(thunder.jit(caught)(X), X + 1)
    with pytest.raises(RuntimeError):
        thunder.jit(broken)(X)
    assert ran == [3]  # what ran before the error does not run again
    with pytest.raises(RuntimeError, match=r"shape '\[7, 7\]' is invalid"):
        thunder.jit(lambda x: x.view(7, 7))(X)


def test_a_lazy_module_is_refused_until_it_has_run() -> None:
    lazy = nn.LazyLinear(2)
    with pytest.raises(ThunderError, match="without a shape"):
        functional(lazy)
    expected = lazy(X)
    assert_close(functional(lazy)(X), expected)
