"""Jitted functions as objects: they pickle, copy and keep their code apart."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import thunder
from thunder.frontends.dynamo import _with_own_code

X = torch.tensor([1.0, -2.0, 3.0])
FRONT_ENDS = ["functional", "dynamo"]


@thunder.jit
def by_dynamo(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@thunder.jit(frontend="functional")
def functional(x: torch.Tensor) -> torch.Tensor:
    return x * 3


def plain(x: torch.Tensor) -> torch.Tensor:
    return x * 4


@pytest.mark.parametrize("f", [by_dynamo, functional])
def test_a_decorated_function_is_pickled_by_its_name(f: Any) -> None:
    assert pickle.loads(pickle.dumps(f)) is f


@pytest.mark.parametrize("frontend", FRONT_ENDS)
@pytest.mark.parametrize("fn", [plain, torch.sin])
def test_what_was_made_of_a_function_is_jitted_anew(fn: Any, frontend: Any) -> None:
    f = thunder.jit(fn, frontend=frontend)
    for again in (pickle.loads(pickle.dumps(f)), copy.deepcopy(f)):
        assert type(again) is type(f)
        assert again is not f
        assert_close(again(X), fn(X))


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_a_function_without_a_name_is_not_pickled(frontend: Any) -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(thunder.jit(lambda x: x + 1, frontend=frontend))


def test_modules_of_one_class_do_not_share_dynamos_limits() -> None:
    modules = [nn.Linear(3, 3) for _ in range(4)]
    with torch._dynamo.config.patch(accumulated_recompile_limit=2, recompile_limit=2):
        for module in modules:
            jitted = thunder.jit(module)
            assert_close(jitted(X), module(X))
            assert thunder.last_traces(jitted)  # compiled, not run by Python


def test_a_copy_of_the_code_keeps_defaults_closures_and_names() -> None:
    factor = 3

    def fn(x: int, y: int = 2, *, z: int = 5) -> int:
        return x * factor + y + z

    own = _with_own_code(fn)
    assert (own(1), own(1, z=0)) == (fn(1), fn(1, z=0))
    assert own.__code__ is not fn.__code__
    assert own.__name__ == "fn"
