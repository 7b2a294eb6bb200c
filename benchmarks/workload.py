"""What is timed of a model, and what a warm process is."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.models import gpt


def training_step(program: Any, module: nn.Module, args: tuple[Any, ...]) -> Callable[[], None]:
    """Forward, backward and dropping the gradients; no optimizer, which no subject compiles."""
    parameters = list(module.parameters())

    def step() -> None:
        program(*args).backward()
        for parameter in parameters:
            parameter.grad = None

    return step


def warm_up() -> None:
    """What "torch imported and warm" means here: nothing is compiled, and no subject is favoured.

    An eager training step, a forward and a backward on fake tensors, and the import of torch's own tracers
    (``make_fx``, AOTAutograd and Dynamo).
    """
    module, args = gpt(layers=1)
    training_step(module, module, args)()
    for tracer in ("torch.fx.experimental.proxy_tensor", "torch._functorch.aot_autograd", "torch._dynamo"):
        import_module(tracer)
    with FakeTensorMode():
        layer = nn.Linear(4, 4)
        layer(torch.randn(2, 4)).sum().backward()
