"""The log of one recording: which tensor is which variable, what was called, what shares memory with what."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from thunder.ir import tree
from thunder.ir.effects import MEMORY, RANDOM, Access, Effect
from thunder.ir.symbol import BoundSymbol, Source, Symbol
from thunder.ir.trace import Names, Stage, Trace
from thunder.ir.types import Ref, TensorType, Var
from thunder.lang.bind import bind
from thunder.lang.names import canonical_name, resolve_symbol
from thunder.lang.numbers import number
from thunder.lang.values import difference, in_torch, is_differentiable, numbers, tensor_type, to_ir
from thunder.plugins.spec import Op


@dataclass(frozen=True)
class Place:
    """Where a tensor lies: an identity of its storage, and the offset of its first element there.

    history: of an input, what it shares with inputs that are views of one tensor for autograd.
    """

    storage: int
    offset: Any
    history: int = 0


@dataclass(frozen=True)
class Capture:
    """What a recording found out.

    trace: stage CAPTURED. An operation that writes into variables has a WRITE effect on MEMORY for each.
    places: of every variable that has a storage. written: of each writing operation (by its index), the types of what
    it wrote, after it. constants: tensors the program reached that were not given to it.
    quiet: indices of the operations whose writes autograd does not see. moved: the inputs whose version counters moved:
    what batch norm writes into its statistics moves none. apart: of variables that have the memory of an earlier one
    without its autograd history (``detach``), and of views of those: where their own history begins.
    """

    trace: Trace
    places: Mapping[Var, Place]
    written: Mapping[int, tuple[TensorType, ...]]
    constants: Mapping[Var, torch.Tensor] = field(default_factory=dict)
    quiet: frozenset[int] = frozenset()
    moved: frozenset[Var] = frozenset()
    apart: Mapping[Var, Var] = field(default_factory=dict)


def tensor_leaves(value: Any) -> list[torch.Tensor]:
    """The tensors in an argument tree, left to right."""
    return [leaf for leaf in tree.leaves(value) if isinstance(leaf, torch.Tensor)]


class Log:
    """Collects operations while a program runs. Tensors are variables by identity and are kept alive meanwhile."""

    def __init__(self, name: str, parameters: Sequence[Var] = ()) -> None:
        self.name = name
        self._numbers = tuple(parameters)
        self.ops: list[BoundSymbol] = []
        self.params: list[Var] = []
        self.constants: dict[Var, torch.Tensor] = {}
        self.quiet: set[int] = set()
        self.written: dict[int, tuple[TensorType, ...]] = {}
        self.region: str | None = None
        self._names = Names(v.name for v in self._numbers)
        self._vars: dict[int, Var] = {}
        self._places: dict[Var, Place] = {}
        self._first: dict[int, Var] = {}
        self._apart: dict[Var, Var] = {}
        self._versions: list[tuple[Var, torch.Tensor, int | None]] = []
        self.tensors: list[torch.Tensor] = []

    def knows(self, t: torch.Tensor) -> bool:
        return id(t) in self._vars

    def param(self, t: torch.Tensor, stem: str) -> Var:
        """Make a tensor a parameter of the trace."""
        var = self.bind(t, Var(self._names.fresh(stem), tensor_type(t)))
        if var in self._places:
            self._places[var] = replace(self._places[var], history=id(t._base if t._is_view() else t))
            first = self._first[self._places[var].storage]
            if self._places[first].history != self._places[var].history:
                alike = [v for v in self._apart if self._places[v].history == self._places[var].history]
                self._apart[var] = next(iter(alike), var)
        self.params.append(var)
        self._versions.append((var, t, _version(t)))
        return var

    def bind(self, t: torch.Tensor, var: Var) -> Var:
        """Let ``var`` stand for the tensor from now on."""
        self._vars[id(t)] = var
        self.tensors.append(t)
        if t.layout is torch.strided and not is_wrapped(t):
            place = self._places[var] = Place(t.untyped_storage()._cdata, number(t.storage_offset()))
            self._first.setdefault(place.storage, var)
        return var

    def var(self, t: torch.Tensor) -> Var:
        """The variable of a tensor that the log knows."""
        return self._vars[id(t)]

    def replaced(self, t: torch.Tensor) -> torch.Tensor:
        """A tensor for the variable that stood for ``t``, which is to get a new one."""
        twin = t.detach()
        self._vars[id(twin)] = self._vars.pop(id(t))
        self.tensors.append(twin)
        return twin

    def relaid(self, t: torch.Tensor) -> bool:
        """True if the tensor no longer has the sizes and strides of its variable, or has lost its history."""
        type, now = self.var(t).type, tensor_type(t)
        assert isinstance(type, TensorType)
        return (now.shape, now.stride) != (type.shape, type.stride) or type.requires_grad > now.requires_grad

    def view_again(self, t: torch.Tensor, source: Source | None) -> bool:
        """Log that a tensor became a view of what it was (``t_``, ``unsqueeze_``); False if it is not that simple."""
        known = self.var(t)
        place, type = self._places.get(known), known.type
        assert isinstance(type, TensorType)
        if place is None or known in self.params or t.numel() != in_torch(type).numel:
            return False
        var = self.bind(t, Var(self._names.numbered("t"), tensor_type(t)))
        now = self._places[var]
        if known in self._apart:
            self._apart[var] = self._apart[known]
        args = (known, numbers(t.shape), numbers(t.stride()), difference(now.offset, place.offset))
        self.ops.append(BoundSymbol(Symbol("thunder.prims.structural.strided_view"), args, outs=var, source=source))
        return now.storage == place.storage

    def note_histories(self, results: Sequence[torch.Tensor]) -> None:
        """Note which new results of a torch call have the memory of an earlier variable, but not its history."""
        for t in results:
            var, place = self.var(t), self._places.get(self.var(t))
            if t._is_view():
                root = self._apart.get(self._vars.get(id(t._base)))  # type: ignore[arg-type]  # a view has a base
            else:
                root = var if place is not None and self._first[place.storage] is not var else None
            if root is not None:
                self._apart[var] = root

    def detach(self, t: torch.Tensor) -> None:
        """Log that no gradient flows through a tensor: a prim, unlike other calls, does not say so by its type."""
        known = self.var(t)
        var = self.bind(t, Var(self._names.numbered("t"), known.type))
        self.ops.append(BoundSymbol(Symbol("torch.detach"), (known,), outs=var))

    def define(self, t: torch.Tensor, grad: bool = False) -> Var:
        """The variable of a result: the known one, else a new one.

        With grad mode off no history leads to it (a view taken then says that it requires grad, all the same).
        """
        known = self._vars.get(id(t))
        if known is not None:
            return known
        type = tensor_type(t)
        if not torch.is_grad_enabled():
            type = type.detached
        return self.bind(t, Var(self._names.numbered("t"), _carrying(type, grad)))

    def to_ir(self, value: Any) -> Any:
        """An argument tree with variables for tensors and IR constants for the rest."""
        return tree.map_tree(lambda leaf: self.var(leaf) if isinstance(leaf, torch.Tensor) else to_ir(leaf), value)

    def add(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        *,
        writes: list[torch.Tensor],
        random: bool,
        source: Source | None,
        grad: bool = False,
    ) -> None:
        """Log one call. ``args`` and ``kwargs`` are those the call was made with, ``out`` is what it returned.

        grad: its floating-point results carry gradients, even if they do not say so.
        """
        name, ir_args, ir_kwargs = self._spelt(fn, self.to_ir(args), self.to_ir(kwargs))
        effects = [Effect(MEMORY, Access.WRITE, self.var(t)) for t in writes]
        if random:
            effects.append(Effect(RANDOM, Access.WRITE))
        outs = self._outs(out, {id(t) for t in writes}, grad)
        if writes:
            self.written[len(self.ops)] = tuple(_carrying(tensor_type(t), grad) for t in writes)
        if not torch.is_grad_enabled() or any(map(_is_parameter, writes)):
            self.quiet.add(len(self.ops))
        self.ops.append(
            BoundSymbol(
                Symbol(name), ir_args, ir_kwargs, outs, effects=tuple(effects), source=source, region=self.region
            )
        )

    def _outs(self, out: Any, written: set[int], grad: bool) -> Any:
        """The tree of a call's new results; None for what it only passes through, unless it wrote it."""
        passed = {id(t) for t in tensor_leaves(out) if self.knows(t)} - written

        def leaf_ir(leaf: Any) -> Var | None:
            if not isinstance(leaf, torch.Tensor) or id(leaf) in passed:
                return None
            return self.define(leaf, grad)

        return tree.map_tree(leaf_ir, out)

    def add_symbol(
        self,
        op: Op,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        effects: list[Effect],
        source: Source | None,
    ) -> None:
        """Log one call of an executor's symbol. The handles of the states it touches follow as keyword ``states``."""
        keywords = self.to_ir(kwargs)
        handles = tuple(effect.handle for effect in effects if effect.handle is not None)
        if handles:
            keywords["states"] = handles
        outs = tree.map_tree(lambda leaf: self.define(leaf) if isinstance(leaf, torch.Tensor) else None, out)
        args = self.to_ir(args)
        self.ops.append(
            BoundSymbol(Symbol(op.name), args, keywords, outs, effects=tuple(effects), call=op.impl, source=source)
        )

    def _spelt(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        name = canonical_name(fn)
        if name is None:
            stem = getattr(fn, "__qualname__", "function").split(".")[0]
            return "thunder.prims.structural.call", (Ref(stem, fn), *args), kwargs
        args, kwargs = bind(name, resolve_symbol(name), args, kwargs)
        return name, args, kwargs

    def capture(self, result: Any) -> Capture:
        """Close the log. ``result`` is the tree of what the program returned."""

        def leaf_ir(leaf: Any) -> Any:
            return self.var(leaf) if isinstance(leaf, torch.Tensor) else to_ir(leaf)

        trace = Trace(
            self.name,
            (*self.params, *self._numbers),
            tuple(self.ops),
            tree.map_tree(leaf_ir, result),
            Stage.CAPTURED,
            made_by="capture",
        )
        moved = frozenset([var for var, t, before in self._versions if before is None or _version(t) != before])
        quiet = frozenset(self.quiet)
        places, written, constants = dict(self._places), dict(self.written), dict(self.constants)
        return Capture(trace, places, written, constants, quiet, moved, dict(self._apart))

    def made(self) -> list[tuple[weakref.ref[torch.Tensor], Source | None]]:
        """Every tensor without data of the recording, with the line that made it."""
        sources = {var: op.source for op in self.ops for var in op.outputs}
        return [(weakref.ref(t), sources.get(self.var(t))) for t in self.tensors if isinstance(t, FakeTensor)]

    def forget(self, count: int) -> None:
        """Drop the operations logged after the first ``count``."""
        del self.ops[count:]
        self.quiet = {index for index in self.quiet if index < count}
        self.written = {index: types for index, types in self.written.items() if index < count}


def _version(t: torch.Tensor) -> int | None:
    """How often autograd saw the tensor written; inference tensors do not count."""
    return None if t.is_inference() else t._version


def _is_parameter(t: torch.Tensor) -> bool:
    """True for a leaf that requires grad, or a view of one: a call that writes into it has turned grad mode off inside.

    ``embedding`` does with ``max_norm``; autograd refuses all others.
    """
    root = t._base if t._is_view() else t
    return t.requires_grad and root is not None and root.requires_grad and root.is_leaf


def _carrying(type: TensorType, grad: bool) -> TensorType:
    return replace(type, requires_grad=True) if grad and is_differentiable(type) else type


def is_wrapped(t: torch.Tensor) -> bool:
    """True for the wrappers that function transforms (vmap, grad) put around tensors."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(t))
