"""Splitting a differentiated program: forward, the backward of each independent piece, epilogue."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import set_device_states

from thunder.grad.differentiate import Tape, backward, fresh_layout
from thunder.grad.formats import in_formats_around
from thunder.grad.mincut import Facts, remade
from thunder.grad.pieces import pieces
from thunder.grad.recompute import recompute
from thunder.grad.views import make_again, view_makers
from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol, Phase, Symbol
from thunder.ir.trace import Stage, Trace
from thunder.ir.types import NumberType, OpaqueType, TensorType, Var
from thunder.lang.numbers import compiled, compiling
from thunder.passes.costs import views as is_view
from thunder.passes.cse import cse
from thunder.passes.dce import dce
from thunder.passes.layouts import undone
from thunder.runtime.codegen import compile_trace
from thunder.runtime.node import BackwardFunction, Origin, Piece
from thunder.runtime.stages import Backend, leaving

if TYPE_CHECKING:
    from thunder.runtime.driver import Stopwatch


class BackwardBuilder:
    """Splits the joint program of a tape.

    forward: the scheduled forward trace, with result ``(roots, others, saved)``. random: positions of one parameter on
    each device but the CPU, if it draws random numbers, else None.
    storages: of the captured values. overwritten: those of values that the epilogue writes; backward saves copies of
    them, as eager's in-place calls do. parameters: of modules.
    """

    def __init__(
        self,
        tape: Tape,
        selected: Trace,
        storages: Mapping[Var, int],
        overwritten: Set[int],
        parameters: Collection[Var],
        backend: Backend,
        watch: Stopwatch,
    ) -> None:
        self._tape = tape
        self._overwritten = {v for v, storage in storages.items() if storage in overwritten}
        self._makers = view_makers(tape.forward, storages)
        self._copies: dict[Var, Var] = {}
        self._selected = selected
        self._backend = backend
        self._lock = threading.Lock()
        self._cotangents = {root: tape.names.var(f"grad_{root.name}", fresh_layout(root.type)) for root in tape.roots}
        self._known = compiled()
        self._numbers = tuple(v for v in selected.params if isinstance(v.type, NumberType))
        self._groups = pieces(tape)
        draws = any(op.draws for op in tape.forward)
        self.random = tuple(_one_per_device(selected.params)) if draws else None
        programs, relaid = self._programs(parameters)
        self._saved = tuple(dict.fromkeys(v for p in programs for v in self._saved_by(p)))
        self._others = tuple(v for v in leaving(selected) if v not in self._cotangents)
        result = (tape.roots, self._others, self._saved)
        ops = (*tape.forward, *relaid, *self._copying())
        whole = Trace(selected.name, selected.params, ops, result, Stage.SELECTED, made_by="split")
        watch.note(self._joint(ops, programs))
        forward = watch.lowered(dce(whole), backend, watch.record.traces)
        lowered = [watch.lowered(p, backend, watch.record.backward_traces) for p in programs]
        phases = {Phase.FORWARD: forward}
        if lowered:
            ops = tuple(op for p in lowered for op in p.ops)
            params = tuple(dict.fromkeys(v for p in lowered for v in p.params))
            phases[Phase.BACKWARD] = replace(lowered[0], ops=ops, params=params)
        self._lowered_forward = forward
        scheduled = watch.run("schedule", lambda: backend.schedule(phases, Phase.FORWARD))
        self.forward = watch.settled(scheduled, backend, watch.record.traces)
        ordered = [self._ordered(p) for p in lowered]
        own = self._own(ordered)
        self._scheduled = [watch.settled(p, backend, watch.record.backward_traces, own) for p in ordered]

    def pieces(self) -> tuple[tuple[Piece, tuple[int, ...], tuple[int, ...]], ...]:
        """The autograd pieces, each with the positions of its roots and of what it saved in forward's result."""
        return tuple(self._piece(group, trace) for group, trace in zip(self._groups, self._scheduled))

    def epilogue(self) -> Trace:
        """From the parameters and all forward results to the results of the program."""
        ops = tuple(op for op in self._selected.ops if op.phase is Phase.EPILOGUE)
        params = (*self._selected.params, *self._tape.roots, *self._others)
        trace = Trace("epilogue", params, ops, self._selected.result, Stage.SELECTED, made_by="split")
        return self._backend.schedule({Phase.EPILOGUE: self._backend.lower(trace)}, Phase.EPILOGUE)

    def _joint(self, forward: Sequence[BoundSymbol], programs: Sequence[Trace]) -> Trace:
        """Forward and backward as one program, for people and for passes over both."""
        tape = self._tape
        ops = (*forward, *(op for p in programs for op in p.ops))
        params = (*self._selected.params, *self._cotangents.values(), *_handles(ops, self._selected.params))
        result = (tape.roots, tuple(p.result for p in programs))
        return Trace("joint", params, ops, result, Stage.JOINT, made_by="differentiate")

    def _differentiated(self, arriving: Sequence[Var]) -> Trace:
        """The backward program for the gradients of some roots, over all forward values."""
        given = [self._cotangents[root] if root in arriving else None for root in self._tape.roots]
        return recompute(backward(self._tape, given), self._tape.forward, self._tape.names)

    def _programs(self, parameters: Collection[Var]) -> tuple[list[Trace], list[BoundSymbol]]:
        """The backward of each piece, and the copies in other memory formats that forward makes for them."""
        tape, differentiated = self._tape, [self._differentiated(group) for group in self._groups]

        def programs() -> list[Trace]:
            return [self._backward(group, group, trace) for group, trace in zip(self._groups, differentiated)]

        if not self._backend.regions.wanted:
            return programs(), []
        facts = self._facts(parameters)
        self._makers |= remade(tape.forward, differentiated, facts)
        found = programs()
        relaid = in_formats_around(tape.forward, found, facts, tape.names)
        if relaid:
            self._makers |= {op.inputs[0]: undone(op, op.inputs[0]) for op in relaid}
            found = programs()
        return found, relaid

    def _facts(self, parameters: Collection[Var]) -> Facts:
        """What the choice of values that backward makes again depends on. parameters: kept, whether saved or not."""
        views = {v: op for op in self._tape.forward if is_view(op) for v in op.outputs} | self._makers
        kept = {v for v in (*parameters, *leaving(self._selected)) if v not in self._overwritten}
        return Facts(self._backend.is_cheap, views, kept.difference(views), set(self._selected.variables()))

    def _backward(self, group: Sequence[Var], arriving: Sequence[Var], differentiated: Trace) -> Trace:
        """The backward of a piece, for the gradients of some of its roots."""
        trace = make_again(differentiated, self._makers, self._tape.names)
        trace = self._on_copies(cse(trace))
        cotangents = tuple(self._cotangents[root] for root in group if root in arriving)
        saved = self._saved_by(trace)
        used = self._inputs_of(group)
        gradients = dict(zip(self._tape.inputs, trace.result))
        return replace(trace, params=(*saved, *cotangents, *self._numbers), result=tuple(gradients[v] for v in used))

    def _on_copies(self, backward: Trace) -> Trace:
        """The backward program over copies of the values that are overwritten before it runs."""
        read = [v for v in backward.params if v in self._overwritten]
        if not read:
            return backward
        for v in read:
            assert isinstance(v.type, TensorType)
            if v not in self._copies:
                self._copies[v] = self._tape.names.var(v.name, v.type.detached)
        ops = tuple(op.with_inputs(self._copies) for op in backward.ops)
        params = tuple(self._copies.get(v, v) for v in backward.params)
        return replace(backward, params=params, ops=ops, result=tree.substitute(backward.result, self._copies))

    def _copying(self) -> Iterator[BoundSymbol]:
        for v, copy in self._copies.items():
            yield BoundSymbol(Symbol("thunder.prims.structural.strided_clone"), (v,), outs=copy)

    def _saved_by(self, trace: Trace) -> list[Var]:
        cotangents = set(self._cotangents.values())
        return [v for v in trace.params if v not in cotangents and isinstance(v.type, TensorType)]

    def _inputs_of(self, group: Sequence[Var]) -> tuple[Var, ...]:
        """The tape's inputs that a gradient of the group's roots can flow to."""
        reached = set(group)
        for entry in reversed(self._tape.entries):
            if any(v in reached for v in entry.outs):
                reached.update(v for v, need in zip(entry.call.inputs, entry.needs) if need)
        return tuple(v for v in self._tape.inputs if v in reached)

    def _ordered(self, lowered: Trace) -> Trace:
        """A backward trace as it is scheduled beside the forward that it belongs to."""
        traces = {Phase.FORWARD: self._lowered_forward, Phase.BACKWARD: lowered}
        return self._backend.schedule(traces, Phase.BACKWARD)

    def _own(self, programs: Sequence[Trace]) -> set[Var]:
        """What a backward program may overwrite: what forward saved for it alone, and nobody else refers to."""
        if not self._backend.regions.wanted:
            return set()
        readers = Counter(v for program in programs for v in self._saved_by(program))
        return {v for v in self._backend.regions.owned(self.forward) if readers[v] == 1}

    def _piece(self, group: tuple[Var, ...], trace: Trace) -> tuple[Piece, tuple[int, ...], tuple[int, ...]]:
        place = {v: index for index, v in enumerate(self._selected.params)}
        saved = self._saved_by(trace)
        piece = Piece(
            backward=self._compiled(trace),
            partial=self._partial(group, saved),
            replay=self._replay(group),
            inputs=[place[v] for v in self._inputs_of(group)],
            strides=self._strides(group),
            spent=[place for place, v in enumerate(saved) if v in trace.spent],
        )
        roots = tuple(self._tape.roots.index(root) for root in group)
        places = {v: place for place, v in enumerate(self._saved)}
        return piece, roots, tuple(places[v] for v in saved)

    def _strides(self, group: Sequence[Var]) -> Callable[..., Sequence[tuple[int, ...] | None]]:
        """The strides of the gradients that backward starts from, as a function of the numbers."""
        strides = tuple([_stride(self._cotangents[root]) for root in group])
        if not self._numbers:
            return lambda: strides
        return compile_trace(Trace("strides", self._numbers, (), strides, Stage.SCHEDULED))

    def _compiled(self, trace: Trace) -> BackwardFunction:
        """The generated function, with the states it touches bound."""
        fn = self._backend.function(trace)
        bound = self._backend.handles(trace, 0)
        return (lambda box: fn([*_emptied(box), *bound])) if bound else fn

    def _partial(
        self, group: tuple[Var, ...], saved: Sequence[Var]
    ) -> Callable[[tuple[bool, ...], Sequence[int]], tuple[BackwardFunction, Sequence[int]] | None]:
        """Backward programs for some of the gradients, made when first needed; None where one is not valid."""
        made: dict[tuple[bool, ...], tuple[BackwardFunction, list[int], Callable[..., bool] | None]] = {}

        def find(given: tuple[bool, ...], numbers: Sequence[int]) -> tuple[BackwardFunction, Sequence[int]] | None:
            with self._lock:
                if given not in made:
                    arriving = [root for root, there in zip(group, given) if there]
                    with compiling(self._known):
                        trace = self._backward(group, arriving, self._differentiated(arriving))
                        lowered = self._backend.regions.fuse(self._backend.lower(trace))
                    trace = self._backend.regions.settled(self._ordered(lowered))
                    self._backend.regions.compile()
                    places = [saved.index(v) for v in self._saved_by(trace)]
                    made[given] = (self._compiled(trace), places, self._known.condition() if self._known else None)
            fn, places, holds = made[given]
            return (fn, places) if holds is None or holds(*numbers) else None

        return find

    def _replay(self, group: tuple[Var, ...]) -> Callable[[Sequence[torch.Tensor], Origin], Sequence[torch.Tensor]]:
        """Runs the program's torch calls under autograd, for the roots of a piece."""
        ops = tuple(op for op in self._selected.ops if op.phase is Phase.FORWARD)
        trace = replace(self._selected, ops=ops, result=group, name="replay")
        compiled: list[Callable[..., Any]] = []

        def replay(tensors: Sequence[torch.Tensor], origin: Origin) -> Sequence[torch.Tensor]:
            if not compiled:
                lowered = self._backend.lower_natively(dce(trace))
                compiled.append(compile_trace(self._backend.schedule({Phase.FORWARD: lowered}, Phase.FORWARD)))
            cpu, devices, states = origin.random_state or (None, [], [])
            with torch.random.fork_rng(devices, enabled=cpu is not None), torch._C._DisableAutocast():
                if cpu is not None:
                    torch.set_rng_state(cpu)
                    set_device_states(devices, states)
                return compiled[0](*tensors, *origin.numbers)

        return replay


def _one_per_device(params: Sequence[Var]) -> Iterator[int]:
    seen = {"cpu"}
    for place, param in enumerate(params):
        if isinstance(param.type, TensorType) and param.type.device not in seen:
            seen.add(param.type.device)
            yield place


def _emptied(box: list[torch.Tensor]) -> list[torch.Tensor]:
    values = box[:]
    box.clear()
    return values


def _handles(ops: Sequence[Any], params: Sequence[Var]) -> list[Var]:
    """The state handles that operations touch and no parameter declares."""
    found = dict.fromkeys(e.handle for op in ops for e in op.effects if e.handle is not None)
    return [v for v in found if isinstance(v.type, OpaqueType) and v not in params]


def _stride(var: Var) -> tuple[int, ...] | None:
    assert isinstance(var.type, TensorType)
    return var.type.stride
