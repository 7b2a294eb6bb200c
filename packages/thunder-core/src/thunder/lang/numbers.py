"""Numbers known only at run time: symbols of PyTorch while a program is compiled, expressions in its trace.

What is computed from sizes stays symbolic. What must know more (a comparison, a size as a plain ``int``) is answered
for the sizes at hand, and the answer becomes a condition under which the program is valid.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import sympy  # type: ignore[import-untyped]  # it has no types
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.printers import PythonPrinter

from thunder.ir.types import Number, NumberType, Var

_NAME = re.compile(r"(?<![.\w])[^\W\d]\w*(?![\w(])")
"""A name in the text of a number, but for those of functions."""
_ACTIVE: ContextVar[Numbers | None] = ContextVar("thunder_numbers", default=None)
_MODE: ContextVar[FakeTensorMode | None] = ContextVar("thunder_fake_mode", default=None)


class Numbers:
    """The numbers of one program that are known only when it runs.

    params: their variables. given: the symbolic integer of each, by name. mode: of fake tensors with such sizes.
    """

    def __init__(self) -> None:
        self.params: list[Var] = []
        self.given: dict[str, torch.SymInt] = {}
        self._env = ShapeEnv(duck_shape=False, allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)
        self.mode = FakeTensorMode(shape_env=self._env)
        self._printer = _Printer()
        self._examples: dict[sympy.Symbol, int] = {}

    def param(self, name: str, value: int) -> Any:
        """A symbolic integer for a new parameter of the program, which is ``value`` now and is always at least 2.

        Sizes of 0 and 1 are empty and broadcast: to keep them apart costs less than to ask everywhere.
        """
        symbol = self._env.create_symbol(value, ConstantSource(name), DimDynamic.DYNAMIC)
        self._printer.names[symbol], self._examples[symbol] = name, value
        self.params.append(Var(name, NumberType("int", value)))
        self.given[name] = self.of(symbol)
        return self.given[name]

    def of(self, expression: sympy.Expr) -> Any:
        """The symbolic integer of an expression over the symbols of parameters."""
        return self._env.create_symintnode(expression, hint=int(expression.xreplace(self._examples)))

    def spelt(self, expression: sympy.Expr) -> str:
        """The expression in Python, over the names of the parameters."""
        return str(self._printer.doprint(expression))

    def condition(self) -> Callable[..., bool]:
        """Whether the program is valid for values of the parameters, by what has been asked about them so far."""
        return self._function(" and ".join(self.tests()) or "True")

    def tests(self) -> list[str]:
        """What must hold for values of the parameters, as Python expressions."""
        least = [f"({param.name} > 1)" for param in self.params]
        return [*dict.fromkeys([*least, *(f"({self.spelt(guard.expr)})" for guard in self._env.guards)])]

    @property
    def asked(self) -> bool:
        """True if anything has been asked about them that does not hold for all numbers from 2 on."""
        return bool(self._env.guards)

    def broken(self, values: Iterable[int]) -> str | None:
        """The first test that does not hold for values of the parameters."""
        values = tuple(values)
        return next((test for test in self.tests() if not self._function(test)(*values)), None)

    def _function(self, expression: str) -> Callable[..., bool]:
        names = ", ".join(param.name for param in self.params)
        return eval(f"lambda {names}: {expression}", {"math": math, "torch": torch})

    def owns(self, number: Any) -> bool:
        """True if it is a symbolic number of this program."""
        return getattr(number.node, "shape_env", None) is self._env


class _Printer(PythonPrinter):
    def __init__(self) -> None:
        super().__init__()
        self.names: dict[sympy.Symbol, str] = {}

    def _print_Symbol(self, symbol: sympy.Symbol) -> str:
        return self.names[symbol]


@contextlib.contextmanager
def compiling(numbers: Numbers | None) -> Iterator[None]:
    """The code inside compiles the program of these numbers; of none for None."""
    token = _ACTIVE.set(numbers)
    try:
        yield
    finally:
        _ACTIVE.reset(token)


def compiled() -> Numbers | None:
    """The numbers of the program that is being compiled, if it has any."""
    return _ACTIVE.get()


@contextlib.contextmanager
def one_fake_mode() -> Iterator[None]:
    """The fake tensors of a compilation have one mode: making a mode takes longer than running an operator."""
    token = _MODE.set(FakeTensorMode())
    try:
        yield
    finally:
        _MODE.reset(token)


def fake_mode() -> FakeTensorMode:
    """The mode for fake tensors of the program that is being compiled."""
    numbers = _ACTIVE.get()
    return numbers.mode if numbers is not None else _MODE.get() or FakeTensorMode()


def symbolic_kernels() -> contextlib.AbstractContextManager[None]:
    """Operators called inside run PyTorch's kernels for symbolic sizes, where those of C++ take plain ones.

    For calls below autograd: above it, what such a kernel does is not all that the operator does.
    """
    return enable_python_dispatcher() if _ACTIVE.get() is not None else contextlib.nullcontext()


def number(value: Any) -> Any:
    """The IR form of an integer, float or boolean of PyTorch, which may be symbolic."""
    if isinstance(value, torch.SymBool):
        return bool(value)
    if not isinstance(value, (torch.SymInt, torch.SymFloat)):
        return value
    numbers = _ACTIVE.get()
    plain = int if isinstance(value, torch.SymInt) else float
    if numbers is None or not numbers.owns(value) or value.node.expr.is_number:
        return plain(value)
    return Number(numbers.spelt(value.node.expr), value)


def evaluated(number: Number, given: Mapping[str, Any]) -> Any:
    """What a number is for values of the parameters that it is computed from, which may be symbolic."""
    return eval(number.text, {"math": math, "torch": torch}, given)


def renamed(number: Number, name: Callable[[str], str]) -> Number:
    """The number with other names in its text. name: the new one of each; modules have names, too."""
    return Number(_NAME.sub(lambda found: name(found.group()), number.text), number.value)


def example(value: Number) -> int | float:
    """What a number is in the call that the program was compiled for. Nothing comes to depend on it."""
    found = value.value.node.hint
    assert isinstance(found, (int, float))
    return found
