"""Mutation becomes new values; what the caller can see of it becomes an epilogue.

A write into a variable gives the base of its storage a new value; other views of that storage are read again from the
base when next used. Writes into the program's inputs end as one copy into each, and results that share memory with an
input or with each other are made from it by the recorded view operations, both under the caller's autograd.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from thunder.capture.log import Capture, Place
from thunder.errors import CaptureError
from thunder.ir.effects import MEMORY, Access, Effect
from thunder.ir.symbol import BoundSymbol, Phase, Symbol
from thunder.ir.trace import Names, Stage, Trace
from thunder.ir.types import TensorType, Var
from thunder.lang.numbers import number
from thunder.lang.values import difference
from thunder.passes.aliases import alias_results
from thunder.passes.forms import without_mutation
from thunder.passes.storages import Members, geometry, repeats, tensor, writes_of

_STRUCTURAL = "thunder.prims.structural"


def functionalize(capture: Capture) -> Trace:
    """The captured program without mutation. Raises CaptureError for overlaps that cannot be expressed."""
    memory = Memory(capture)
    for index, op in enumerate(capture.trace.ops):
        memory.run(index, op)
    memory.check_results()
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
    """A storage that is written: its base variable, the inputs in it, and a count of the writes so far.

    values: its elements now, as each autograd history has them: by the variable that it begins with; True: the history
    that the memory has from the start; False: none. loud: the histories that have seen a write.
    """

    base: Var
    inputs: tuple[Var, ...]
    values: dict[Var | bool, Var]
    version: int = 0
    loud: set[Var | bool] = field(default_factory=set)


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
            self.ops.append(op.with_inputs({old: new for old, new in inputs.items() if old is not new}))
            self._born(op)
            return
        quiet = index in self._capture.quiet
        types = {
            handle: replace(type, requires_grad=type.requires_grad and not quiet)
            for handle, type in zip(handles, self._capture.written[index])
        }
        values = {handle: Var(self.names.fresh(handle.name), types[handle]) for handle in handles}
        self.ops.append(without_mutation(op, values, inputs))
        for handle, value in values.items():
            self._write(handle, value, quiet)
        self._born(op)

    def check_results(self) -> None:
        """Raise CaptureError for a result with a history of its own in memory that the caller sees otherwise too."""
        trace, places = self._capture.trace, self._places
        own = {v for v, root in self._capture.apart.items() if root not in trace.params}
        for var in (v for v in trace.results if v in own and tensor(self.read(v)).requires_grad):
            other = next((v for v in (*trace.params, *trace.results) if v is not var and _beside(v, var, places)), None)
            if other is not None:
                raise CaptureError(
                    f"{var.name}, detached from its memory, is overwritten with values that require grad",
                    why=f"the caller gets it and {other.name}: the same memory with two histories",
                    fix="detach the values, or clone the tensor that is written",
                )

    def write_backs(self) -> list[BoundSymbol]:
        """The copies of the written inputs' final values into the inputs."""
        return [self._write_back(s, var) for s in self._storages.values() for var in s.inputs if self._is_told(s, var)]

    def _is_told(self, state: _Storage, var: Var) -> bool:
        """False for an input if the base of its memory is one too, and brings values and history to the caller."""
        known = {self._root(state.base, state)} if state.base in state.inputs else set[Var | bool]()
        return var is state.base or not known or self._root(var, state) in state.loud - known

    def _write_back(self, state: _Storage, var: Var) -> BoundSymbol:
        seen = f"{_STRUCTURAL}.write_once" if repeats(tensor(var)) else "torch.Tensor.copy_"
        name = seen if self._root(var, state) in state.loud else f"{_STRUCTURAL}.write_silently"
        if not self._capture.moved.intersection(state.inputs):
            name = f"{_STRUCTURAL}.write_unseen"
        effect = Effect(MEMORY, Access.WRITE, var)
        return BoundSymbol(Symbol(name), (var, self.read(var)), effects=(effect,), phase=Phase.EPILOGUE)

    def _opened(self, storage: int) -> _Storage:
        members = Members.of(self._capture, storage)
        base = members.base()
        if base is not None:
            return self._storage_of(base, members.inputs)
        members.check_covered({handle for op in self._capture.trace.ops for handle in writes_of(op)})
        return self._storage_of(self._joined(members, storage), members.inputs)

    def _storage_of(self, base: Var, inputs: Sequence[Var]) -> _Storage:
        storage = _Storage(base, tuple(inputs), {})
        storage.values[self._root(base, storage)] = base
        return storage

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

    def _write(self, var: Var, value: Var, quiet: bool) -> None:
        """Let the storage of ``var`` have a new value. Histories other than that of ``var`` do not see it change."""
        storage = self._storage(var)
        assert storage is not None
        root, current = self._root(var, storage), self._whole(var, storage)
        whole = geometry(var, self._places) == geometry(storage.base, self._places)
        new = value if whole else self._scattered(current, value, var, storage.base)
        for history, known in storage.values.items():
            storage.values[history] = new if history is root and not quiet else self._overwritten(known, new)
        storage.version += 1
        storage.loud |= set() if quiet else {root}
        if whole and not quiet:
            self._values[var] = (new, storage.version)

    def _overwritten(self, known: Var, new: Var) -> Var:
        """``new`` with the history of ``known``."""
        if tensor(known).requires_grad:
            return self._emit(f"{_STRUCTURAL}.with_value", (known, new), known.name, known.type)
        return self._detached(new)

    def _detached(self, value: Var) -> Var:
        if not tensor(value).requires_grad:
            return value
        return self._emit("torch.detach", (value,), value.name, tensor(value).detached)

    def _root(self, var: Var, storage: _Storage) -> Var | bool:
        """Which of the histories of a storage ``var`` has."""
        own = self._capture.apart.get(var)
        return own or tensor(var).requires_grad or not tensor(storage.base).requires_grad

    def _whole(self, var: Var, storage: _Storage) -> Var:
        """The elements of a storage now, with the history of ``var``."""
        root = self._root(var, storage)
        if root not in storage.values:
            storage.values[root] = self._detached(storage.values[self._root(storage.base, storage)])
        return storage.values[root]

    def _scattered(self, base_value: Var, value: Var, var: Var, base: Var) -> Var:
        _check_dtype(var, base)
        offset = difference(self._places[var].offset, self._places[base].offset)
        grad = tensor(base_value).requires_grad or tensor(value).requires_grad
        type = replace(tensor(base), requires_grad=grad)
        args = (base_value, value, tensor(var).shape, tensor(var).stride, offset)
        return self._emit(f"{_STRUCTURAL}.strided_scatter", args, base.name, type)

    def _view_of_base(self, var: Var, storage: _Storage) -> Var:
        base, current = storage.base, self._whole(var, storage)
        if geometry(var, self._places) == geometry(base, self._places):
            return current
        _check_dtype(var, base)
        offset = difference(self._places[var].offset, self._places[base].offset)
        type = replace(tensor(var), requires_grad=tensor(current).requires_grad)
        return self._emit(f"{_STRUCTURAL}.strided_view", (current, type.shape, type.stride, offset), var.name, type)

    def _emit(self, name: str, args: tuple[Any, ...], stem: str, type: Any) -> Var:
        out = self.names.var(stem, type)
        self.ops.append(BoundSymbol(Symbol(name), args, outs=out))
        return out


def _beside(a: Var, b: Var, places: Mapping[Var, Place]) -> bool:
    """True if two variables lie in one storage."""
    return a in places and b in places and places[a].storage == places[b].storage


def _check_dtype(var: Var, base: Var) -> None:
    if tensor(var).dtype != tensor(base).dtype:
        raise CaptureError(
            f"{var.name} views {base.name} as {tensor(var).dtype} while their memory is written",
            why=f"{base.name} is {tensor(base).dtype}: its elements cannot be addressed by the view's strides",
            fix="clone the view first",
        )
