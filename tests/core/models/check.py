"""A module beside eager: two passes without gradients, then two training steps, under the same seeds."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils import _pytree

import thunder
from thunder.errors import CaptureError

FRONTENDS = ("functional", "dynamo")

TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a result, in order."""
    return [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def scalar(value: Any) -> torch.Tensor:
    """What a training step goes back from: the loss, if the module computes one, else a value of all results."""
    loss = getattr(value, "loss", None)
    if loss is not None:
        return loss
    differentiable = [t for t in tensors(value) if t.requires_grad]
    return sum((t.square().sum() / max(t.numel(), 1) for t in differentiable), torch.zeros(()))


def leaves(value: Any) -> Any:
    """The arguments with every tensor a leaf of autograd."""
    return _pytree.tree_map_only(torch.Tensor, lambda t: t.detach().requires_grad_(t.requires_grad), value)


def step(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], seed: int) -> list[torch.Tensor | None]:
    """Results and all gradients of a training step: of the parameters, then of the arguments."""
    args, kwargs = leaves((args, kwargs))
    torch.manual_seed(seed)
    result = module(*args, **kwargs)
    found = scalar(result)
    if found.requires_grad:
        found.backward()
    gradients = [p.grad for p in (*module.parameters(), *tensors((args, kwargs)))]
    for p in module.parameters():
        p.grad = None
    return [*tensors(result), *gradients]


def forward(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], seed: int) -> list[torch.Tensor]:
    """Results without gradients."""
    torch.manual_seed(seed)
    with torch.no_grad():
        return tensors(module(*args, **kwargs))


def same(found: Sequence[Any], expected: Sequence[Any], what: str) -> None:
    assert len(found) == len(expected), what
    for i, (a, b) in enumerate(zip(found, expected)):
        assert (a is None) == (b is None), f"{what}, tensor {i}: {a} for {b}"
        if a is not None:
            assert_close(a, b, **TOLERANCE, equal_nan=True, msg=lambda text, i=i: f"{what}, tensor {i}: {text}")


def state(module: nn.Module) -> list[torch.Tensor]:
    return [*module.buffers()]


def check_equal(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    jit: Callable[[nn.Module], nn.Module],
) -> nn.Module:
    """Compare ``jit(module)`` with a copy of the module in eager mode; returns the jitted module.

    First in eval mode without gradients, then training steps; everything twice, since the first call
    compiles. Results, the gradient of every parameter and the buffers afterwards must be equal.
    """
    eager = copy.deepcopy(module)
    jitted = jit(module)
    for run, training in ((forward, False), (step, True)):
        eager.train(training)
        jitted.train(training)
        for seed in range(2):
            what = f"{run.__name__} {seed}"
            same(run(jitted, args, kwargs, seed), run(eager, args, kwargs, seed), what)
            same(state(jitted), state(eager), f"{what}, buffers")
    return jitted


def check(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    frontend: str,
    *,
    declined: str = "",
    compiled: bool = True,
) -> None:
    """As ``check_equal``, of a front end.

    declined: words of the error with which the functional front end declines the module; empty if it does not.
    compiled: False where Dynamo leaves all to Python.
    """

    def jit(module: nn.Module) -> nn.Module:
        return thunder.jit(module, frontend=frontend)

    if declined and frontend == "functional":
        with pytest.raises(CaptureError, match=declined):
            check_equal(module, args, kwargs, jit)
    else:
        jitted = check_equal(module, args, kwargs, jit)
        assert not compiled or thunder.last_traces(jitted), "nothing was compiled"
