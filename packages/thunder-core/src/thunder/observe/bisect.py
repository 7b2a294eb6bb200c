"""Finding the fused region that makes a result wrong: the first with which a program differs from itself unfused."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

import thunder
from thunder.errors import ThunderError
from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol, Phase
from thunder.ir.trace import Stage
from thunder.observe.history import history_of
from thunder.plugins import registry, select_executors


@dataclass(frozen=True)
class Culprit:
    """A region that makes a program differ. number: its place among the ``total`` regions; difference: in words."""

    call: BoundSymbol
    number: int
    total: int
    difference: str


def bisect(
    function: Callable[..., Any],
    arguments: Callable[[], tuple[Any, ...]],
    executors: Any = None,
    options: Mapping[str, Any] | None = None,
    fuser: str | None = None,
) -> Culprit | None:
    """The first fused region with which results or gradients of ``function(*arguments())`` are not close to unfused.

    arguments: makes them anew, from the same seed each time. fuser: the executor to look at; by default the first one
    that fuses.
    None if no region makes a difference. Raises ThunderError if no executor fuses.
    """
    name = fuser or _first_fuser(executors)

    def run(fuel: int | None) -> _Run:
        settings = {**(options or {}), f"{name}.fuel": fuel}
        return _Run.of(function, arguments, executors, settings)

    unfused, good, best = run(0), 0, run(None)
    total = bad = len(best.calls)
    if not total or (difference := _difference(unfused, best)) is None:
        return None
    before = unfused
    while bad - good > 1:
        middle = run((good + bad) // 2)
        found = _difference(unfused, middle)
        if found is None:
            good, before = (good + bad) // 2, middle
        else:
            bad, best, difference = (good + bad) // 2, middle, found
    known = {_place(call) for call in before.calls}
    call = next(call for call in best.calls if _place(call) not in known)
    return Culprit(call, bad, total, difference)


@dataclass(frozen=True)
class _Run:
    """What a run gave, by name, and the calls of fused regions in its programs."""

    values: dict[str, torch.Tensor]
    calls: tuple[BoundSymbol, ...]

    @classmethod
    def of(cls, function: Any, arguments: Callable[[], tuple[Any, ...]], executors: Any, options: Any) -> _Run:
        target = copy.deepcopy(function) if isinstance(function, torch.nn.Module) else function
        jitted = thunder.jit(target, executors=executors, options=options)
        torch.manual_seed(0)
        given = arguments()
        results = [leaf for leaf in tree.leaves(jitted(*given)) if isinstance(leaf, torch.Tensor)]
        values = {f"result {place}": result.detach().clone() for place, result in enumerate(results)}
        ends = [result.sum() for result in results if result.requires_grad]
        if ends:
            torch.autograd.backward(ends)
        leaves = {f"argument {place}": leaf for place, leaf in enumerate(tree.leaves(given))}
        if isinstance(target, torch.nn.Module):
            leaves.update(target.named_parameters())
        for label, leaf in leaves.items():
            if isinstance(leaf, torch.Tensor) and leaf.is_leaf and leaf.grad is not None:
                values[f"gradient of {label}"] = leaf.grad
        last = [t for r in history_of(jitted).records for t in (*r.traces[-1:], *_scheduled(r.backward_traces))]
        return cls(values, tuple(op for trace in last for op in trace.ops if op.fused is not None))


def _scheduled(traces: list[Any]) -> list[Any]:
    return [trace for trace in traces if trace.stage is Stage.SCHEDULED]


def _place(call: BoundSymbol) -> tuple[Phase, Any]:
    return call.phase, call.outs


def _first_fuser(executors: Any) -> str:
    found = [executor.name for executor in select_executors(executors, registry()) if executor.fuser is not None]
    if not found:
        raise ThunderError("nothing is fused", why="no selected executor has a fuser", fix="name one in executors=")
    return found[0]


def _difference(expected: _Run, found: _Run) -> str | None:
    for label, value in expected.values.items():
        try:
            torch.testing.assert_close(found.values[label], value, equal_nan=True)
        except AssertionError as error:
            return f"{label}: {' '.join(str(error).split())}"
    return None
