"""Specifications are data; their strings are resolved on use; checks answer; symbols are recorded or run."""

from __future__ import annotations

import dataclasses
import math

import pytest

from thunder.errors import PluginError
from thunder.extend import Claim, ClaimContext, Executor, No, Op, Reads, StateKind, Updates, Yes, resolve, symbol
from thunder.ir.effects import Access
from thunder.plugins import manager
from thunder.plugins.manager import registry
from thunder.plugins.symbols import RECORDER

HERE = __name__


@pytest.fixture(autouse=True)
def fresh_registry():
    manager.registry.cache_clear()
    yield
    manager.registry.cache_clear()


def test_executors_are_values():
    first, second = (Executor(name="mine", symbols=(Op("mine.f", impl="math:sin"),)) for _ in range(2))
    assert first.op("mine.f") is first.symbols[0]
    assert (first, hash(first), repr(first)) == (second, hash(second), repr(second))
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Executor("mine")  # type: ignore[misc]


def test_an_access_is_part_of_what_an_effect_is():
    assert Reads("a") != Updates("a")
    assert (Reads("a").access, Updates("a").access) == (Access.READ, Access.UPDATE)
    assert repr(Reads("a")) == "Reads(kind='a')"


def test_lookups():
    state, claim = StateKind(name="mine.s"), Claim("torch.sin")
    mine = Executor(name="mine", states=(state,), claims=(claim,))
    assert (mine.state("mine.s"), mine.claim("torch.sin")) == (state, claim)
    assert (mine.state("mine.t"), mine.claim("torch.cos"), mine.op("mine.f")) == (None, None, None)


def test_resolve():
    assert resolve("math:sin") is math.sin
    assert resolve("os:path.join").__name__ == "join"
    with pytest.raises(PluginError, match="no_such_module"):
        resolve("no_such_module:f")
    with pytest.raises(PluginError, match="AttributeError"):
        resolve("math:sine")


def key_of(options):
    return options["recipe"]


def test_cache_key():
    assert Executor(name="mine").key({}) is None
    assert Executor(name="mine", cache_key=f"{HERE}:key_of").key({"recipe": "current"}) == "current"


def check_size(cx, x, *, limit=3):
    return Yes() if x < limit and not cx.training else No(f"{x} is too much")


def check_bare(cx, x):
    return x > 0


def check_silent(cx, x):
    return No("")


def test_a_claim_without_a_check_takes_every_call():
    assert Claim("torch.sin").ask(ClaimContext(), 1, 2, a=3) == Yes()


def test_answers():
    claim = Claim("torch.sin", check=f"{HERE}:check_size")
    assert claim.ask(ClaimContext(), 2) == Yes()
    assert claim.ask(ClaimContext(), 3) == No("3 is too much")
    assert claim.ask(ClaimContext(), 3, limit=4) == Yes()
    assert claim.ask(ClaimContext(needs_grad=(False, True)), 2) == No("2 is too much")


@pytest.mark.parametrize(
    ("check", "args", "why"),
    [
        ("check_bare", [1], "returned True"),
        ("check_silent", [1], "returned No"),
        ("check_size", [1, 2], "raised TypeError"),
    ],
)
def test_an_answer_is_yes_or_a_reason(check, args, why):
    with pytest.raises(PluginError) as error:
        Claim("torch.sin", check=f"{HERE}:{check}").ask(ClaimContext(), *args)
    assert why in error.value.why
    assert check in error.value.where


class Recorder:
    def __init__(self):
        self.calls = []

    def call_symbol(self, op, args, kwargs):
        self.calls.append((op, args, kwargs))
        return "recorded"


def test_symbols_run_or_are_recorded():
    op = Op("mine.pow", impl="math:pow")
    registry().register(Executor(name="mine", symbols=(op,)))
    power, recorder = symbol("mine.pow"), Recorder()
    assert power(2, 3) == 8
    token = RECORDER.set(recorder)
    try:
        assert power(2, 3) == "recorded"
    finally:
        RECORDER.reset(token)
    assert recorder.calls == [(op, (2, 3), {})]
    assert power(2, 3) == 8


@pytest.mark.parametrize(
    ("name", "text"),
    [("mine.pwo", 'did you mean "mine.pow"'), ("mien.pow", 'did you mean "mine"'), ("mine", 'has no symbol "mine"')],
)
def test_symbols_that_do_not_exist(name, text):
    registry().register(Executor(name="mine", symbols=(Op("mine.pow", impl="math:pow"),)))
    with pytest.raises(PluginError, match=text):
        symbol(name)(2, 3)
