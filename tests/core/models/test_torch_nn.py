"""Every module of ``torch.nn``, losses and norms among them, with the inputs of PyTorch's own module database."""

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
from thunder.errors import CaptureError

DATA = "not known while the program is recorded"

DECLINED = {
    "BatchNorm1d": DATA,  # momentum=None: float(num_batches_tracked)
    "BatchNorm2d": DATA,
    "BatchNorm3d": DATA,
    "CTCLoss": DATA,  # the size of what it saves depends on the lengths
    "GaussianNLLLoss": DATA,  # it raises for a negative variance
    "Transformer": DATA,  # with padding, the fast path of eval mode looks into the mask
    "TransformerEncoder": DATA,
}
"""Modules of which the functional front end declines some, with words of the error."""

DIFFERENT = {
    "MultiLabelMarginLoss": "the fake kernel says (1,) where the real one returns a 0-d tensor",
}
"""Modules with a sample that is not compiled rightly, and why."""

PYTHON = {"RNN", "LSTM", "GRU", "Threshold", *DECLINED} - {"Transformer", "TransformerEncoder"}
"""Modules of which Dynamo leaves some to Python."""

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


NAMES = [
    pytest.param(name, marks=pytest.mark.xfail(reason=DIFFERENT[name], strict=False)) if name in DIFFERENT else name
    for name in MODULES
]


@pytest.mark.parametrize("count", [2, pytest.param(24, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_module_functional(name: str, count: int) -> None:
    for module, args, kwargs in itertools.islice(samples(MODULES[name]), count):
        try:
            check(module, args, kwargs, "functional")
        except CaptureError as error:
            if DECLINED.get(name, "nothing") not in str(error):
                raise


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_module_dynamo(name: str) -> None:
    for module, args, kwargs in itertools.islice(samples(MODULES[name]), 2):
        check(module, args, kwargs, "dynamo", compiled=name not in PYTHON)
