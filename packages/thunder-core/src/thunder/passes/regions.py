"""Regions: several operations as one program with canonical names, so that equal ones are equal wherever they stand."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol, Phase
from thunder.ir.trace import Stage, Trace
from thunder.ir.types import Number, NumberType, TensorType, Type, Var
from thunder.lang.numbers import Numbers, compiled, evaluated, example, renamed
from thunder.lang.values import with_numbers


def region_of(
    members: Iterable[BoundSymbol], views: Mapping[Var, BoundSymbol], results: Iterable[Var]
) -> tuple[Trace, tuple[Var | Number, ...]]:
    """The region of some lowered operations, and what it reads: the variable or number for each of its parameters.

    Its parameters are ``p0, p1, …``, then the numbers ``n0, n1, …``, and its values ``v0, v1, …``, in the order of the
    operations, which is kept; its result is a tuple. views: operations that make a variable by viewing another; the
    region takes its own views.
    """
    builder = _Builder(views)
    for op in members:
        builder.add(op)
    result = tuple(builder.names[v] for v in results)
    numbers = dict(builder.numbers.values())
    params = (*builder.params.values(), *numbers)
    trace = Trace("region", params, tuple(builder.ops), result, Stage.LOWERED, made_by="fuse")
    return trace, (*builder.params, *numbers.values())


def region_key(region: Trace) -> Hashable:
    """Equal for equal regions only: constants of different types are different, examples of numbers are not."""
    ops = tuple((op.sym.name, tree.freeze((op.args, op.kwargs, op.outs)), op.effects) for op in region.ops)
    params = tuple((p.name, p.type.name if isinstance(p.type, NumberType) else p.type) for p in region.params)
    return (params, ops, tree.freeze(region.result), region.spent)


def is_symbolic(region: Trace) -> bool:
    """True if it takes numbers that its sizes are computed from."""
    return any(isinstance(p.type, NumberType) for p in region.params)


def detached(region: Trace) -> tuple[Trace, Numbers | None]:
    """The region with symbolic numbers of its own: what is asked about them is no condition of its program.

    The identical region and None, if it takes no number.
    """
    examples = {p.name: p.type.example for p in region.params if isinstance(p.type, NumberType)}
    if not examples:
        return region, None
    numbers = Numbers()
    for name, value in examples.items():
        numbers.param(name, value)

    def own(leaf: Any) -> Any:
        if isinstance(leaf, Number):
            return Number(leaf.text, evaluated(leaf, numbers.given))
        if isinstance(leaf, Var) and isinstance(leaf.type, TensorType):
            return Var(leaf.name, with_numbers(leaf.type, own))
        return leaf

    ops = [
        replace(op, **{part: tree.map_tree(own, getattr(op, part)) for part in ("args", "kwargs", "outs")})
        for op in region.ops
    ]
    params, result = (tree.map_tree(own, part) for part in (region.params, region.result))
    return replace(region, params=params, ops=tuple(ops), result=result), numbers


def has_elements(region: Trace) -> bool:
    """True if no tensor is empty. Where sizes are known only at run time, the answer becomes a condition."""
    shapes = [v.type.shape for v in region.variables() if isinstance(v.type, TensorType)]
    sizes = {size: size.value for size in tree.leaves(shapes) if isinstance(size, Number)}
    return all(size > 0 for size in sizes.values())


def with_examples(region: Trace, numbers: Iterable[int]) -> Trace:
    """The region with other examples for the numbers that it takes."""
    values = iter(numbers)

    def param(var: Var) -> Var:
        return replace(var, type=replace(var.type, example=next(values))) if isinstance(var.type, NumberType) else var

    return replace(region, params=tuple(map(param, region.params)))


class _Builder:
    def __init__(self, views: Mapping[Var, BoundSymbol]) -> None:
        self.params: dict[Var, Var] = {}
        self.ops: list[BoundSymbol] = []
        self.names: dict[Var, Var] = {}
        self.numbers: dict[str, tuple[Var, Number]] = {}  # parameters, with what they are given, by the name of that
        self._given = known.given if (known := compiled()) is not None else {}
        self._views = views
        self._values = 0

    def add(self, op: BoundSymbol) -> None:
        """Add an operation, after the views that it reads."""
        for var in op.inputs:
            self._read(var)
        args, kwargs = (tree.map_tree(self._inside, part) for part in (op.args, op.kwargs))
        outs = tree.map_tree(self._made, op.outs)
        effects = tuple(replace(e, handle=self.names[e.handle]) if e.handle else e for e in op.effects)
        self.ops.append(BoundSymbol(op.sym, args, kwargs, outs, effects, Phase.FORWARD, call=op.call))

    def _read(self, var: Var) -> None:
        if var in self.names:
            return
        if var in self._views:
            self.add(self._views[var])
            return
        self.params[var] = self.names[var] = Var(f"p{len(self.params)}", self._type(var.type))

    def _made(self, leaf: Any) -> Any:
        if not isinstance(leaf, Var):
            return leaf
        self.names[leaf] = Var(f"v{self._values}", self._type(leaf.type))
        self._values += 1
        return self.names[leaf]

    def _inside(self, leaf: Any) -> Any:
        """A variable or number of the program as the region knows it."""
        if isinstance(leaf, Var):
            return self.names[leaf]
        return renamed(leaf, self._name) if isinstance(leaf, Number) else leaf

    def _name(self, name: str) -> str:
        """The region's name for a number parameter of the program."""
        if name not in self._given:
            return name
        if name not in self.numbers:
            number = Number(name, self._given[name])
            self.numbers[name] = (Var(f"n{len(self.numbers)}", NumberType("int", int(example(number)))), number)
        return self.numbers[name][0].name

    def _type(self, type: Type) -> Type:
        if not isinstance(type, TensorType):
            return type
        return with_numbers(type.detached, self._inside)
