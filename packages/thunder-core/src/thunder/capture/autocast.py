"""Autocast as explicit casts: what PyTorch casts below a call is observed and put into the trace.

The trace then runs with autocast off, and an executor sees the dtypes that run. No list of operators is kept here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from thunder.capture.bodies import is_python, opened
from thunder.capture.log import tensor_leaves
from thunder.capture.standins import replace_tensors
from thunder.lang.values import tensor_type

if TYPE_CHECKING:
    from thunder.capture.torch_calls import TorchRecorder


def explicit_casts(
    recorder: TorchRecorder, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record a call made under autocast as casts of its arguments, then the call itself without autocast."""
    with _no_cast_cache():
        wanted = recorder.run(fn, args, kwargs)
    leaves = {id(t): t for t in tensor_leaves((args, kwargs))}
    casts = [(t, out.dtype) for t, out in recorder.observer.casts if id(t) in leaves]
    mark = len(recorder.log.ops)
    with torch._C._DisableAutocast():
        cast = {id(t): _cast(recorder, t, dtype) for t, dtype in casts}
        out = recorder.record(fn, *replace_tensors((args, kwargs), cast))
    if _same_types(out, wanted):
        return out
    recorder.log.forget(mark)
    recorder.casts.clear()
    if not is_python(fn):
        return fn(*args, **kwargs)  # it casts values of its own: the observer logs the operators that it is made of
    with recorder:
        return opened(fn)(*args, **kwargs)


def under_ambient(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, run under the autocast that is on now: for one that asks for it itself (``custom_fwd``)."""
    regions = [(kind, torch.get_autocast_dtype(kind)) for kind in _devices() if torch.is_autocast_enabled(kind)]
    if not regions:
        return fn

    def call(*args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for kind, dtype in regions:
                stack.enter_context(torch.autocast(kind, dtype, cache_enabled=False))
            return fn(*args, **kwargs)

    return call


def _devices() -> list[str]:
    accelerator = torch.accelerator.current_accelerator()
    return ["cpu", accelerator.type] if accelerator is not None else ["cpu"]


def _cast(recorder: TorchRecorder, t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The cast of a tensor; parameters are cast once, as autocast's cache does."""
    shared = t.is_leaf and t.requires_grad and torch.is_autocast_cache_enabled()
    known = recorder.casts.get((id(t), dtype)) if shared else None
    if known is not None:
        return known
    out = recorder.record(torch.Tensor.to, (t, dtype), {})
    if shared:
        recorder.casts[id(t), dtype] = out
    return out


@contextlib.contextmanager
def _no_cast_cache() -> Iterator[None]:
    enabled = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(enabled)


def _same_types(a: Any, b: Any) -> bool:
    return [tensor_type(t) for t in tensor_leaves(a)] == [tensor_type(t) for t in tensor_leaves(b)]
