"""The pipeline, on one screen: from a program and example inputs to a compiled program."""

from __future__ import annotations

import contextlib
import functools
import gc
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from thunder.capture.log import Capture
from thunder.capture.record import record
from thunder.grad.differentiate import Tape, differentiate
from thunder.grad.rules import Rules
from thunder.ir.symbol import Phase
from thunder.ir.trace import Names, Trace
from thunder.ir.types import Var
from thunder.ir.verify import verify
from thunder.lang.numbers import one_fake_mode
from thunder.passes.dce import dce
from thunder.passes.functionalize import functionalize
from thunder.passes.fusers import active_fusers
from thunder.passes.lower import Lowering
from thunder.passes.measure import Measurer
from thunder.passes.progress import Report, unreported
from thunder.passes.select import Selector
from thunder.passes.storages import writes_of
from thunder.plugins.spec import Executor, Transform, resolve
from thunder.runtime.backward import BackwardBuilder
from thunder.runtime.fusing import Regions
from thunder.runtime.measured import MeasuringSelector
from thunder.runtime.program import CompilationRecord, DifferentiableProgram, PlainProgram, Program
from thunder.runtime.stages import Backend, leaving
from thunder.runtime.states import States


@dataclass(frozen=True)
class Input:
    """One tensor that the program reads."""

    name: str
    value: torch.Tensor


@dataclass(frozen=True)
class Settings:
    """What a compilation depends on besides the program.

    options: of each executor, by its name. transforms: passes over the functional trace. states: what executors keep
    between runs and compilations. progress: told while regions are compiled and candidates measured.
    """

    executors: tuple[Executor, ...]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))
    transforms: tuple[Transform, ...] = ()
    verify: bool = False
    progress: Report = field(default=unreported, compare=False)
    states: States = field(default_factory=States, compare=False)


def compile_program(
    fn: Callable[..., list[Any]],
    inputs: tuple[Input, ...],
    settings: Settings,
    name: str = "computation",
    numbers: Sequence[Var] = (),
) -> Program:
    """Compile ``fn``, which takes the tensors of ``inputs`` and returns a flat list, under the ambient grad mode.

    numbers: what the program takes besides, where it is to serve many sizes (see ``lang.numbers``).

    Raises CaptureError for what cannot be recorded soundly. Nothing is computed.
    """
    with _callers_hooks_hidden(), _collector_paused(), one_fake_mode():
        try:
            return _compiled(fn, inputs, settings, name, numbers)
        finally:
            settings.progress(None)


def _compiled(
    fn: Callable[..., list[Any]], inputs: tuple[Input, ...], settings: Settings, name: str, numbers: Sequence[Var]
) -> Program:
    watch = Stopwatch(CompilationRecord(name), settings.verify)
    named = [(i.name, i.value) for i in inputs]
    capture = watch.run("capture", lambda: record(fn, named, name, numbers=numbers))
    watch.note(capture.trace)
    functional = watch.forward("functionalize", lambda: dce(functionalize(capture)))
    for transform in settings.transforms:
        functional = watch.forward(transform.name, functools.partial(resolve(transform.apply), functional))
    rules = Rules({kind.name: kind for executor in settings.executors for kind in executor.states})
    measurer = _measurer(settings, watch.record)
    selector = _selector(settings, rules, measurer)
    parameters = _parameters(functional, inputs)
    selected = watch.forward("select", lambda: selector.select(functional, parameters))
    tape = watch.run("differentiate", lambda: differentiate(selected, leaving(selected), rules))
    regions = _regions(settings, tape.names, watch.record, measurer)
    backend = Backend(Lowering(selector.choose, rules), settings.executors, tape.names, settings.states, regions)
    if not tape.roots and not (tape.inputs and torch.is_grad_enabled()):
        return _plain(selected, capture, backend, watch)
    return _differentiable(selected, tape, capture, parameters, backend, watch)


def _measurer(settings: Settings, record: CompilationRecord) -> Measurer | None:
    """Who decides by measuring, if the user asks for that."""
    if settings.options.get("core", {}).get("select") != "measure":
        return None
    measurer = Measurer(settings.executors, settings.options, report=settings.progress)
    record.decisions = measurer.decisions
    return measurer


def _selector(settings: Settings, rules: Rules, measurer: Measurer | None) -> Selector:
    if measurer is None:
        return Selector(settings.executors, settings.options, rules)
    return MeasuringSelector(settings.executors, settings.options, rules, measurer)


def _regions(settings: Settings, names: Names, record: CompilationRecord, measurer: Measurer | None) -> Regions:
    fusers = active_fusers(settings.executors, settings.options, torch.is_grad_enabled())
    regions = Regions(fusers, names, settings.progress, measurer=measurer)
    record.regions = regions.uses
    return regions


@contextlib.contextmanager
def _callers_hooks_hidden() -> Iterator[None]:
    """Hooks on saved tensors that are active around the call are for its values, not for the fakes of a compilation."""
    hooks = []
    while (top := torch._C._autograd._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(top)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Compiling makes many small objects that live on: to collect cycles meanwhile takes as long again for nothing."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Stopwatch:
    """Runs passes: times them, keeps their traces and verifies them where asked to."""

    def __init__(self, record: CompilationRecord, verifying: bool) -> None:
        self.record = record
        self._verifying = verifying

    def run(self, name: str, fn: Callable[[], Any]) -> Any:
        """The result of a pass; its seconds are added to those of its name."""
        start = time.perf_counter()
        result = fn()
        self.record.times[name] = self.record.times.get(name, 0.0) + time.perf_counter() - start
        return result

    def forward(self, name: str, fn: Callable[[], Trace]) -> Trace:
        """The trace a pass of the forward program makes."""
        return self.note(self.run(name, fn))

    def note(self, trace: Trace, traces: list[Trace] | None = None) -> Trace:
        """Keep a trace, among those of the forward program unless told otherwise."""
        if self._verifying:
            verify(trace)
        (self.record.traces if traces is None else traces).append(trace)
        return trace

    def lowered(self, trace: Trace, backend: Backend, traces: list[Trace]) -> Trace:
        """The trace, lowered and fused; both are kept among ``traces``."""
        lowered = self.note(self.run("lower", lambda: backend.lower(trace)), traces)
        if not backend.regions.wanted:
            return lowered
        return self.note(self.run("fuse", lambda: backend.regions.fuse(lowered)), traces)

    def settled(self, trace: Trace, backend: Backend, traces: list[Trace], given: Collection[Var] = ()) -> Trace:
        """The scheduled trace as it runs; it is kept among ``traces``.

        given: parameters whose memory it may overwrite.
        """
        if backend.regions.wanted:
            trace = self.run("reuse", lambda: backend.regions.settled(trace, given))
        return self.note(trace, traces)

    def compile(self, regions: Regions) -> None:
        """Have regions compiled."""
        if regions.wanted:
            self.run("compile", regions.compile)


def _parameters(trace: Trace, inputs: tuple[Input, ...]) -> list[Var]:
    """The variables that are parameters of a module: call sites are named after them."""
    return [var for var, given in zip(trace.params, inputs) if isinstance(given.value, torch.nn.Parameter)]


def _plain(selected: Trace, capture: Capture, backend: Backend, watch: Stopwatch) -> Program:
    lowered = watch.lowered(selected, backend, watch.record.traces)
    scheduled = watch.run("schedule", lambda: backend.schedule({Phase.FORWARD: lowered}, Phase.FORWARD))
    scheduled = watch.settled(scheduled, backend, watch.record.traces)
    watch.compile(backend.regions)
    run = watch.run("codegen", lambda: _without_autocast(backend.function(scheduled)))
    bound = backend.handles(scheduled, len(selected.params))
    return PlainProgram(run, bound, tuple(capture.constants.values()), _written(selected), watch.record)


def _differentiable(
    selected: Trace, tape: Tape, capture: Capture, parameters: Sequence[Var], backend: Backend, watch: Stopwatch
) -> Program:
    storages = {var: place.storage for var, place in capture.places.items()}
    overwritten = {storages[v] for op in selected.ops for v in writes_of(op)}
    builder = watch.run(
        "differentiate",
        lambda: BackwardBuilder(tape, selected, storages, overwritten, parameters, backend, watch),
    )
    watch.compile(backend.regions)
    forward = watch.run("codegen", lambda: _without_autocast(backend.function(builder.forward)))
    epilogue = watch.run("codegen", lambda: backend.function(builder.epilogue()))
    return DifferentiableProgram(
        forward,
        backend.handles(builder.forward, len(selected.params)),
        tuple(capture.constants.values()),
        builder.pieces(),
        epilogue,
        builder.random,
        _written(selected),
        watch.record,
    )


def _written(selected: Trace) -> tuple[int, ...]:
    """The positions of the parameters that the program writes."""
    written = {v for op in selected.ops for v in writes_of(op)}
    return tuple(place for place, v in enumerate(selected.params) if v in written)


def _without_autocast(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, run with autocast off if it is on now: its casts are in the trace."""
    if not torch._C._is_any_autocast_enabled():
        return fn

    def run(*args: Any) -> Any:
        with torch._C._DisableAutocast():
            return fn(*args)

    return run
