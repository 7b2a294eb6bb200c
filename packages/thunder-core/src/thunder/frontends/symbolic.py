"""Graphs whose inputs have symbolic sizes: programs for many sizes, and the inputs that they are compiled with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy  # type: ignore[import-untyped]  # it has no types
import torch
from torch import fx

from thunder.errors import CaptureError
from thunder.frontends.specialise import Run
from thunder.ir import tree
from thunder.lang.numbers import Numbers

Admits = Callable[[Sequence[Any]], bool]
PROGRAMS = 8
"""How many programs for many sizes one graph has; sizes that fit none of them get programs of their own."""


class Symbolic:
    """Runs the first program that admits the inputs; compiles another where none does. Thread-safe.

    build: a program for inputs like these, and whether it admits others; None if there is none but for the very sizes.
    by_size: runs a program for the very sizes.
    """

    def __init__(self, build: Callable[[Sequence[Any]], tuple[Admits, Run] | None], by_size: Run) -> None:
        self._build = build
        self._by_size = by_size
        self._programs: list[tuple[Admits, Run]] = []
        self._growing = True
        self._lock = threading.RLock()

    def __call__(self, args: Sequence[Any]) -> Sequence[Any]:
        for admits, run in self._programs:
            if admits(args):
                return run(args)
        return self._find(args)(args)

    def _find(self, args: Sequence[Any]) -> Run:
        with self._lock:
            known = next((run for admits, run in self._programs if admits(args)), None)
            if known is not None or not self._growing:
                return known or self._by_size
            built = self._build(args)
            if built is not None:
                self._programs.append(built)
            self._growing = built is not None and len(self._programs) < PROGRAMS
            return built[1] if built is not None else self._by_size


@dataclass(frozen=True)
class Geometry:
    """Sizes, strides and offset of an input as Dynamo knows them: integers, and expressions over its symbols."""

    shape: tuple[Any, ...]
    stride: tuple[Any, ...]
    offset: Any

    @classmethod
    def of(cls, t: torch.Tensor) -> Geometry:
        return cls(*tree.map_tree(_expression, (t.shape, t.stride(), t.storage_offset())))

    def map(self, fn: Callable[[Any], Any]) -> Geometry:
        return Geometry(*tree.map_tree(fn, (self.shape, self.stride, self.offset)))

    @property
    def symbols(self) -> set[Any]:
        """What the sizes depend on."""
        sizes = tree.leaves((self.shape, self.stride, self.offset))
        return {symbol for size in sizes if isinstance(size, sympy.Expr) for symbol in size.free_symbols}


@dataclass(frozen=True)
class Sizes:
    """What Dynamo knows about the inputs of a graph: which of them are symbols, and how others depend on them.

    symbols: by position of the input that has its value. numbers: expressions, by position, of the other numbers.
    tensors: by position, those with a symbolic size.
    """

    symbols: dict[int, Any]
    numbers: dict[int, Any]
    tensors: dict[int, Geometry]

    @classmethod
    def of(cls, placeholders: Sequence[fx.Node]) -> Sizes | None:
        """None if no size is symbolic, or if some depends on what is no input."""
        examples = [node.meta.get("example_value") for node in placeholders]
        if not all(isinstance(e, torch.Tensor) or isinstance(_expression(e), sympy.Expr) for e in examples):
            return None
        numbers = {i: _expression(e) for i, e in enumerate(examples) if not isinstance(e, torch.Tensor)}
        symbols = {i: numbers.pop(i) for i, e in [*numbers.items()] if isinstance(e, sympy.Symbol)}
        strided = {i: e for i, e in enumerate(examples) if isinstance(e, torch.Tensor) and e.layout is torch.strided}
        tensors = {i: g for i, g in ((i, Geometry.of(e)) for i, e in strided.items()) if g.symbols}
        used = set().union(*(g.symbols for g in tensors.values()), *(e.free_symbols for e in numbers.values()))
        return cls(symbols, numbers, tensors) if symbols and used <= set(symbols.values()) else None


class Inputs:
    """The inputs of a graph as it is compiled for many sizes: ``values`` are symbolic integers, fakes, and the rest.

    Sizes of 0 and 1, which are empty and broadcast, stay what they are. Raises CaptureError if inputs are not as Dynamo
    knows them, or of a kind for which symbolic sizes are not known to be sound.
    """

    def __init__(self, sizes: Sizes, names: Sequence[str], args: Sequence[Any], numbers: Numbers) -> None:
        self._numbers = numbers
        self._small = {i: args[i] for i in sizes.symbols if args[i] < 2}
        self._places = [i for i in sizes.symbols if i not in self._small]
        known = self._small | {i: numbers.param(names[i], args[i]) for i in self._places}
        self._known = {symbol: sympy.sympify(known[i]) for i, symbol in sizes.symbols.items()}
        self._now = {symbol: args[i] for i, symbol in sizes.symbols.items()}
        self.values = [known.get(i, arg) for i, arg in enumerate(args)]
        for i, expression in sizes.numbers.items():
            self.values[i] = self._size(expression)
            if int(expression.xreplace(self._now)) != args[i]:
                raise CaptureError(f"{names[i]} is not what Dynamo guards", why=f"it is {args[i]}, not {expression}")
        for i, geometry in sizes.tensors.items():
            self.values[i] = self._fake(names[i], args[i], geometry)

    def numbers(self, args: Sequence[Any]) -> list[int]:
        """The values of the program's numbers among other inputs of the graph."""
        return [args[i] for i in self._places]

    def condition(self) -> Admits:
        """Whether the program is valid for other inputs of the graph, by what has been asked about sizes so far."""
        holds, places, values = self._numbers.condition(), [*self._small], [*self._small.values()]
        return lambda args: holds(*self.numbers(args)) and [args[i] for i in places] == values

    def broken(self, args: Sequence[Any]) -> str | None:
        """Which test of sizes does not hold for other inputs of the graph."""
        return self._numbers.broken(self.numbers(args))

    def _size(self, size: Any) -> Any:
        """A size as the program computes it."""
        return self._numbers.of(size.xreplace(self._known)) if isinstance(size, sympy.Expr) else size

    def _fake(self, name: str, t: torch.Tensor, known: Geometry) -> torch.Tensor:
        if type(t) is not torch.Tensor or t.is_conj() or t.is_neg():
            raise CaptureError(f"{name} is not a plain tensor", why="only such are compiled for many sizes")
        now = known.map(lambda size: int(size.xreplace(self._now)) if isinstance(size, sympy.Expr) else size)
        if now != Geometry.of(t):
            raise CaptureError(f"the sizes of {name} are not those that Dynamo guards", why=f"{Geometry.of(t)}, {now}")
        sizes = known.map(self._size)
        like: dict[str, Any] = {"dtype": t.dtype, "device": t.device}
        with self._numbers.mode, torch.inference_mode() if t.is_inference() else torch.enable_grad():
            fake = torch.empty_strided(sizes.shape, sizes.stride, **like)
            if known.offset != 0:
                fake = torch.empty(0, **like).set_(fake.untyped_storage(), sizes.offset, sizes.shape, sizes.stride)
            fake.requires_grad_(t.requires_grad)
            return fake if t.is_leaf else _NOT_A_LEAF(fake)


_NOT_A_LEAF = torch._C._functions.DelayedError("an example was differentiated", 1)


def _expression(size: Any) -> Any:
    return getattr(size.node, "expr", None) if isinstance(size, torch.SymInt) else size
