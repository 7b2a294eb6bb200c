"""Recording: run a program once on fake tensors and write down the public torch calls it makes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.utils.checkpoint
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from thunder.capture import leaks
from thunder.capture.aten import Observer
from thunder.capture.autocast import under_ambient
from thunder.capture.log import Capture, Log
from thunder.capture.randomness import TorchGenerator
from thunder.capture.source import locate
from thunder.capture.standins import Standins
from thunder.capture.torch_calls import OTHER_FRONT_END, TorchRecorder
from thunder.errors import CaptureError
from thunder.ir.effects import StateKind
from thunder.ir.types import TensorType, Var
from thunder.lang.numbers import fake_mode
from thunder.lang.values import empty
from thunder.plugins.symbols import RECORDER

_ACTIVE: ContextVar[TorchRecorder | None] = ContextVar("thunder_recorder", default=None)
_PATCHING = threading.RLock()


def recording() -> bool:
    """True while this thread records a program."""
    return _ACTIVE.get() is not None


def record(
    fn: Callable[..., Sequence[Any]],
    inputs: Sequence[tuple[str, torch.Tensor | TensorType]],
    name: str = "computation",
    states: Mapping[str, StateKind] = MappingProxyType({}),
    numbers: Sequence[Var] = (),
) -> Capture:
    """Run ``fn`` on fakes of the inputs and return what it did; the result is the list of leaves ``fn`` returned.

    inputs: name and example (or type) of each tensor that ``fn`` takes. ``fn`` is given the examples themselves, and
    each call that it makes sees fakes of them. states: what executors' symbols may touch.
    numbers: parameters that the trace has besides: fakes and arguments of calls are computed from them.

    Autograd stays on, under the ambient grad mode, so the type of every value knows whether it requires grad.
    Raises CaptureError, with the user's line, for what cannot be recorded soundly; the user's own exceptions pass.
    """
    capture, made = _recorded(fn, inputs, name, states, numbers)
    callers = {id(example) for _, example in inputs}  # fakes, where sizes are symbolic
    leaks.check([(ref, source) for ref, source in made if id(ref()) not in callers])
    return capture


def _recorded(
    fn: Callable[..., Sequence[Any]],
    inputs: Sequence[tuple[str, torch.Tensor | TensorType]],
    name: str,
    states: Mapping[str, StateKind],
    numbers: Sequence[Var],
) -> tuple[Capture, list[leaks.Made]]:
    """The capture, and all tensors that were made for it."""
    mode = fake_mode()
    log = Log(name, numbers)
    standins = Standins(mode, log)
    generator = TorchGenerator(recording)
    observer = Observer(log, standins, generator)
    recorder = TorchRecorder(log, observer, standins, states)
    given = []
    for stem, example in inputs:
        fake = _fake(mode, stem, example)
        log.param(fake, stem)
        given.append(fake if isinstance(example, (TensorType, FakeTensor)) else standins.put(example, fake))
    token = _ACTIVE.set(recorder)
    symbols = RECORDER.set(recorder)
    try:
        with _transforms_closed(), _functions_recorded(), generator.watched(), mode, observer, recorder:
            result = list(fn(*given))
        generator.check()
        with mode:
            return log.capture(standins.fake(result)), log.made()
    except BaseException:
        leaks.end(log.tensors)
        raise
    finally:
        RECORDER.reset(symbols)
        _ACTIVE.reset(token)
        locate(None)


def _fake(fake_mode: FakeTensorMode, name: str, t: torch.Tensor | TensorType) -> torch.Tensor:
    if isinstance(t, TensorType):
        with fake_mode:
            return empty(t).requires_grad_(t.requires_grad)
    if isinstance(t, FakeTensor):
        return t
    if is_traceable_wrapper_subclass(t):
        raise CaptureError(
            f"argument {name} is a {type(t).__name__}, which wraps other tensors",
            where=name,
            why="operations on its parts are not public torch calls",
            fix=f"pass plain tensors, or use {OTHER_FRONT_END}",
        )
    return fake_mode.from_tensor(t, static_shapes=True)


@contextlib.contextmanager
def _transforms_closed() -> Iterator[None]:
    """End the function transforms (``grad``, ``jvp``) that a graph leaves open when it fails: it has no ``finally``."""
    depth, outside = torch._C._functorch.get_dynamic_layer_stack_depth(), forward_ad._current_level < 0
    try:
        yield
    except BaseException:
        with contextlib.suppress(RuntimeError):  # torch 2.10 has a failing assertion after the last one
            torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        with contextlib.suppress(RuntimeError):  # no level is open
            if outside:
                torch._C._exit_dual_level(level=0)
        raise


@contextlib.contextmanager
def _functions_recorded() -> Iterator[None]:
    """User-defined ``torch.autograd.Function``s are recorded whole: calling one is no torch function by itself."""
    original = torch.autograd.Function.__dict__["apply"]

    def apply(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
        recorder = _ACTIVE.get()
        transformed = torch._C._functorch.maybe_current_level() is not None
        if recorder is None or transformed or not torch._C._is_torch_function_mode_enabled():
            return original.__get__(None, cls)(*args, **kwargs)
        return _record_function(recorder, original.__get__(None, cls), cls, args, kwargs)

    with _PATCHING, mock.patch.object(torch.autograd.Function, "apply", classmethod(apply)):
        yield


def _record_function(
    recorder: TorchRecorder, apply: Any, cls: type[torch.autograd.Function], args: Any, kwargs: Any
) -> Any:
    if cls is torch.utils.checkpoint.CheckpointFunction:
        body, _, *rest = args
        with recorder.checkpointed():
            return body(*rest)

    if cls.__module__ == torch.utils.checkpoint.__name__:  # it keeps the inputs for itself: is there history to keep?
        return SimpleNamespace(grad_fn=torch.is_grad_enabled() or None)

    def call(*values: Any, **keywords: Any) -> Any:
        return apply(*values, **keywords)

    call = under_ambient(call)
    call.__qualname__ = cls.__qualname__
    args, kwargs = recorder.standins.fake((args, kwargs))
    with torch._C.DisableTorchFunction():
        return recorder.standins.real(recorder.record(call, args, kwargs))
