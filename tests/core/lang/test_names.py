from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from thunder.lang.names import canonical_name, resolve_symbol

ONE_MEANING = [
    ("torch.matmul", [torch.matmul, torch.Tensor.matmul]),
    ("torch.add", [torch.add, torch.Tensor.add]),
    ("torch.mm", [torch.mm, torch.Tensor.mm]),
    ("torch.permute", [torch.permute, torch.Tensor.permute]),
    ("torch.softmax", [torch.softmax, torch.Tensor.softmax]),
    ("torch.nn.functional.linear", [F.linear]),
    ("torch.nn.functional.gelu", [F.gelu, torch._C._nn.gelu]),
    ("torch.einsum", [torch.einsum]),
    ("torch.linalg.inv", [torch.linalg.inv]),
    ("aten.mm", [torch.ops.aten.mm.default]),
    ("aten.add.Tensor", [torch.ops.aten.add.Tensor]),
]


@pytest.mark.parametrize(("name", "callables"), ONE_MEANING, ids=[name for name, _ in ONE_MEANING])
def test_calls_of_one_meaning_have_one_name(name, callables):
    assert [canonical_name(fn) for fn in callables] == [name] * len(callables)


@pytest.mark.parametrize("method", [torch.Tensor.where, torch.Tensor.polygamma])
def test_methods_that_order_their_arguments_otherwise_keep_a_name_of_their_own(method):
    assert canonical_name(method) == f"torch.Tensor.{method.__name__}"


def test_every_overridable_function_with_a_name_resolves_to_a_callable_of_that_name():
    named = {fn: canonical_name(fn) for fns in torch.overrides.get_overridable_functions().values() for fn in fns}
    assert sum(name is not None for name in named.values()) > 1000
    for name in filter(None, named.values()):
        assert callable(resolve_symbol(name)), name


def test_what_has_no_path_has_no_name():
    assert canonical_name(lambda x: x) is None
