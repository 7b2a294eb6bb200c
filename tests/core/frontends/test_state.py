"""Modules as the program's state: parameters, buffers, attributes, hooks, and what the program leaves in them."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import thunder
from thunder.errors import CaptureError


def functional(fn: Any) -> Any:
    return thunder.jit(fn, frontend="functional")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.norm, self.drop, self.fc2 = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 2)
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.drop(self.norm(self.fc1(x)).relu())) * self.scale


def compare(jitted: nn.Module, eager: nn.Module, x: torch.Tensor) -> None:
    """One call of each with the same seed: results, gradients and state must be equal."""
    torch.manual_seed(0)
    a = jitted(x)
    torch.manual_seed(0)
    b = eager(x)
    assert_close(a, b, rtol=0, atol=0)
    if b.requires_grad:
        a.sum().backward()
        b.sum().backward()
    for (name, p), q in zip(jitted.named_parameters(), eager.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), name
        assert p.grad is None or torch.equal(p.grad, q.grad), name
        p.grad = q.grad = None
    assert_close(jitted.state_dict(), eager.state_dict(), rtol=0, atol=0)


def pair() -> tuple[Net, Net]:
    torch.manual_seed(1)
    eager = Net()
    return functional(copy.deepcopy(eager)), eager


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m.eval(), "module Net: training True → False"),
        (lambda m: m.norm.eval(), "module norm: training True → False"),
        (lambda m: setattr(m, "scale", 3.0), "module Net: scale 2.0 → 3.0"),
        (lambda m: m.fc1.requires_grad_(False), "parameter fc1.weight: requires_grad True → False"),
        (lambda m: setattr(m.drop, "p", 0.1), "module drop: p 0.5 → 0.1"),
        (lambda m: m.fc1.register_parameter("bias", None), "parameter fc1.bias"),
        (lambda m: setattr(m, "drop", nn.Identity()), "module drop"),
        (lambda m: m.fc1.register_forward_hook(lambda module, args, out: out * 2), "module fc1: hooks"),
    ],
)
def test_a_change_of_the_module_is_honoured(change: Any, reason: str) -> None:
    jitted, eager = pair()
    x = torch.randn(5, 4)
    compare(jitted, eager, x)
    for module in (jitted, eager):
        change(module)
    compare(jitted, eager, x)
    compare(jitted, eager, x)
    assert thunder.cache_misses(jitted) == 2
    assert reason in thunder.last_miss_reason(jitted)


def test_replaced_loaded_and_cast_parameters_are_read_at_call_time() -> None:
    jitted, eager = pair()
    x = torch.randn(5, 4)
    compare(jitted, eager, x)
    weight = torch.randn(6, 4)
    for module in (jitted, eager):
        module.fc1.weight = nn.Parameter(weight.clone())
    compare(jitted, eager, x)
    state = {key: value + 1 for key, value in eager.state_dict().items()}
    for module in (jitted, eager):
        module.load_state_dict(state)
    compare(jitted, eager, x)
    assert thunder.cache_misses(jitted) == 1
    for module in (jitted, eager):
        module.double()
    compare(jitted, eager, x.double())
    assert thunder.cache_misses(jitted) == 2


def test_tied_parameters_are_one_input_with_one_gradient() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(7, 3), nn.Linear(3, 7, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(ids))

    eager = Tied()
    jitted = functional(copy.deepcopy(eager))
    ids = torch.tensor([1, 2, 3])
    compare(jitted, eager, ids)
    assert len(jitted.forward._cache.entries[0].guards.reads) == 2  # ids and one weight
    for module in (jitted, eager):
        module.head.weight = nn.Parameter(module.embed.weight.detach() * 2)
    compare(jitted, eager, ids)
    assert thunder.cache_misses(jitted) == 2


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("cache", None)
        self.hidden = torch.zeros(2)
        self.pair = (torch.zeros(2), 1)
        self.steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count = self.count + 1
        if self.cache is None:
            self.cache = torch.arange(2.0)
        self.hidden = self.hidden + x
        self.pair = (self.pair[0] + x, self.pair[1])
        self.steps = min(self.steps + 1, 2)
        self.register_buffer("late", x * 2)
        return x + self.cache + self.hidden + self.count * self.steps


def test_rebound_buffers_attributes_and_counters_are_left_as_eager_leaves_them() -> None:
    eager = Stateful()
    jitted = functional(copy.deepcopy(eager))
    for _ in range(5):
        x = torch.randn(2)
        assert_close(jitted(x), eager(x), rtol=0, atol=0)
        assert_close(jitted.state_dict(), eager.state_dict(), rtol=0, atol=0)
        assert_close((jitted.hidden, jitted.pair, jitted.steps), (eager.hidden, eager.pair, eager.steps))
    assert type(jitted.hidden) is torch.Tensor
    assert thunder.cache_hits(jitted) == 2  # once nothing but tensors changes


def test_a_tensor_left_in_a_list_of_a_module_is_an_error_that_names_it() -> None:
    class Keeper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.history: list[torch.Tensor] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.history.append(x + 1)
            return x

    model = Keeper()
    with pytest.raises(CaptureError, match="history"):
        functional(model)(torch.ones(1))
    assert model.history == []


def test_modules_in_arguments_closures_and_lists_are_bound() -> None:
    layers = [nn.Linear(3, 3), nn.Linear(3, 3)]

    def program(head: nn.Module, x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = layer(x)
        return head(x)

    f, head, x = functional(program), nn.Linear(3, 1), torch.randn(2, 3)
    f(head, x).sum().backward()
    grads = [p.grad.clone() for module in (*layers, head) for p in module.parameters()]
    for module in (*layers, head):
        module.zero_grad()
    program(head, x).sum().backward()
    for got, p in zip(grads, [p for module in (*layers, head) for p in module.parameters()], strict=True):
        assert_close(got, p.grad)
    layers.append(nn.Linear(3, 3))
    assert_close(f(head, x), program(head, x))


def test_attributes_that_are_lists_and_dicts_are_guarded_by_value() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factors, self.table = [1.0, 2.0], {"a": 1}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * sum(self.factors) + self.table["a"]

    model = Model()
    jitted, x = functional(model), torch.ones(2)
    assert_close(jitted(x), x * 4)
    model.factors[1] = 5.0
    assert_close(jitted(x), x * 7)
    model.table["a"] = 3
    assert_close(jitted(x), x * 9)
    assert thunder.cache_misses(jitted) == 3


def test_globals_of_methods_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    jitted = functional(WithMethod())
    assert_close(jitted(torch.ones(2)), torch.full((2,), 4.0))
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    assert_close(jitted(torch.ones(2)), torch.full((2,), 5.0))


FACTOR = 4.0


class WithMethod(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scaled(x)

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * FACTOR


def test_a_plain_list_that_the_program_changes_stays_changed_unless_the_capture_fails() -> None:
    fail, log = False, [0]

    def program(x: torch.Tensor) -> torch.Tensor:
        log.append(len(log))
        if fail:
            raise RuntimeError("no")
        return x * len(log)

    f = functional(program)
    for count in (2, 3, 4):
        assert_close(f(torch.ones(1)), torch.full((1,), float(count)))
        assert len(log) == count
    fail = True
    with pytest.raises(RuntimeError, match="no"):
        f(torch.ones(1))
    assert log == [0, 1, 2, 3]


def test_modules_made_or_initialised_by_the_program_are_errors() -> None:
    class Late(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.layer = nn.ReLU()
            return self.layer(x)

    model = Late()
    with pytest.raises(CaptureError, match="layer"):
        functional(model)(torch.ones(1, 2))
    assert not hasattr(model, "layer")
    with pytest.raises(CaptureError, match=r"parameter 0\.weight has no shape yet"):
        functional(nn.Sequential(nn.LazyLinear(3)))(torch.ones(1, 2))


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_modules_that_hold_parameters_twice(kind: str) -> None:
    torch.manual_seed(0)
    eager: Any = nn.LSTM(3, 4, 2) if kind == "lstm" else nn.TransformerEncoderLayer(4, 2, 8)
    jitted, x = functional(copy.deepcopy(eager)), torch.randn(5, 2, 4 if kind == "transformer" else 3)
    for _ in range(2):
        torch.manual_seed(1)
        a = jitted(x)
        torch.manual_seed(1)
        b = eager(x)
        assert_close(a, b)
        (a[0] if kind == "lstm" else a).sum().backward()
        (b[0] if kind == "lstm" else b).sum().backward()
        for p, q in zip(jitted.parameters(), eager.parameters(), strict=True):
            assert_close(p.grad, q.grad)
    assert thunder.cache_hits(jitted) == 1


def test_dataclasses_in_modules_are_guarded_by_field_and_may_hold_state() -> None:
    @dataclasses.dataclass
    class Config:
        scale: float
        total: torch.Tensor

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = Config(2.0, torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.config.total = self.config.total + x
            return self.config.total * self.config.scale

    model = Model()
    jitted, x = functional(model), torch.ones(2)
    for count in (1, 2, 3):
        assert_close(jitted(x), x * count * 2)
    model.config.scale = 5.0
    assert_close(jitted(x), x * 4 * 5)
    assert thunder.cache_miss_reasons(jitted) == ["first call", "module Model: config.scale 2.0 → 5.0"]
