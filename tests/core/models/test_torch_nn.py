"""Every module of ``torch.nn`` with the inputs of PyTorch's own module database: losses, norms, activations, and the rest."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn.modules.lazy import LazyModuleMixin
from torch.testing._internal.common_modules import ModuleInfo, module_db

from tests.core.models.check import check

DECLINED: dict[str, str] = {}
"""Modules that the functional front end declines, with words of the error."""

Call = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]

MODULES = {info.name.replace("nn.", "", 1): info for info in module_db}


def samples(info: ModuleInfo) -> Iterator[Call]:
    """The modules of an entry with their arguments, where eager takes them in float32."""
    torch.manual_seed(0)
    inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=True)
    for given in inputs:
        if given.forward_input is None or issubclass(info.module_cls, LazyModuleMixin):
            continue
        module = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)
        args, kwargs = given.forward_input.args, given.forward_input.kwargs
        with contextlib.suppress(RuntimeError):
            copy.deepcopy(module)(*args, **kwargs)
            yield module, args, kwargs


@pytest.mark.parametrize("name", MODULES)
def test_module_functional(name: str) -> None:
    for module, args, kwargs in samples(MODULES[name]):
        check(module, args, kwargs, "functional", DECLINED.get(name, ""))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_module_dynamo(name: str) -> None:
    for module, args, kwargs in itertools.islice(samples(MODULES[name]), 2):
        check(module, args, kwargs, "dynamo")
