"""How values and callables are spelt in the text of a program, and the module-level names that this needs."""

from __future__ import annotations

import ast
import builtins
import itertools
import keyword
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from thunder.errors import VerifyError
from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Trace
from thunder.ir.types import Const, Number, Ref, TensorType, Var

_BUILTINS = frozenset(dir(builtins))
NUMBER_MODULES = frozenset({"math", "torch"})
"""The modules that the text of a ``Number`` may use."""


class Spelling:
    """Spells the values and callables of one trace, and collects the module-level lines they rely on.

    regions: of the fused operations of the trace, by the identity of each; their functions stand beside its own.
    No module-level name clashes with a variable of the traces, a builtin, a keyword or an imported module. Each line of
    the program looks up one global for its callable; a constant that takes a call to make is made once.
    """

    def __init__(self, trace: Trace, regions: Mapping[int, Trace] = MappingProxyType({})) -> None:
        traces = (trace, *regions.values())
        self._variables = {var.name for each in traces for var in each.variables()}
        self._modules = {module for each in traces for module in _modules(each)}
        roots = {module.partition(".")[0] for module in self._modules}
        self._taken = {*self._variables, *_BUILTINS, *keyword.kwlist, *roots, trace.name, "_", "box"}
        self._aliases: dict[str, str] = {}
        self._callables: dict[tuple[str | None, str], str] = {}
        self._supplied: dict[Ref, str] = {}
        self._regions: dict[int, str] = {}
        for op in trace.ops:
            if op.fused is not None and id(op.fused) not in self._regions:
                self._regions[id(op.fused)] = self._fresh(f"{op.sym.name.replace('.', '_')}_{len(self._regions)}")
        self._spell: dict[type, Callable[[Any], str]] = {
            Var: lambda value: value.name,
            tuple: self._tuple,
            list: lambda value: f"[{', '.join(map(self.value, value))}]",
            dict: self._dict,
            slice: lambda value: f"{self._builtin('slice')}({', '.join(map(self.value, _bounds(value)))})",
            float: self._float,
            complex: lambda value: f"{self._builtin('complex')}({self._float(value.real)}, {self._float(value.imag)})",
            Const: self._const,
            Ref: self._ref,
            Number: self._number,
            type(...): lambda value: "...",
            type(None): repr,
            **{kind: kind.__repr__ for kind in (bool, int, str, bytes)},  # the plain value of an enum, too
        }

    def value(self, value: Any) -> str:
        """An expression for an argument tree. Raises VerifyError for a leaf that no expression spells."""
        spell = self._spell.get(type(value))
        if spell is None:
            spell = next((s for kind, s in self._spell.items() if isinstance(value, kind)), None)
        if spell is None:
            raise VerifyError(
                f"a value of type {type(value).__name__} cannot be written as Python", fix="wrap it in a Ref or a Const"
            )
        return spell(value)

    def arguments(self, op: BoundSymbol) -> str:
        """What stands between the parentheses of a call."""
        args = [self.value(arg) for arg in op.args]
        if all(key.isidentifier() and key.isascii() and not keyword.iskeyword(key) for key in op.kwargs):
            args += [f"{key}={self.value(arg)}" for key, arg in op.kwargs.items()]
        else:
            args.append(f"**{self._dict(op.kwargs)}")
        return ", ".join(args)

    def target(self, outs: Any) -> str:
        """An assignment target for results; names are unpacked as the results are nested."""
        text = self._target(outs)
        return text[1:-1] if isinstance(outs, tuple) and len(outs) > 1 else text

    def callable(self, op: BoundSymbol) -> str:
        """The module-level name of what a line calls."""
        if op.fused is not None:
            return self._regions[id(op.fused)]
        key = (op.call, op.sym.name)
        if key not in self._callables:
            expression, names = spelt_call(op)
            self._callables[key] = self._alias(expression, names)
        return self._callables[key]

    def region(self, key: int) -> str:
        """The name of the function of a fused region, given its identity."""
        return self._regions[key]

    def header(self) -> Iterator[str]:
        """Imports, then aliases, then the names of objects that are supplied when the program runs."""
        yield from (f"import {module}" for module in sorted(self._modules))
        if self._aliases or self._supplied:
            yield ""
        yield from (f"{name} = {expression}" for expression, name in self._aliases.items())
        yield from (
            f"{name} = ...  # supplied when run: {type(ref.value).__name__}" for ref, name in self._supplied.items()
        )

    def supplied(self) -> dict[str, Any]:
        """The objects that no text spells, by module-level name."""
        return {name: ref.value for ref, name in self._supplied.items()}

    def _alias(self, expression: str, candidates: tuple[str, ...]) -> str:
        if expression not in self._aliases:
            self._aliases[expression] = self._fresh(*candidates)
        return self._aliases[expression]

    def _fresh(self, *candidates: str) -> str:
        numbered = (f"{candidates[-1]}_{n}" for n in itertools.count(1))
        name = next(name for name in itertools.chain(candidates, numbered) if name not in self._taken)
        self._taken.add(name)
        return name

    def _builtin(self, name: str) -> str:
        return self._alias(name, (name,)) if name in self._variables else name

    def _tuple(self, value: tuple[Any, ...]) -> str:
        return f"({self.value(value[0])},)" if len(value) == 1 else f"({', '.join(map(self.value, value))})"

    def _dict(self, value: dict[Any, Any]) -> str:
        return f"{{{', '.join(f'{self.value(key)}: {self.value(item)}' for key, item in value.items())}}}"

    def _float(self, value: float) -> str:
        return float.__repr__(value) if math.isfinite(value) else f"{self._builtin('float')}('{value}')"

    def _const(self, value: Const) -> str:
        text = value.text
        if "(" not in text and self._variables.isdisjoint(names_in(text)):
            return text
        return self._alias(text, ("_".join(re.findall(r"\w+", text.removeprefix("torch."))) or "constant",))

    def _number(self, number: Number) -> str:
        return re.sub(r"(?<![.\w])[a-z]+(?=\()", lambda call: self._builtin(call.group()), number.text)

    def _ref(self, ref: Ref) -> str:
        if ref not in self._supplied:
            self._supplied[ref] = self._fresh(ref.name)
        return self._supplied[ref]

    def _target(self, outs: Any) -> str:
        if isinstance(outs, Var):
            return outs.name
        if isinstance(outs, (tuple, list)):
            return f"({self._target(outs[0])},)" if len(outs) == 1 else f"({', '.join(map(self._target, outs))})"
        return "_"


def spelt_call(op: BoundSymbol) -> tuple[str, tuple[str, ...]]:
    """The expression for what a line calls, and the names it may get, best first.

    A lowered line calls ``op.call``; otherwise ``torch.…`` is the Python path, and ``namespace.op[.overload]`` is an
    operator of ``torch.ops``.
    """
    if op.call:
        expression = op.call.replace(":", ".")
    elif op.sym.name.startswith(("torch.", "thunder.")):
        expression = op.sym.name
    else:
        expression = f"torch.ops.{op.sym.name}" + (".default" if op.sym.name.count(".") == 1 else "")
    path = [part.strip("_") or part for part in expression.split(".")]
    if expression.startswith("torch.ops.") and len(path) == 5:
        _, _, namespace, name, overload = path
        overloaded = () if overload == "default" else (f"{name}_{overload}",)
        return expression, (name, *overloaded, f"{namespace}_{name}", f"{namespace}_{name}_{overload}")
    return expression, tuple("_".join(path[start:]) for start in reversed(range(len(path))))


def _modules(trace: Trace) -> Iterator[str]:
    """The modules whose names the text of a trace uses."""
    if any(isinstance(param.type, TensorType) for param in trace.params):
        yield "torch"
    for call, name in {(op.call, op.sym.name) for op in trace.ops if op.fused is None}:
        yield call.partition(":")[0] if call else _home(name)
    for leaf in tree.leaves([(op.args, op.kwargs) for op in trace.ops] + [trace.result]):
        if type(leaf) is Const:
            yield from names_in(leaf.text)
        elif type(leaf) is Number:
            yield from names_in(leaf.text) & NUMBER_MODULES


def _home(name: str) -> str:
    """The module that a symbol which nobody lowered is called from."""
    return name.rpartition(".")[0] if name.startswith("thunder.") else "torch"


@lru_cache(maxsize=1024)
def names_in(text: str) -> frozenset[str]:
    """The names an expression starts from, builtins aside."""
    return (
        frozenset(node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)) - _BUILTINS
    )


def _bounds(value: slice) -> tuple[Any, Any, Any]:
    return value.start, value.stop, value.step
