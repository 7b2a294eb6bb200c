"""Properties of trees and guards, with ``repr`` and structure walks as the independent truth."""

from __future__ import annotations

import string
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from thunder.frontends.binding import bind
from thunder.frontends.guards import Guards, alias_pattern, compile_guard, explain_miss
from thunder.frontends.places import identifier
from thunder.frontends.pytree import flatten, matches, same, snapshot, unflatten

plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([0.0, -0.0, 1.0, float("nan"), float("inf"), 1j]),
    st.sampled_from(["", "a", b"a", torch.float32, torch.device("cpu"), torch.Size([1]), slice(0, 1)]),
)
tensors = st.integers(1, 2).map(torch.ones)


def containers(leaves: Any) -> Any:
    keys = st.sampled_from(string.ascii_lowercase[:3])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(keys, inner, max_size=2),
        ),
        max_leaves=6,
    )


def spelling(value: Any) -> str:
    """What a guard must tell apart, as text: types, values, order, and metadata of tensors."""
    if isinstance(value, torch.Tensor):
        return f"Tensor{tuple(value.shape)}"
    if type(value) in (list, tuple):
        return f"{type(value).__name__}({', '.join(map(spelling, value))})"
    if isinstance(value, dict):
        return f"dict({', '.join(f'{k}: {spelling(v)}' for k, v in value.items())})"
    return f"{type(value).__name__}:{value!r}"


@settings(deadline=None)
@given(containers(plain), containers(plain))
def test_same_tells_apart_what_spelling_does(a: Any, b: Any) -> None:
    assert same(a, b) == (spelling(a) == spelling(b))
    assert same(a, snapshot(a))


@settings(deadline=None)
@given(containers(st.one_of(plain, tensors)))
def test_flatten_and_unflatten_are_inverse(value: Any) -> None:
    leaves: list[torch.Tensor] = []
    tree = flatten(value, leaves)
    assert spelling(unflatten(tree, leaves)) == spelling(value)
    assert matches(tree, leaves, unflatten(tree, leaves))
    if leaves:
        assert not matches(tree, [leaf.clone() for leaf in leaves], value)


def program(*args: Any, **kwargs: Any) -> None:
    """A function with any arguments."""


def guard_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Guards]:
    binding, inputs = bind(program, args, kwargs)
    return compile_guard(binding.guards, [given.value for given in inputs]), binding.guards


@settings(max_examples=200, deadline=None)
@given(containers(st.one_of(plain, tensors)), containers(st.one_of(plain, tensors)), st.booleans())
def test_a_guard_accepts_exactly_the_calls_that_look_alike(a: Any, b: Any, keyword: bool) -> None:
    call = ((), {"value": b}) if keyword else ((b,), {})
    guard, guards = guard_of((), {"value": a}) if keyword else guard_of((a,), {})
    found = guard(*call)
    assert (found is not None) == (spelling(a) == spelling(b))
    if found is None:
        place, _ = explain_miss(guards, *call)
        assert place.startswith("argument ")
    else:
        leaves: list[torch.Tensor] = []
        flatten(b, leaves)
        assert [id(t) for t in found] == [id(t) for t in dict.fromkeys(leaves)]


def test_a_guard_refuses_other_numbers_of_arguments_and_keywords() -> None:
    guard, _ = guard_of((1,), {"a": 2})
    assert guard((1,), {"a": 2}) == []
    for args, kwargs in (((), {"a": 2}), ((1, 1), {"a": 2}), ((1,), {}), ((1,), {"b": 2}), ((1,), {"a": 2, "b": 2})):
        assert guard(args, kwargs) is None


@pytest.mark.parametrize("other", [None, 1, "text", torch.ones(2).to_sparse()])
def test_a_guard_refuses_what_is_no_such_tensor(other: Any) -> None:
    guard, guards = guard_of((torch.ones(2),), {})
    assert guard((other,), {}) is None
    assert explain_miss(guards, (other,), {})[0].startswith("argument args_0")


def test_alias_pattern_is_empty_without_sharing_and_tells_offsets_apart() -> None:
    x = torch.arange(6.0)
    assert alias_pattern([x, torch.ones(6)]) == ()
    assert alias_pattern([x, torch.ones(1), x[:3]]) == ((0, 0), (1, 0), (0, 0))
    assert alias_pattern([x, x[2:]]) == ((0, 0), (0, 2))


@settings(deadline=None)
@given(st.text(max_size=8))
def test_identifiers_are_identifiers(path: str) -> None:
    assert identifier(path).isidentifier()
