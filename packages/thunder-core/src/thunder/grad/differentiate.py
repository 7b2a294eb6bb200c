"""Differentiating a program: forward operations that save what backward needs, and a tape to build backward from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass, replace

from thunder.grad.rule import Instance, Layouts, Rule
from thunder.grad.rules import Rules
from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol, Phase, Symbol
from thunder.ir.trace import Names, Stage, Trace
from thunder.ir.types import Const, TensorType, Var
from thunder.lang.values import contiguous, in_torch, is_dense, is_differentiable
from thunder.passes.cse import merged
from thunder.passes.dce import live, live_in
from thunder.passes.layouts import is_relayout


@dataclass(frozen=True)
class Entry:
    """One differentiated call on the tape: its rule, and the program's variables for the rule's formal ones."""

    call: BoundSymbol
    rule: Rule
    needs: tuple[bool, ...]
    variables: dict[Var, Var]

    @property
    def outs(self) -> tuple[Var | None, ...]:
        """The program's variable of each leaf the call returns."""
        return tuple(leaf if isinstance(leaf, Var) else None for leaf in tree.leaves(self.call.outs))


@dataclass(frozen=True)
class Tape:
    """A differentiated program.

    forward: its operations, in order. entries: the differentiated calls, in order.
    inputs: the parameters that gradients are wanted for. roots: the results that gradients may arrive at.
    """

    forward: tuple[BoundSymbol, ...]
    entries: tuple[Entry, ...]
    inputs: tuple[Var, ...]
    roots: tuple[Var, ...]
    names: Names
    rules: Rules


def differentiate(trace: Trace, roots: Sequence[Var], rules: Rules) -> Tape:
    """Differentiate the forward operations of a functional trace with respect to its parameters that require grad.

    roots: the variables that leave the program; those that depend on such a parameter become the tape's roots.
    """
    ops = [op for op in trace.ops if op.phase is Phase.FORWARD]
    inputs = tuple(v for v in trace.params if v.requires_grad)
    dependent = _dependent(ops, inputs)
    reaching = _reaching(ops, [v for v in roots if v in dependent], dependent)
    names = Names.of(trace)
    forward: list[BoundSymbol] = []
    entries: list[Entry] = []
    for op in ops:
        arriving = arriving_at(op, reaching)
        if not any(arriving):
            forward.extend(rules.expanded(op, names))  # now: recomputation must see the states that it touches
            continue
        needs = tuple(v in dependent for v in op.inputs)
        rule = rules.find(op, needs, arriving)
        variables = _emit_forward(op, rule, names, forward)
        entries.append(Entry(op, rule, needs, variables))
    kept = tuple(v for v in dict.fromkeys(roots) if v in dependent)
    leaving = set(roots)
    visible = {v for op in ops for v in op.outputs}
    once, same = merged(forward, lambda op: _is_shared(op, visible, leaving))
    if same:
        entries = [replace(e, variables={f: same.get(v, v) for f, v in e.variables.items()}) for e in entries]
    return Tape(tuple(once), tuple(entries), inputs, kept, names, rules)


def _is_shared(op: BoundSymbol, visible: Set[Var], leaving: Set[Var]) -> bool:
    """True if equal operations are run, and their results saved, once.

    So are those that make a tensor of none (indices, zeros), and copies to another memory format that only rules see:
    visible: what the program's own operations make, of which views may leave it.
    """
    if op.effects or not leaving.isdisjoint(op.outputs):
        return False
    return not op.inputs or (is_relayout(op) and visible.isdisjoint(op.outputs))


def _dependent(ops: Iterable[BoundSymbol], inputs: Iterable[Var]) -> set[Var]:
    """The variables through which gradients can flow to the inputs."""
    dependent = set(inputs)
    for op in ops:
        dependent.update(carried(op, dependent))
    return dependent


def carried(op: BoundSymbol, dependent: Set[Var]) -> list[Var]:
    """The results through which gradients flow, given the variables before it through which they do."""
    return [v for v in op.outputs if _carries_gradient(op, v)] if not dependent.isdisjoint(op.inputs) else []


def _carries_gradient(op: BoundSymbol, var: Var) -> bool:
    """Recorded calls know what requires grad; prims were recorded below autograd and do not."""
    type = var.type
    if not isinstance(type, TensorType) or not is_differentiable(type):
        return False
    return type.requires_grad or not op.sym.name.startswith(("torch.", "thunder."))


def _reaching(ops: Sequence[BoundSymbol], roots: Iterable[Var], dependent: set[Var]) -> set[Var]:
    """The dependent variables that some root depends on."""
    reaching = set(roots)
    for op in reversed(ops):
        if any(v in reaching and v in dependent for v in op.outputs):
            reaching.update(v for v in op.inputs if v in dependent)
    return reaching


def arriving_at(op: BoundSymbol, reaching: Collection[Var]) -> Layouts:
    """The gradients expected at the leaves of a call's result, laid out as autograd lays out new ones."""
    leaves = tree.leaves(op.outs)
    return tuple(fresh_layout(v.type) if isinstance(v, Var) and v in reaching else None for v in leaves)


def fresh_layout(type: object) -> TensorType:
    """The type of ``torch.empty_like`` of a value of the type: the strides of a dense tensor, else contiguous ones."""
    assert isinstance(type, TensorType)
    stride, known = type.stride, in_torch(type)
    if known.stride is not None and not is_dense(known):
        stride = contiguous(type.shape)
    return replace(type, stride=stride, requires_grad=False)


def _emit_forward(op: BoundSymbol, rule: Rule, names: Names, forward: list[BoundSymbol]) -> dict[Var, Var]:
    """Emit the rule's forward (or the call itself); the program's variables for the rule's formal ones."""
    instance = Instance.of(rule, op, names)
    if rule.forward is None:
        forward.append(op)
        return instance.variables
    selection = op.selection and op.selection.unclaimed
    forward.extend(instance.op(inner, op, selection=selection) for inner in rule.forward)
    forward.extend(instance.aliases(rule, op))
    return instance.variables


def backward(tape: Tape, arriving: Sequence[Var | None], name: str = "backward") -> Trace:
    """The backward program for one choice of arriving gradients (a variable for each root, None where none arrives).

    Its parameters are what it saves from forward, then the arriving gradients; its result is a gradient or None for
    each of the tape's inputs. Calls that no gradient reaches cost nothing.
    """
    builder = _Backward(tape.names, tape.rules)
    for root, gradient in zip(tape.roots, arriving, strict=True):
        if gradient is not None:
            builder.accumulate(root, gradient, None)
    for entry in reversed(tape.entries):
        builder.run(entry)
    result = tuple(builder.gradients.get(v) for v in tape.inputs)
    ops = live(builder.ops, {v for v in result if v is not None})
    given = tuple(g for g in arriving if g is not None)
    saved = tuple(v for v in live_in(ops, tree.variables(result)) if v not in given)
    return Trace(name, (*saved, *given), ops, result, Stage.JOINT, made_by="differentiate", boxed=True)


class _Backward:
    """Collects the backward operations of one program."""

    def __init__(self, names: Names, rules: Rules) -> None:
        self.ops: list[BoundSymbol] = []
        self.gradients: dict[Var, Var] = {}
        self._names = names
        self._rules = rules

    def accumulate(self, var: Var, gradient: Var, like: BoundSymbol | None) -> None:
        """Add a gradient to what has arrived at ``var``, in autograd's order: later contributions on the right."""
        known = self.gradients.get(var)
        self.gradients[var] = gradient if known is None else self._emit("aten.add.Tensor", (known, gradient), like)

    def run(self, entry: Entry) -> None:
        """Emit the backward of one call, if a gradient arrives at it."""
        outs = entry.outs
        given = [self.gradients.get(v) if v is not None else None for v in outs]
        if not any(g is not None for g, want in zip(given, entry.rule.cotangents) if want is not None):
            return
        arriving = [
            (g or self._zeros(want, entry.call)) if want is not None else None
            for g, want in zip(given, entry.rule.cotangents, strict=True)
        ]
        rule, arriving = self._fitting(entry, arriving)
        instance = Instance(self._names, dict(entry.variables))
        for formal, gradient in zip(rule.cotangents, arriving, strict=True):
            if formal is not None and gradient is not None:
                instance.bind(formal, gradient)
        selection = entry.call.selection and entry.call.selection.unclaimed
        self.ops.extend(instance.op(op, entry.call, phase=Phase.BACKWARD, selection=selection) for op in rule.backward)
        for formal, result, need in zip(rule.inputs, rule.gradients, entry.needs, strict=True):
            if need and result is not None:
                self.accumulate(instance(formal), instance(result), entry.call)

    def _fitting(self, entry: Entry, arriving: list[Var | None]) -> tuple[Rule, list[Var | None]]:
        """The rule for gradients of these layouts; where none fits the forward that ran, they are copied to fit."""
        layouts = tuple(_plain(g.type) if g is not None else None for g in arriving)
        if layouts == tuple(_plain(want.type) if want is not None else None for want in entry.rule.cotangents):
            return entry.rule, arriving
        rule = self._rules.find(entry.call, entry.needs, layouts)
        if (rule.forward, rule.outs) == (entry.rule.forward, entry.rule.outs):
            return rule, arriving
        copies = [
            self._laid_out(g, want, entry.call) if g is not None and want is not None else None
            for g, want in zip(arriving, entry.rule.cotangents, strict=True)
        ]
        return entry.rule, list(copies)

    def _laid_out(self, gradient: Var, want: Var, like: BoundSymbol) -> Var:
        if _plain(gradient.type) == _plain(want.type):
            return gradient
        out = Var(self._names.numbered("a"), want.type)
        args = (gradient, _plain(want.type).stride)
        self.ops.append(self._op("thunder.prims.structural.laid_out", args, out, like))
        return out

    def _zeros(self, want: Var, like: BoundSymbol) -> Var:
        type = replace(_plain(want.type), stride=contiguous(_plain(want.type).shape))
        out = Var(self._names.numbered("a"), type)
        factory = {"dtype": Const(f"torch.{type.dtype}"), "device": Const(f"torch.device('{type.device}')")}
        self.ops.append(replace(self._op("torch.zeros", (type.shape,), out, like), kwargs=factory))
        return out

    def _emit(self, name: str, args: tuple[Var, ...], like: BoundSymbol | None) -> Var:
        op = self._op(name, args, None, like)
        out = Var(self._names.numbered("a"), self._rules.type_of(op))
        self.ops.append(replace(op, outs=out))
        return out

    def _op(self, name: str, args: tuple[object, ...], out: Var | None, like: BoundSymbol | None) -> BoundSymbol:
        source = like.source if like is not None else None
        return BoundSymbol(Symbol(name), args, outs=out, phase=Phase.BACKWARD, source=source)


def _plain(type: object) -> TensorType:
    assert isinstance(type, TensorType)
    return type.detached
