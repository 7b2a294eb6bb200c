"""A jitted module is a module: one state, the same class, keys, hooks, copies and pickles."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import torch
from torch import nn
from torch.testing import assert_close

import thunder


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return self.fc(x) * scale

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        return self(x).argmax(-1)


def jit(module: Any) -> Any:
    return thunder.jit(module, frontend="functional")


def test_it_is_a_module_of_the_same_class_with_the_same_state() -> None:
    model = Model()
    jitted = jit(model)
    assert isinstance(jitted, Model)
    assert (type(jitted).__name__, type(jitted).__qualname__) == ("Model", "Model")
    assert type(jitted) is type(jit(Model()))
    assert list(jitted.state_dict()) == list(model.state_dict())
    assert all(a is b for a, b in zip(jitted.parameters(), model.parameters(), strict=True))
    jitted.fc.bias = nn.Parameter(torch.ones(2))
    jitted.note = "shared"
    assert model.fc.bias is jitted.fc.bias
    assert model.note == "shared"
    jitted.eval()
    assert not model.training
    assert "forward" not in vars(model)


def test_methods_of_the_class_run_the_compiled_forward() -> None:
    jitted = jit(Model())
    x = torch.randn(4, 3)
    assert_close(jitted.predict(x), jitted.fc(x).argmax(-1))
    assert thunder.cache_misses(jitted) == 1
    assert_close(jitted(x, scale=2.0), jitted.fc(x) * 2)


def test_hooks_of_the_module_run_at_every_call() -> None:
    model, calls = Model(), []
    jitted = jit(model)
    handle = model.register_forward_hook(lambda module, args, out: calls.append(type(out)) or out + 1)
    x = torch.randn(4, 3)
    for _ in range(3):
        assert_close(jitted(x), model.fc(x) + 1)
    assert calls == [torch.Tensor] * 3
    handle.remove()
    assert_close(jitted(x), model.fc(x))
    assert thunder.cache_misses(jitted) == 1


def test_deepcopy_is_jitted_and_independent() -> None:
    jitted = jit(Model())
    x = torch.randn(4, 3)
    expected = jitted(x)
    twin = copy.deepcopy(jitted)
    with torch.no_grad():
        jitted.fc.weight.zero_()
    assert_close(twin(x), expected)
    assert thunder.cache_misses(twin) == 1
    assert isinstance(twin, Model)
    both = copy.deepcopy([jitted, jitted])
    assert both[0] is both[1]


def test_pickle_rebuilds_with_the_same_options() -> None:
    jitted = jit(Model())
    x = torch.randn(4, 3)
    twin = pickle.loads(pickle.dumps(jitted))
    assert_close(twin(x), jitted(x))
    assert thunder.cache_misses(twin) == 1
    buffer = io.BytesIO()
    torch.save(jitted, buffer)
    buffer.seek(0)
    assert_close(torch.load(buffer, weights_only=False)(x), jitted(x))


def test_a_replaced_forward_is_compiled() -> None:
    jitted, x = jit(Model()), torch.randn(4, 3)
    jitted(x)
    jitted.forward = lambda x: x * 5
    assert_close(jitted(x), x * 5)


def test_as_a_child_of_another_module() -> None:
    parent = nn.Sequential(Model(), nn.ReLU())
    parent[0] = jit(parent[0])
    x = torch.randn(4, 3)
    assert_close(parent(x), parent[0].fc(x).relu())
    assert thunder.cache_misses(parent[0]) == 1
    whole = jit(parent)
    assert_close(whole(x), parent[0].fc(x).relu())
    assert thunder.cache_misses(parent[0]) == 1


def test_jitting_again_replaces_the_options_and_keeps_the_module() -> None:
    model = Model()
    again = jit(jit(model))
    assert type(again).__mro__[1] is Model
    assert again.fc is model.fc
    f = jit(jit(model.predict))
    assert_close(f(torch.ones(1, 3)), model.predict(torch.ones(1, 3)))
    assert f.__wrapped__ == model.predict


def test_the_dynamo_front_end_makes_modules_too() -> None:
    model = Model()
    jitted = thunder.jit(model)
    x = torch.randn(4, 3)
    assert_close(jitted(x), model(x))
    assert isinstance(jitted, Model)
    assert len(thunder.last_traces(jitted)) > 0
