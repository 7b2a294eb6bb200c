"""The functional front end: the program is run once on fake tensors, and runs compiled while its guards hold.

The contract is that of ``jax.jit``: what Python does besides computing tensors happens when the program is captured.
State in modules, closures and globals that the program rebinds is state it leaves behind after every run.
What is guarded is what a call leads to: arguments, modules, objects, closures, globals and context variables.
Files and clocks are read once, when the program is captured.
"""

from __future__ import annotations

import functools
import logging
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import CellType
from typing import Any

import torch
from torch.overrides import _get_current_function_mode

from thunder.capture.randomness import GeneratorMoved, alone
from thunder.capture.record import record, recording
from thunder.errors import CaptureError
from thunder.frontends.binding import bind
from thunder.frontends.cache import Cache, Entry
from thunder.frontends.guards import Guards, alias_pattern, compile_guard
from thunder.frontends.jitted import JittedFunction
from thunder.frontends.places import CELL, identifier
from thunder.frontends.pytree import Branch, Const, Leaf, Tree, snapshot
from thunder.frontends.tracing import Asked, Tracing, Write, classes_kept
from thunder.ir.trace import Trace
from thunder.observe.logs import report
from thunder.passes.dce import dce
from thunder.passes.functionalize import functionalize
from thunder.runtime import driver
from thunder.runtime.driver import Input, Settings
from thunder.runtime.program import CompilationRecord, Program
from thunder.runtime.states import States

LOG = logging.getLogger("thunder.frontends")

_COMPILING = threading.RLock()
"""One capture at a time in the process: what a program leaves in modules is put back while it is recorded."""

ATTEMPTS = 4
"""How often a capture is repeated while other threads draw random numbers."""


class FunctionalFunction(JittedFunction):
    """``fn`` compiled. Thread-safe: programs are looked up without a lock and compiled under one.

    Calls under an active TorchFunctionMode, TorchDispatchMode or functorch transform (``vmap``, ``grad``) run ``fn``
    eagerly, since the mode must see its operations; calls while another program is recorded become part of that.
    """

    def __init__(self, fn: Callable[..., Any], settings: Settings, again: Callable[[Any], Any] | None = None) -> None:
        super().__init__(fn, again or functools.partial(FunctionalFunction, settings=settings))
        self._fn = fn
        self._thunder_states = States()
        self._settings = replace(settings, states=self._thunder_states)
        self._cache = Cache(getattr(fn, "__qualname__", type(fn).__qualname__))
        self._thunder_records: list[CompilationRecord] = []

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        cache = self._cache
        for entry in cache.entries:
            tensors = entry.guard(args, kwargs)
            if tensors is not None:
                cache.hits += 1
                return entry.run(tensors)
        return self._missed(args, kwargs)

    def _missed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if recording():
            return self._fn(*args, **kwargs)
        if _modes_active():
            self._warn_of_function_mode()
            return self._fn(*args, **kwargs)
        with _COMPILING:
            entry, tensors = self._found(args, kwargs) or self._compile(args, kwargs)
        return entry.run(tensors)

    def _warn_of_function_mode(self) -> None:
        """Such a mode may stay on unnoticed (``torch.set_default_device``); the others are transforms of one call."""
        if torch._C._len_torch_function_stack():
            mode = type(_get_current_function_mode()).__name__
            warnings.warn(f"{self._cache.name} runs eagerly while {mode} is active", RuntimeWarning, stacklevel=4)

    def _found(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Entry, Sequence[torch.Tensor]] | None:
        """What another thread compiled while this one waited."""
        for entry in self._cache.entries:
            if (tensors := entry.guard(args, kwargs)) is not None:
                self._cache.hits += 1
                return entry, tensors
        return None

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Entry, Sequence[torch.Tensor]]:
        reason = self._cache.missed(args, kwargs)
        LOG.info("compiling %s: %s", self._cache.name, reason)
        binding, inputs = bind(self._fn, args, kwargs)
        _guard_executors(binding.guards, self._settings)
        tensors = [given.value for given in inputs]
        tracing = Tracing(self._fn, binding)
        with classes_kept(binding):
            program = self._program(tracing, inputs)
        if program.needs_alias_guard:
            binding.guards.aliases = alias_pattern(tensors)
        entry = Entry(compile_guard(binding.guards, tensors), _runner(program, tracing), binding.guards)
        self._cache.add(entry)
        self._thunder_records.append(program.record)
        report(program.record)
        return entry, tensors

    def _program(self, tracing: Tracing, inputs: tuple[Input, ...]) -> Program:
        """The compiled program: of what runs in eager, or else of what the program has for compilers."""
        try:
            return self._recorded(tracing, inputs)
        except GeneratorMoved:
            raise
        except CaptureError as error:
            if not (isinstance(tracing.compiling, Asked) and tracing.compiling.asked):
                raise
            tracing.compiling = True
            try:
                return self._recorded(tracing, inputs)
            except Exception:
                raise error from None

    def _recorded(self, tracing: Tracing, inputs: tuple[Input, ...]) -> Program:
        """The compiled program. Tried again if other threads may have moved the generators that it must not use."""
        moved = []
        for _ in range(1 if alone() else ATTEMPTS):
            try:
                return driver.compile_program(tracing, inputs, self._settings, _trace_name(self._fn))
            except GeneratorMoved as error:
                moved.append(error)
        moved[0].undo()
        raise moved[0]


def capture_trace(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trace:
    """The functional trace of one call of ``fn``. Raises CaptureError as a compilation does."""
    with _COMPILING:
        binding, inputs = bind(fn, args, kwargs)
        named = [(given.name, given.value) for given in inputs]
        return dce(functionalize(record(Tracing(fn, binding), named, _trace_name(fn))))


def _trace_name(fn: Callable[..., Any]) -> str:
    return identifier(getattr(fn, "__name__", "computation"))


def _modes_active() -> bool:
    return bool(
        torch._C._len_torch_function_stack()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def _guard_executors(guards: Guards, settings: Settings) -> None:
    """Guard the ambient settings that executors say their compilations depend on."""
    for executor in settings.executors:
        if executor.cache_key is not None:
            options = settings.options.get(executor.name, {})
            key, now = executor.key(options), guards.bind(functools.partial(executor.key, options), "key")
            place = f"executor {executor.name}: cache key"
            guards.check(f"{now}() == {guards.bind(key)}", place, expected=key, value=f"{now}()")


def _runner(program: Program, tracing: Tracing) -> Callable[[Sequence[Any]], Any]:
    """``tensors -> result``: runs the program, leaves its state, and builds the result, as generated code."""
    names: dict[str, Any] = {"program": program, "snapshot": snapshot}
    lines = ["outs = program(tensors)"]
    lines += [_assignment(write, names) for write in tracing.writes]
    lines.append(f"return {_spell(tracing.output, names)}")
    text = "def run(tensors):\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(text, "<thunder run>", "exec"), names)
    return names["run"]


def _assignment(write: Write, names: dict[str, Any]) -> str:
    holder = _name(write.holder, names)
    target = f"{holder}.{CELL}" if isinstance(write.holder, CellType) else f"{holder}[{write.key!r}]"
    return f"{target} = {_spell(write.tree, names)}"


def _spell(tree: Tree, names: dict[str, Any]) -> str:
    """An expression over ``outs`` that builds ``tree``. Each run makes its own containers."""
    if isinstance(tree, Leaf):
        return f"outs[{tree.index}]"
    if isinstance(tree, Const):
        held = _name(tree.value, names)
        return f"snapshot({held})" if isinstance(tree.value, (list, tuple, dict, set)) else held
    return _spell_branch(tree, names)


def _spell_branch(tree: Branch, names: dict[str, Any]) -> str:
    parts = "".join(f"{_spell(child, names)}, " for child in tree.children)
    if tree.node.build is tuple:
        return f"({parts})"
    return f"[{parts}]" if tree.node.build is list else f"{_name(tree.node.build, names)}([{parts}])"


def _name(value: Any, names: dict[str, Any]) -> str:
    name = f"c{len(names)}"
    names[name] = value
    return name
