"""The structural prims that ATen lacks. They are ordinary functions: a trace that uses them runs anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder.ir import tree

ArgPath = tuple[int | str, ...]
"""Where an argument stands: position or keyword first, then positions inside nested lists."""


def strided_clone(t: torch.Tensor) -> torch.Tensor:
    """A copy of ``t`` with its sizes and strides, even where those leave gaps or repeat elements; differentiable."""
    if t.is_contiguous():
        return t.clone()
    if 0 in t.stride():
        once = strided_clone(t[_once(t.shape, t.stride())])
        return once.as_strided(t.shape, t.stride())
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(t)


def _once(size: tuple[int, ...], stride: tuple[int, ...]) -> tuple[slice, ...]:
    """The index that takes each element of an expanded tensor once."""
    return tuple(slice(1) if n > 1 and step == 0 else slice(None) for n, step in zip(size, stride))


def on_copy(
    fn: Callable[..., Any], written: tuple[tuple[ArgPath, ...], ...], *args: Any, **kwargs: Any
) -> tuple[Any, ...]:
    """Call a mutating ``fn`` on copies of the arguments it writes; ``written``: of each, every place where it stands.

    Returns ``(result, *new values of the written arguments)``.
    """
    values: tuple[Any, Any] = (list(args), kwargs)
    fresh = []
    for paths in written:
        places = [_slot(values, path) for path in paths]
        holder, key = places[0]
        copy = strided_clone(holder[key])
        for holder, key in places:
            holder[key] = copy
        fresh.append(copy)
    return (fn(*values[0], **values[1]), *fresh)


def _slot(values: tuple[Any, Any], path: ArgPath) -> tuple[Any, Any]:
    """The container (made a list, so that it can be assigned to) and key that a path ends at."""
    holder: Any = values[1] if isinstance(path[0], str) else values[0]
    for key in path[:-1]:
        holder[key] = list(holder[key])
        holder = holder[key]
    return holder, path[-1]


def strided_view(t: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> torch.Tensor:
    """A view of ``t``'s memory; ``offset`` (in elements) counts from the first element of ``t``."""
    return t.as_strided(size, stride, t.storage_offset() + offset)


def strided_scatter(
    t: torch.Tensor, value: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> torch.Tensor:
    """A copy of ``t`` with ``value`` written into the part that ``strided_view`` would show; differentiable."""
    out = strided_clone(t)  # torch.as_strided_scatter has a wrong derivative: none flows to what was not overwritten
    once = _once(size, stride)
    strided_view(out, size, stride, offset)[once].copy_(value[once])
    return out


def gradients(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    inputs: tuple[torch.Tensor, ...],
    arriving: tuple[torch.Tensor | None, ...],
) -> tuple[torch.Tensor, ...]:
    """The gradients of ``fn(*args, **kwargs)`` for ``inputs``, which are among its arguments; zeros for none.

    arriving: the gradient of each leaf of the result, None where none arrives.
    """
    fresh = {id(t): t.detach().requires_grad_() for t in inputs}
    args, kwargs = tree.map_tree(lambda leaf: fresh.get(id(leaf), leaf), (args, kwargs))
    with torch.enable_grad():
        pairs = [(out, g) for out, g in zip(tree.leaves(fn(*args, **kwargs)), arriving) if g is not None]
    outs, given = zip(*pairs)
    found = torch.autograd.grad(outs, list(fresh.values()), given, allow_unused=True, materialize_grads=True)
    return tuple([laid_out(g, t.stride()) if t.layout is torch.strided else g for g, t in zip(found, inputs)])


def with_value(t: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """``value`` in place of ``t`` behind autograd's back: gradients flow to ``t`` as if nothing had been written."""
    out = strided_clone(t)
    write_silently(out, value)
    return out


def write_once(t: torch.Tensor, value: torch.Tensor) -> None:
    """Copy ``value`` into ``t``, each element once where ``t`` is expanded."""
    once = _once(t.shape, t.stride())
    t[once].copy_(value[once])


def write_silently(t: torch.Tensor, value: torch.Tensor) -> None:
    """Copy ``value`` into ``t`` as a program does under ``torch.no_grad()``."""
    with torch.no_grad():
        write_once(t, value)


def write_unseen(t: torch.Tensor, value: torch.Tensor) -> None:
    """Copy ``value`` into ``t`` as kernels do that do not say so: its version counter does not move."""
    write_once(t.data, value)


def in_grad_mode(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call an operator as autograd calls it: with grad mode on, below autograd."""
    with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
        return op(*args, **kwargs)


def call(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a Python callable that has no name in the torch API (``MyFunction.apply``)."""
    return fn(*args, **kwargs)


def chain(
    fn: Callable[..., Any],
    *args: Any,
    then: tuple[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]], ...],
    **kwargs: Any,
) -> Any:
    """Calls in a row: ``fn(*args, **kwargs)``, then each of ``then`` on what the one before it returned.

    then: functions, each with the arguments that follow its first, and its keywords.
    """
    value = fn(*args, **kwargs)
    for function, others, keywords in then:
        value = function(value, *others, **keywords)
    return value


def laid_out(t: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """``t`` with the given strides: itself if it has them, else a copy."""
    if t.stride() == stride:
        return t
    return torch.empty_strided(t.shape, stride, dtype=t.dtype, device=t.device).copy_(t)


def constant(t: torch.Tensor) -> torch.Tensor:
    """A tensor that belongs to the program itself."""
    return t
