"""A graph that Dynamo captured, as a compiled callable.

Dynamo hands over a graph before all that a compilation depends on is known: an executor may depend on ambient settings.
So a graph is compiled when it runs, once for each key. With symbolic sizes, it is compiled for many sizes, and what a
program asked about them becomes the condition under which it runs; Dynamo's own guards are left alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from thunder.errors import CaptureError
from thunder.frontends.fx_source import LocatingInterpreter, input_names, restore_checkpoints, take_numbers
from thunder.frontends.guards import alias_pattern
from thunder.frontends.notes import by_size, eager, graph_break, recompile, specialised
from thunder.frontends.specialise import Run, Specialisations
from thunder.frontends.symbolic import Admits, Inputs, Sizes, Symbolic
from thunder.ir.symbol import Source
from thunder.ir.types import Var
from thunder.lang.numbers import Numbers, compiling
from thunder.observe.history import History, Note
from thunder.observe.logs import log_note, report
from thunder.runtime import driver
from thunder.runtime.driver import Input, Settings
from thunder.runtime.program import Program

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
        self._sizes = Sizes.of(placeholders)
        fixed = [None if i in self._floats else example for i, example in enumerate(example_inputs)]
        by_sizes: Run = Specialisations(name, key_function(fixed, settings), self._compile)
        key = floats_and_settings(self._floats, settings)
        many = Specialisations(name, key, lambda args: Symbolic(self._symbolic, by_sizes))
        self._run = many if self._sizes is not None else by_sizes
        self._compiled = 0
        self._line: Source | None = None
        self._many: list[Inputs] = []
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
        try:
            program = self._driven(args)
        except Exception as failure:
            if self._strict:
                raise
            return self._eagerly(failure, self._line), False
        self._keep(program, args)
        if all(isinstance(arg, torch.Tensor) for arg in args):
            return program, program.needs_alias_guard
        return lambda args: program(tensors(args)), program.needs_alias_guard

    def _symbolic(self, args: Sequence[Any]) -> tuple[Admits, Run] | None:
        """A program for many sizes and the condition under which it is valid; None if there is none."""
        assert self._sizes is not None
        if self._floats and self._compiled >= VALUES:
            return None
        numbers = Numbers()
        try:
            with compiling(numbers):
                inputs = Inputs(self._sizes, self._names, args, numbers)
                program = self._driven(inputs.values, numbers.params)
            if program.needs_alias_guard and overlaps(args):
                raise CaptureError("inputs that share memory are written", why="their sizes decide what is written")
        except Exception as failure:
            self._note(by_size(failure, self._line))
            return None
        self._keep(program, args)
        self._many.append(inputs)
        holds, apart = inputs.condition(), program.needs_alias_guard
        admits = (lambda args: holds(args) and not overlaps(args)) if apart else holds
        return admits, lambda args: program(tensors(args), inputs.numbers(args))

    def _driven(self, values: Sequence[Any], numbers: Sequence[Var] = ()) -> Program:
        """The graph as a compiled program of those of its inputs that are tensors, and of numbers."""
        inputs = tuple(
            [Input(name, value) for name, value in zip(self._names, values) if isinstance(value, torch.Tensor)]
        )
        rest = [None if isinstance(value, torch.Tensor) else value for value in values]

        def graph(*given: Any) -> list[Any]:
            left = iter(given)
            interpreter = LocatingInterpreter(self._gm)
            try:
                return list(interpreter.run(*[next(left) if value is None else value for value in rest]))
            finally:
                self._line = interpreter.line

        return driver.compile_program(graph, inputs, self._settings, self._name, numbers)

    def _keep(self, program: Program, args: Sequence[Any]) -> None:
        """Take note of a program that was compiled for arguments."""
        if self._compiled:
            unlike = [inputs.broken(args) for inputs in self._many]
            self._note(specialised(self._names, args, self._settings, unlike))
        self._compiled += 1
        self._history.records.append(program.record)
        report(program.record)

    def _eagerly(self, failure: Exception, line: Source | None) -> Run:
        self._note(eager(failure, line))
        restore_checkpoints(self._gm)
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


def floats_and_settings(floats: Sequence[int], settings: Settings) -> Callable[[Sequence[Any]], Hashable]:
    """What picks the programs for many sizes: what ``key_function`` looks at besides sizes."""
    settings_key = key_function((), settings)
    if not floats:
        return settings_key
    return lambda args: (settings_key(args), *[repr(args[i]) for i in floats])


def tensors(args: Sequence[Any]) -> list[torch.Tensor]:
    """The inputs that are tensors."""
    return [arg for arg in args if isinstance(arg, torch.Tensor)]


def _size(arg: Any) -> Hashable:
    if isinstance(arg, torch.Tensor):
        return arg.shape, arg.stride()
    return repr(arg) if isinstance(arg, float) else arg  # 0.0 and -0.0 are equal, and nan is not


def _too_many(floats: Sequence[str]) -> CaptureError:
    why = f"it would be compiled again for each value: now {', '.join(floats)}"
    return CaptureError(f"a float has had more than {VALUES} values", why=why, fix="pass it as a tensor")


def overlaps(args: Sequence[Any]) -> Hashable:
    """Which of the tensors share storage."""
    return alias_pattern(tensors(args))
