"""Mutation becomes new values; what the caller can see of it becomes an epilogue.

A write into a variable gives the base of its storage a new value; other views of that storage are read again from the
base when next used. Writes into the program's inputs end as one copy into each, and results that share memory with an
input or with each other are made from it by the recorded view operations, both under the caller's autograd.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from thunder.capture.fakes import has_derivative, result_types
from thunder.capture.log import Capture, Place
from thunder.errors import CaptureError
from thunder.ir import tree
from thunder.ir.effects import MEMORY, RANDOM, Access, Effect
from thunder.ir.symbol import BoundSymbol, Phase, Symbol
from thunder.ir.trace import Names, Stage, Trace
from thunder.ir.types import Const, TensorType, Var
from thunder.lang.bind import bind
from thunder.lang.names import canonical_name, resolve_symbol
from thunder.lang.numbers import number
from thunder.lang.values import difference
from thunder.passes.aliases import alias_results
from thunder.passes.storages import Members, geometry, tensor, writes_of
from thunder.prims.facts import appending_operator, functional_operators, with_defaults
from thunder.prims.structural import ArgPath

_STRUCTURAL = "thunder.prims.structural"


def functionalize(capture: Capture) -> Trace:
    """The captured program without mutation. Raises CaptureError for overlaps that cannot be expressed."""
    memory = Memory(capture)
    for index, op in enumerate(capture.trace.ops):
        memory.run(index, op)
    epilogue = memory.write_backs()
    result, early, late = alias_results(capture, memory.read, memory.names)
    return Trace(
        capture.trace.name,
        capture.trace.params,
        (*memory.ops, *early, *epilogue, *late),
        result,
        Stage.FUNCTIONAL,
        made_by="functionalize",
    )


def _written_storages(capture: Capture) -> list[int]:
    handles = (handle for op in capture.trace.ops for handle in writes_of(op))
    return list(dict.fromkeys(capture.places[handle].storage for handle in handles))


@dataclass
class _Storage:
    """A storage that is written: its base variable, the inputs to write back, and a count of the writes so far."""

    base: Var
    inputs: tuple[Var, ...]
    version: int = 0
    loud: bool = False  # some write was seen by autograd


class Memory:
    """Current values of the captured program's variables while it is rewritten."""

    def __init__(self, capture: Capture) -> None:
        self.names = Names.of(capture.trace)
        self.ops: list[BoundSymbol] = []
        self._capture = capture
        self._places = dict(capture.places)
        self._storages = {storage: self._opened(storage) for storage in _written_storages(capture)}
        self._values: dict[Var, tuple[Var, int]] = {}

    def read(self, var: Var) -> Var:
        """The variable that holds the current value of ``var``."""
        storage = self._storage(var)
        if storage is None:
            return var
        value, version = self._values.get(var, (var, 0))
        if version == storage.version:
            return value
        value = self._view_of_base(var, storage)
        self._values[var] = (value, storage.version)
        return value

    def run(self, index: int, op: BoundSymbol) -> None:
        """Emit the operation, without its writes."""
        handles = writes_of(op)
        inputs = {v: self.read(v) for v in op.inputs}
        if not handles:
            changed = any(old is not new for old, new in inputs.items())
            self.ops.append(_renamed(op, inputs) if changed else op)
            self._born(op)
            return
        quiet = index in self._capture.grad_off
        types = {
            handle: replace(type, requires_grad=type.requires_grad and not quiet)
            for handle, type in zip(handles, self._capture.written[index])
        }
        for handle, value in self._mutated(op, handles, inputs, types).items():
            self._write(handle, value, quiet)
        self._born(op)

    def write_backs(self) -> list[BoundSymbol]:
        """The copies of the written inputs' final values into the inputs."""
        return [self._write_back(s, var) for s in self._storages.values() for var in s.inputs]

    def _write_back(self, state: _Storage, var: Var) -> BoundSymbol:
        name = "torch.Tensor.copy_" if state.loud else f"{_STRUCTURAL}.write_silently"
        effect = Effect(MEMORY, Access.WRITE, var)
        return BoundSymbol(Symbol(name), (var, self.read(var)), effects=(effect,), phase=Phase.EPILOGUE)

    def _opened(self, storage: int) -> _Storage:
        members = Members.of(self._capture, storage)
        base = members.base()
        if base is not None:
            return _Storage(base, (base,) if base in members.inputs else ())
        members.check_covered({handle for op in self._capture.trace.ops for handle in writes_of(op)})
        return _Storage(self._joined(members, storage), members.inputs)

    def _joined(self, members: Members, storage: int) -> Var:
        """A variable with all elements of a storage that variables reach, where no input covers the others."""
        low, high = members.extent()
        first = members.inputs[0]
        like = tensor(first)
        type = TensorType((number(high - low),), (1,), like.dtype, like.device)
        args = (first, type.shape, type.stride, difference(number(low), self._places[first].offset))
        view = self._emit(
            f"{_STRUCTURAL}.strided_view", args, "memory", replace(type, requires_grad=like.requires_grad)
        )
        joined = self._emit("torch.detach", (view,), "memory", type) if like.requires_grad else view
        self._places[joined] = Place(storage, number(low))
        for var in members.inputs:
            joined = self._scattered(joined, var, var, joined)
            self._places[joined] = Place(storage, number(low))
        return joined

    def _storage(self, var: Var) -> _Storage | None:
        place = self._places.get(var)
        return self._storages.get(place.storage) if place is not None else None

    def _born(self, op: BoundSymbol) -> None:
        """Results that view a written storage hold its value as it is now."""
        for var in set(op.outputs).difference(op.inputs):
            storage = self._storage(var)
            if storage is not None:
                self._values[var] = (var, storage.version)

    def _mutated(
        self, op: BoundSymbol, handles: list[Var], inputs: dict[Var, Var], types: dict[Var, TensorType]
    ) -> dict[Var, Var]:
        """Emit a call without mutation that computes what ``op`` writes; the new value of each handle."""
        values = {handle: Var(self.names.fresh(handle.name), types[handle]) for handle in handles}
        effects = tuple(effect for effect in op.effects if effect.state is not MEMORY)
        functional = _functional_form(op, values, inputs)
        if functional is not None:
            self.ops.append(replace(functional, effects=effects))
            return values
        fn: Any = Const(callable_text(op.sym.name))
        args: Sequence[Any] = op.args
        if op.sym.name == f"{_STRUCTURAL}.call":
            fn, *args = args
        paths = tuple(tuple(_paths((args, op.kwargs), handle)) for handle in handles)
        outs = tree.map_tree(lambda leaf: None if leaf in values else leaf, op.outs)
        self.ops.append(
            replace(
                op,
                sym=Symbol(f"{_STRUCTURAL}.on_copy"),
                args=(fn, paths, *tree.substitute(args, inputs)),
                kwargs=tree.substitute(op.kwargs, inputs),
                outs=(outs, *values.values()),
                effects=effects,
            )
        )
        return values

    def _write(self, var: Var, value: Var, quiet: bool) -> None:
        """Let ``var``, and the base of its storage, have a new value."""
        storage = self._storage(var)
        assert storage is not None
        base = storage.base
        current = self.read(base)
        whole = geometry(var, self._places) == geometry(base, self._places)
        new = value if whole else self._scattered(current, value, var, base)
        detached = base.type.requires_grad and not var.type.requires_grad  # type: ignore[union-attr]
        if detached and value.type.requires_grad:  # type: ignore[union-attr]
            raise CaptureError(
                f"{var.name}, detached from {base.name}, is overwritten with values that require grad",
                why="the same memory would have two histories",
                fix="detach the values, or clone the tensor that is written",
            )
        hidden = quiet or detached
        if hidden and current.type.requires_grad:  # type: ignore[union-attr]
            new = self._emit(f"{_STRUCTURAL}.with_value", (current, new), base.name, current.type)
        storage.version += 1
        storage.loud = storage.loud or not hidden
        self._values[base] = (new, storage.version)
        if whole and var is not base and not hidden:
            self._values[var] = (new, storage.version)

    def _scattered(self, base_value: Var, value: Var, var: Var, base: Var) -> Var:
        _check_dtype(var, base)
        offset = difference(self._places[var].offset, self._places[base].offset)
        grad = base_value.type.requires_grad or value.type.requires_grad  # type: ignore[union-attr]
        type = replace(tensor(base), requires_grad=grad)
        args = (base_value, value, tensor(var).shape, tensor(var).stride, offset)
        return self._emit(f"{_STRUCTURAL}.strided_scatter", args, base.name, type)

    def _view_of_base(self, var: Var, storage: _Storage) -> Var:
        base, current = storage.base, self.read(storage.base)
        detached = base.type.requires_grad and not var.type.requires_grad  # type: ignore[union-attr]
        grad = current.type.requires_grad and not detached  # type: ignore[union-attr]
        type = replace(tensor(var), requires_grad=grad)
        if geometry(var, self._places) != geometry(base, self._places):
            _check_dtype(var, base)
            offset = difference(self._places[var].offset, self._places[base].offset)
            args = (current, type.shape, type.stride, offset)
            current = self._emit(f"{_STRUCTURAL}.strided_view", args, var.name, replace(type, requires_grad=grad))
        if detached and current.type.requires_grad:  # type: ignore[union-attr]
            current = self._emit("torch.detach", (current,), var.name, type)
        return current

    def _emit(self, name: str, args: tuple[Any, ...], stem: str, type: Any) -> Var:
        out = self.names.var(stem, type)
        self.ops.append(BoundSymbol(Symbol(name), args, outs=out))
        return out


def _functional_form(op: BoundSymbol, values: dict[Var, Var], inputs: dict[Var, Var]) -> BoundSymbol | None:
    """The call that returns what ``op`` writes, if torch has one; ``values``: the new value of each handle."""
    handles = list(values)
    op = _renamed(op, inputs)
    if op.sym.name.startswith("aten.") and (form := appending_operator(resolve_symbol(op.sym.name))) is not None:
        return replace(op, sym=Symbol(_name(form)), outs=(*op.outs, *values.values()))
    if len(handles) != 1 or not op.args or op.args[0] is not inputs[handles[0]] or op.outs is not handles[0]:
        return None
    value = values[handles[0]]
    wanted = replace(tensor(value), requires_grad=False)
    forms = (form for form in _candidates(op) if result_types(form) == [wanted])
    if tensor(value).requires_grad:
        forms = (form for form in forms if has_derivative(form))
    return next((replace(form, outs=value) for form in forms), None)


def _candidates(op: BoundSymbol) -> Iterator[BoundSymbol]:
    """Calls that may return what an in-place call writes into its first argument."""
    head, _, last = op.sym.name.rpartition(".")
    if op.kwargs.get("inplace") is True:
        yield replace(op, kwargs={key: value for key, value in op.kwargs.items() if key != "inplace"})
    elif head == "torch.Tensor" and last.endswith("_") and not last.endswith("__"):
        if any(effect.state is RANDOM for effect in op.effects):
            return  # torch.normal and torch.bernoulli are other functions than the methods normal_ and bernoulli_
        yield from (replace(op, sym=Symbol(f"{space}.{last[:-1]}")) for space in ("torch", "torch.Tensor"))
    elif op.sym.name.startswith("aten."):
        overload: Any = resolve_symbol(op.sym.name)
        spelt = with_defaults(overload, op.args)
        for form in functional_operators(overload):
            args, kwargs = bind(_name(form), form, spelt, op.kwargs)
            yield replace(op, sym=Symbol(_name(form)), args=args, kwargs=kwargs)


def _name(op: Any) -> str:
    name = canonical_name(op)
    assert name is not None
    return name


def _paths(arguments: tuple[Sequence[Any], dict[str, Any]], handle: Var) -> Iterator[ArgPath]:
    """Every place where the handle stands among the arguments."""

    def search(value: Any, path: ArgPath) -> Iterator[ArgPath]:
        if value is handle:
            yield path
        elif isinstance(value, (tuple, list)):
            for i, item in enumerate(value):
                yield from search(item, (*path, i))

    args, kwargs = arguments
    slots: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    for key, value in slots:
        yield from search(value, (key,))


def callable_text(name: str) -> str:
    """The expression for the callable that a symbol names."""
    if name.startswith(("torch.", "thunder.")):
        return name
    namespace, op, *overload = name.split(".")
    return f"torch.ops.{namespace}.{op}.{overload[0] if overload else 'default'}"


def _check_dtype(var: Var, base: Var) -> None:
    if tensor(var).dtype != tensor(base).dtype:
        raise CaptureError(
            f"{var.name} views {base.name} as {tensor(var).dtype} while their memory is written",
            why=f"{base.name} is {tensor(base).dtype}: its elements cannot be addressed by the view's strides",
            fix="clone the view first",
        )


def _renamed(op: BoundSymbol, mapping: dict[Var, Var]) -> BoundSymbol:
    return replace(op, args=tree.substitute(op.args, mapping), kwargs=tree.substitute(op.kwargs, mapping))
