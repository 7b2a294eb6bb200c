"""Autograd functions as Dynamo captures them, in two graphs, put together again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch


def autograd_function_apply(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    *inputs: Any,
    dirty_idx: Collection[int] = (),
    non_differentiable_idx: Collection[int] = (),
    args_tensor_mask: Collection[bool] | None = None,
    **_: Any,
) -> Any:
    """What the operator of this name does, and an error where its second derivative would be silently wrong.

    forward: inputs -> (outs, saved). backward: (*gradients, *saved) -> gradients. dirty_idx, non_differentiable_idx:
    positions among the outs. args_tensor_mask: given by torch 2.10, whose graphs take a context before all else, and
    give no gradients of what the function closes over, the last of the inputs.
    """
    if args_tensor_mask is not None:
        forward, backward = functools.partial(forward, None), functools.partial(backward, None)

    count = len(inputs)  # the class, which has cycles, must not keep the inputs

    class Captured(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            result, saved = forward(*args)
            outs = result if isinstance(result, (tuple, list)) else (result,)
            ctx.mark_dirty(*[outs[i] for i in dirty_idx])
            ctx.mark_non_differentiable(*[outs[i] for i in non_differentiable_idx])
            ctx.save_for_backward(*[value if isinstance(value, torch.Tensor) else None for value in saved])
            ctx.others = [None if isinstance(value, torch.Tensor) else value for value in saved]
            return result

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            pairs = zip(ctx.saved_tensors, ctx.others, strict=True)
            given = [*gradients, *[other if tensor is None else tensor for tensor, other in pairs]]
            differentiable = torch.is_grad_enabled() and _require_grad(given)
            result = backward(*given)
            found = result if isinstance(result, (tuple, list)) else (result,)
            if differentiable and not all(map(_requires_grad, filter(_is_float, found))):
                raise RuntimeError(
                    "the backward of an autograd function cannot be differentiated: Dynamo captures it without "
                    'gradients. Use thunder.jit(..., frontend="functional").'
                )
            return (*found, *[None] * (count - len(found)))

    return Captured.apply(*inputs)


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _require_grad(values: Iterable[Any]) -> bool:
    return any(map(_requires_grad, values))
