"""Derived rules: a call and its derivative as PyTorch runs them, recorded once for each different call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch._subclasses.fake_tensor import FakeTensor

from thunder.capture.aten import AtenRecorder
from thunder.capture.fakes import run_on
from thunder.capture.log import Capture, Log
from thunder.capture.standins import Standins
from thunder.errors import CaptureError
from thunder.grad.rerun import rerun
from thunder.grad.rule import Layouts, Rule
from thunder.grad.views import view_makers
from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.types import Const, Number, Ref, TensorType, Var
from thunder.lang.numbers import fake_mode
from thunder.lang.values import empty
from thunder.passes.dce import live, live_in
from thunder.passes.functionalize import Memory
from thunder.prims.facts import asks_grad_mode


def derive(call: BoundSymbol, inputs: tuple[Var, ...], arriving: Layouts) -> Rule:
    """The rule of a call over formal inputs, from PyTorch's own autograd run on fake tensors.

    arriving: the types of the gradients that backward starts from, by leaf of the call's result.
    """
    try:
        return _recorded(call, inputs, arriving)
    except (CaptureError, RuntimeError) as error:
        return rerun(call, inputs, arriving, error)


def _recorded(call: BoundSymbol, inputs: tuple[Var, ...], arriving: Layouts) -> Rule:
    if _counts_from_storage(call):
        raise CaptureError(f"{call.sym} counts from the beginning of a storage", why="types do not say where that is")
    log = Log("rule")
    with fake_mode() as mode, torch._C._DisableAutocast():
        recorder = AtenRecorder(log, Standins(mode, log))
        values = {var: _input(log, var) for var in inputs}
        with recorder, torch.enable_grad():
            outs = [leaf if isinstance(leaf, torch.Tensor) else None for leaf in tree.leaves(run_on(call, values))]
        if any(t.layout is not torch.strided for t in (*values.values(), *outs) if t is not None):
            raise CaptureError(f"{call.sym} has tensors without strides", why="its kernels choose by their layouts")
        boundary = len(log.ops)
        cotangents = [_cotangent(log, out, layout) for out, layout in zip(outs, arriving, strict=True)]
        needed = [values[var] for var in inputs if var.requires_grad]
        roots = [(out, g) for out, g in zip(outs, cotangents) if out is not None and g is not None]
        with recorder:
            found = torch.autograd.grad([o for o, _ in roots], needed, [g for _, g in roots], allow_unused=True)
    by_input = dict(zip((var for var in inputs if var.requires_grad), found))
    gradients = [by_input.get(var) for var in inputs]
    return _rule(call.sym.name, log, boundary, inputs, outs, cotangents, gradients)


def _counts_from_storage(call: BoundSymbol) -> bool:
    """True for the relatives of ``as_strided``, if they are given an offset."""
    if not any(part.startswith("as_strided") for part in call.sym.name.split(".")):
        return False
    return "storage_offset" in call.kwargs or any(isinstance(arg, (int, Number)) for arg in call.args)


def body(call: BoundSymbol, inputs: tuple[Var, ...]) -> Rule:
    """The ATen operators a call is made of, without a derivative."""
    log = Log("body")
    with fake_mode() as mode, torch._C._DisableAutocast(), torch.no_grad():
        values = {var: _input(log, var) for var in inputs}
        with AtenRecorder(log, Standins(mode, log)):
            outs = [leaf if isinstance(leaf, torch.Tensor) else None for leaf in tree.leaves(run_on(call, values))]
    return _rule(call.sym.name, log, len(log.ops), inputs, outs, [None] * len(outs), [None] * len(inputs))


def _input(log: Log, var: Var) -> torch.Tensor:
    assert isinstance(var.type, TensorType)
    t = empty(var.type).requires_grad_(var.type.requires_grad)
    log.bind(t, var)
    log.params.append(var)
    return t


def _cotangent(log: Log, out: torch.Tensor | None, layout: TensorType | None) -> torch.Tensor | None:
    if out is None or layout is None or not out.requires_grad:
        return None
    g = empty(layout)
    log.param(g, "g")
    return g


def _rule(
    name: str,
    log: Log,
    boundary: int,
    inputs: tuple[Var, ...],
    outs: list[torch.Tensor | None],
    cotangents: list[torch.Tensor | None],
    gradients: list[torch.Tensor | None],
) -> Rule:
    """Put a rule together from a closed log: operations before ``boundary`` are forward, the rest backward."""
    capture = log.capture([])
    memory = Memory(capture)
    constants = {var: _constant(var, t) for var, t in log.constants.items()}
    for index, op in enumerate(capture.trace.ops[:boundary]):
        memory.run(index, op)
    out_vars = tuple(memory.read(log.var(out)) if out is not None else None for out in outs)
    middle = len(memory.ops)
    for index, op in enumerate(capture.trace.ops[boundary:], boundary):
        memory.run(index, op)
    if written := [op.args[0] for op in memory.write_backs() if op.args[0] in (*inputs, *constants)]:
        raise CaptureError(
            f"the derivative of {name} writes into a tensor that it did not make",
            why=f"a derived rule does not repeat the write into {written[0].name}",
            fix="write into it outside of the autograd function",
        )
    gradient_vars = tuple(memory.read(log.var(g)) if g is not None else None for g in gradients)
    starts = tuple(log.var(g) if g is not None else None for g in cotangents)
    given = {v for v in (*inputs, *out_vars, *starts) if v is not None}
    final = {g for g in gradient_vars if g is not None}
    views = constants | _views(memory.ops[:middle], capture)
    backward = _with_views(live(memory.ops[middle:], final), final, given, views)
    shorter, renamed = _without_double_transposes(backward)
    gradient_vars = tuple(renamed.get(g, g) if g is not None else None for g in gradient_vars)
    final = {g for g in gradient_vars if g is not None}
    backward = live(shorter, final)
    whole = any(starts) and given.issuperset(live_in(backward, final))  # a body is wanted for its operations
    made = (*constants.values(), *(_under_autograd(op) for op in memory.ops[:middle]))
    forward = live(made, {*live_in(backward, final), *(v for v in out_vars if v is not None)})
    if whole:
        return Rule(inputs, out_vars, None, starts, backward, gradient_vars)
    known = {v for op in forward for v in op.outputs}
    again = {v: memory.names.var(v.name, v.type) for op in backward for v in op.outputs if v in known}
    backward = tuple(_over(op, again) for op in backward)
    gradient_vars = tuple(again.get(g, g) if g is not None else None for g in gradient_vars)
    return Rule(inputs, out_vars, forward, starts, backward, gradient_vars)


def _under_autograd(op: BoundSymbol) -> BoundSymbol:
    """The call as it must be made where grad mode is off but backward follows."""
    if not asks_grad_mode(op.sym.name):
        return op
    namespace, name, *overload = op.sym.name.split(".")
    operator = Const(f"torch.ops.{namespace}.{name}.{overload[0] if overload else 'default'}")
    return replace(op, sym=Symbol("thunder.prims.structural.in_grad_mode"), args=(operator, *op.args))


def _constant(var: Var, t: torch.Tensor) -> BoundSymbol:
    """The operation that gives a tensor which the call itself makes of a Python value (an index list)."""
    if isinstance(t, FakeTensor):
        raise CaptureError("a call reaches a tensor that is not among its arguments", why=f"its type is {var.type}")
    return BoundSymbol(Symbol("thunder.prims.structural.constant"), (Ref("constant", t),), outs=var)


def _over(op: BoundSymbol, mapping: dict[Var, Var]) -> BoundSymbol:
    """The operation on other variables, which makes others, too."""
    return replace(op.with_inputs(mapping), outs=tree.substitute(op.outs, mapping))


def _views(ops: Sequence[BoundSymbol], capture: Capture) -> dict[Var, BoundSymbol]:
    """The operations that only view their one argument's memory, by their one result."""
    makers = view_makers(ops, {var: place.storage for var, place in capture.places.items()})
    return {v: op for v, op in makers.items() if len(op.outputs) == 1}


def _with_views(
    backward: tuple[BoundSymbol, ...], final: set[Var], given: set[Var], views: dict[Var, BoundSymbol]
) -> tuple[BoundSymbol, ...]:
    """Backward takes views of forward values again, which costs nothing, instead of saving them beside the values."""
    taken: set[Var] = set()
    missing = set(live_in(backward, final)) - given
    while missing := {v for v in missing if v in views} - taken:
        taken |= missing
        missing = {v for view in missing for v in views[view].inputs} - given
    return (*(op for v, op in views.items() if v in taken), *backward)


def _without_double_transposes(ops: Sequence[BoundSymbol]) -> tuple[list[BoundSymbol], dict[Var, Var]]:
    """The transpose of a transpose is the matrix itself (derivatives of matrix products are full of them)."""
    sources: dict[Var, Var] = {}
    renamed: dict[Var, Var] = {}
    kept = []
    for op in ops:
        op = op.with_inputs(renamed)
        if op.sym.name == "aten.t" and op.inputs[0] in sources:
            renamed[op.outputs[0]] = sources[op.inputs[0]]
            continue
        if op.sym.name == "aten.t":
            sources[op.outputs[0]] = op.inputs[0]
        kept.append(op)
    return kept, renamed
