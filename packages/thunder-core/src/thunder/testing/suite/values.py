"""Running the final traces operation by operation: what comes out is what they say, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Trace
from thunder.ir.types import NumberType, OpaqueType, TensorType, Var
from thunder.lang.values import empty, tensor_type, to_torch
from thunder.plugins.spec import Claim, resolve
from thunder.runtime.codegen import compile_trace
from thunder.testing.suite.samples import Sample
from thunder.testing.suite.subject import Subject, scheduled


@dataclass(frozen=True)
class Run:
    """One operation that ran: its actual arguments and results, and what it changed of each state's content."""

    op: BoundSymbol
    args: list[Any]
    outs: list[Any]
    versions: list[int]
    changed: frozenset[Var]


def runs(subject: Subject, sample: Sample, watch: bool = False) -> Iterator[Run]:
    """The executor's operations in a training step of a sample, as they run. watch: look into states (slow)."""
    jitted = subject.jit(sample)
    jitted(*sample.inputs())
    for trace in scheduled(jitted):
        yield from _interpreted(subject, trace, watch)


def test_values_have_the_types_of_the_trace(subject: Subject, claim: Claim) -> None:
    """What ``meta`` says of a result is what ``impl`` makes: shape, strides, dtype and device."""
    for sample in subject.taken(claim):
        for run in runs(subject, sample):
            for out, var in zip(run.outs, tree.leaves(run.op.outs), strict=True):
                if isinstance(var, Var) and isinstance(var.type, TensorType):
                    assert isinstance(out, torch.Tensor), f"{run.op.sym} for {sample} returns {out!r} for {var}"
                    said, made = (t.detached for t in (var.type, tensor_type(out)))
                    assert made == said, f"{run.op.sym} for {sample}: strides {made.stride}, said {said.stride}"


def test_arguments_are_left_alone(subject: Subject, claim: Claim) -> None:
    """No operation of the executor writes into its arguments."""
    for sample in subject.taken(claim):
        for run in runs(subject, sample):
            now = [t._version for t in run.args if isinstance(t, torch.Tensor)]
            assert now == run.versions, f"{run.op.sym} for {sample} writes into an argument"


def _interpreted(subject: Subject, trace: Trace, watch: bool) -> Iterator[Run]:
    values = {param: _given(subject, param) for param in trace.params}
    for op in trace.ops:
        args = tree.map_tree(lambda leaf: values[leaf] if isinstance(leaf, Var) else to_torch(leaf), op.args)
        kwargs = tree.map_tree(lambda leaf: values[leaf] if isinstance(leaf, Var) else to_torch(leaf), op.kwargs)
        tensors = [leaf for leaf in tree.leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        versions = [t._version for t in tensors]
        states = {v: values[v] for v in op.inputs if isinstance(v.type, OpaqueType)} if watch else {}
        before = {v: content(state) for v, state in states.items()}
        with torch.no_grad():
            out = callable_of(op)(*args, **kwargs)
        changed = frozenset(v for v, state in states.items() if content(state) != before[v])
        outs = list(tree.leaves(out))
        values.update((v, o) for v, o in zip(tree.leaves(op.outs), outs) if isinstance(v, Var))
        if op.sym.name.startswith(f"{subject.executor.name}."):
            yield Run(op, tensors, outs, versions, changed)


def callable_of(op: BoundSymbol) -> Callable[..., Any]:
    """What runs a lowered operation; of a region, its operations one by one."""
    if op.fused is not None:
        return compile_trace(op.fused)
    assert op.call is not None
    return resolve(op.call)


def _given(subject: Subject, param: Var) -> Any:
    if isinstance(param.type, TensorType):
        t = empty(param.type)
        return t.copy_(torch.randn(t.shape)) if t.is_floating_point() or t.is_complex() else t.zero_()
    if isinstance(param.type, NumberType):
        return param.type.example
    kind = subject.executor.state(param.type.name)
    return resolve(kind.init)(param.type.of) if kind is not None and kind.init else None


def content(value: Any, depth: int = 4) -> Any:
    """A comparable picture of a state: of tensors, containers and attributes, some levels deep."""
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), str(value.dtype), value.detach().cpu().flatten().tolist())
    if depth == 0 or isinstance(value, (type(None), bool, int, float, str, bytes)):
        return repr(value)
    if isinstance(value, dict):
        return [(repr(key), content(item, depth - 1)) for key, item in value.items()]
    if isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        return [content(item, depth - 1) for item in value]
    names = [*getattr(value, "__dict__", {}), *getattr(type(value), "__slots__", ())]
    return [(name, content(getattr(value, name, None), depth - 1)) for name in names]
