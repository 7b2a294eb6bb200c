"""A graph that Dynamo captured, as a compiled callable.

Dynamo hands over a graph before all that a compilation depends on is known: sizes may be symbolic, and an executor may
depend on ambient settings. So a graph is compiled when it runs, once for each key.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from thunder.errors import CaptureError
from thunder.frontends.fx_source import LocatingInterpreter, input_names, take_numbers
from thunder.frontends.guards import alias_pattern
from thunder.frontends.notes import eager, graph_break, recompile, specialised
from thunder.frontends.specialise import Run, Specialisations
from thunder.ir.symbol import Source
from thunder.observe.history import History, Note
from thunder.observe.logs import log_note, report
from thunder.runtime import driver
from thunder.runtime.driver import Input, Settings

VALUES = 16
"""For how many values of its floats one graph is compiled; with more (an annealed weight) it runs eagerly."""


class Graph:
    """``gm`` compiled: called with its inputs (tensors and numbers), returns its outputs.

    What cannot be compiled runs as ``gm`` itself, with a warning; if ``strict``, and under ``THUNDER_STRICT=1``, it is
    an error. The parameters of ``modules`` are named after their paths.
    """

    def __init__(
        self,
        gm: fx.GraphModule,
        example_inputs: Sequence[Any],
        settings: Settings,
        history: History,
        *,
        name: str = "computation",
        modules: Mapping[str, torch.nn.Module] = MappingProxyType({}),
        strict: bool = False,
    ) -> None:
        placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
        self._gm = gm
        self._settings = settings
        self._history = history
        self._names = input_names(placeholders, example_inputs, modules)
        self._name = name
        self._strict = strict or os.environ.get("THUNDER_STRICT") == "1"
        self._floats = take_numbers(gm)
        examples = [None if i in self._floats else example for i, example in enumerate(example_inputs)]
        self._run: Run = Specialisations(name, key_function(examples, settings), self._compile)
        self._compiled = 0
        for note in (recompile(), graph_break(gm)):
            if note is not None:
                self._note(note)

    def __call__(self, *args: Any) -> Sequence[Any]:
        if not self._floats:
            return self._run(args)
        return self._run([arg.item() if i in self._floats else arg for i, arg in enumerate(args)])

    def _compile(self, args: Sequence[Any]) -> Run:
        """What runs for these arguments. If it writes into some of them, it depends on which share memory."""
        if self._floats and self._compiled >= VALUES and not self._strict:
            self._run = self._eagerly(_too_many([f"{self._names[i]} = {args[i]}" for i in self._floats]), None)
            return self._run
        run, writes_inputs = self._program(args)
        if not writes_inputs:
            return run
        return Specialisations(self._name, overlaps, lambda args: self._program(args)[0], {overlaps(args): run})

    def _program(self, args: Sequence[Any]) -> tuple[Run, bool]:
        """The compiled program (``gm`` if it does not compile), and whether it writes into its inputs."""
        if self._compiled:
            self._note(specialised(self._names, args, self._settings))
        inputs = tuple([Input(name, arg) for name, arg in zip(self._names, args) if isinstance(arg, torch.Tensor)])
        numbers = [None if isinstance(arg, torch.Tensor) else arg for arg in args]
        line: Source | None = None

        def graph(*tensors: Any) -> list[Any]:
            nonlocal line
            rest = iter(tensors)
            interpreter = LocatingInterpreter(self._gm)
            try:
                return list(interpreter.run(*[next(rest) if number is None else number for number in numbers]))
            finally:
                line = interpreter.line

        try:
            program = driver.compile_program(graph, inputs, self._settings, self._name)
        except Exception as failure:
            if self._strict:
                raise
            return self._eagerly(failure, line), False
        self._compiled += 1
        self._history.records.append(program.record)
        report(program.record)
        if len(inputs) == len(args):
            return program, program.needs_alias_guard
        return lambda args: program([arg for arg in args if isinstance(arg, torch.Tensor)]), program.needs_alias_guard

    def _eagerly(self, failure: Exception, line: Source | None) -> Run:
        self._note(eager(failure, line))
        return lambda args: self._gm(*args)

    def _note(self, note: Note) -> None:
        self._history.notes.append(note)
        log_note(note)


def key_function(example_inputs: Sequence[Any], settings: Settings) -> Callable[[Sequence[Any]], Hashable]:
    """What picks a specialisation beyond Dynamo's guards.

    With symbolic sizes: the numbers and the sizes of all tensors. With executors that depend on ambient settings: their
    keys. Always the grad mode, which costs next to nothing.
    """
    grad_mode = torch.is_grad_enabled
    keyed = [
        (executor, settings.options.get(executor.name, {})) for executor in settings.executors if executor.cache_key
    ]
    symbolic = any(not isinstance(value, torch.Tensor) for value in example_inputs)
    if not keyed and not symbolic:
        return lambda args: grad_mode()

    def key(args: Sequence[Any]) -> Hashable:
        sizes = tuple([_size(arg) for arg in args]) if symbolic else ()
        return (grad_mode(), sizes, *[executor.key(options) for executor, options in keyed])

    return key


def _size(arg: Any) -> Hashable:
    if isinstance(arg, torch.Tensor):
        return arg.shape, arg.stride()
    return repr(arg) if isinstance(arg, float) else arg  # 0.0 and -0.0 are equal, and nan is not


def _too_many(floats: Sequence[str]) -> CaptureError:
    why = f"it would be compiled again for each value: now {', '.join(floats)}"
    return CaptureError(f"a float has had more than {VALUES} values", why=why, fix="pass it as a tensor")


def overlaps(args: Sequence[Any]) -> Hashable:
    """Which of the tensors share storage."""
    return alias_pattern([arg for arg in args if isinstance(arg, torch.Tensor)])
