"""A fuser that runs anywhere: its regions run the ATen operators that they hold, and it fails where it is told to."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch

from thunder.extend import (
    BoundSymbol,
    ClaimContext,
    Executor,
    Fuser,
    No,
    Number,
    NumberType,
    Option,
    Trace,
    Var,
    Yes,
    evaluated,
    leaves,
    map_tree,
    number_params,
    stand_in,
    to_torch,
)
from thunder.prims.facts import is_view

_HERE = "thunder.testing.fakes.fuser"
_FAILURES = ("supports", "pays", "alone", "compile", "later", "run", "end")

FUSER = Executor(
    name="fakefuser",
    summary="regions that run one operation after the other, for tests",
    fuser=Fuser(
        supports=f"{_HERE}:supports",
        compile=f"{_HERE}:compile_region",
        pays=f"{_HERE}:pays",
        alone=f"{_HERE}:alone",
        show=f"{_HERE}:show",
        symbolic=True,
        overhead=0.0,
    ),
    options=(
        Option("fails", str, "", "the step that raises", choices=("", *_FAILURES)),
        Option("everything", bool, False, "support every operator"),
        Option("alone", bool, False, "fuse one operation as well"),
        Option("skip", str, "", "the names of operators that it does not support, separated by commas"),
        Option("joins", str, "", "the names of operators that it supports only where regions are timed"),
        Option("asks", str, "", "what it asks about the first number of a region, n0, when it compiles one"),
        Option("wrong", str, "", "the name of an operator after which it adds one to what it computes"),
    ),
)

COMPILED: list[Trace] = []
"""Every region that was compiled, in order."""

RUNS: list[Trace] = []
"""The region of every call."""


def supports(cx: ClaimContext, op: BoundSymbol) -> Yes | No:
    """What PyTorch says is elementwise or a reduction, and what it makes of those."""
    _fail(cx, "supports")
    _sizes(op)
    name = op.sym.name
    if name in cx.options["skip"].split(","):
        return No("it is to be skipped")
    if name in cx.options["joins"].split(","):
        return Yes() if cx.measured else No("it gains nothing")
    tags = _operator(name).tags
    if cx.options["everything"] or is_view(_operator(name)):
        return Yes()
    if torch.Tag.pointwise in tags or torch.Tag.reduction in tags or name in _MORE:
        return Yes()
    return No(f"{name} is neither elementwise nor a reduction")


def _sizes(op: BoundSymbol) -> list[Any]:
    """The sizes of the tensors of an operation, symbolic integers included: it looks at nothing else to make them."""
    given = {param.name: stand_in(param) for param in number_params()}
    shapes = [getattr(v.type, "shape", ()) for v in (*op.inputs, *op.outputs)]
    return [evaluated(size, given) if isinstance(size, Number) else size for size in leaves(shapes)]


_MORE = frozenset({
    "aten.native_layer_norm", "aten.native_layer_norm_backward", "aten.gelu_backward", "aten._softmax",
    "aten._softmax_backward_data", "aten._log_softmax", "aten._log_softmax_backward_data", "aten.cat", "aten.clone",
    "aten._to_copy", "aten.where.self", "aten.zeros", "aten.full", "aten.ones",
})  # fmt: skip


def pays(cx: ClaimContext, region: Trace) -> Yes | No:
    """Always."""
    _fail(cx, "pays")
    return Yes()


def alone(cx: ClaimContext, op: BoundSymbol) -> Yes | No:
    """If told so."""
    _fail(cx, "alone")
    return Yes() if cx.options["alone"] else No("it is as fast by PyTorch")


def compile_region(cx: ClaimContext, region: Trace) -> Callable[..., Any] | Future[Callable[..., Any]]:
    """The region, as a function that looks at nothing but the region."""
    _fail(cx, "compile")
    COMPILED.append(region)
    numbers = {param.name: stand_in(param) for param in region.params if isinstance(param.type, NumberType)}
    if numbers and cx.options["asks"]:
        bool(eval(cx.options["asks"], numbers))
    run = _interpreter(cx, region)
    if cx.options["fails"] != "later":
        return run
    future: Future[Callable[..., Any]] = Future()
    future.set_exception(RuntimeError("told to fail when it is waited for"))
    return future


def show(cx: ClaimContext, region: Trace) -> str:
    """The operators of a region."""
    return ", ".join(op.sym.name for op in region.ops)


def _interpreter(cx: ClaimContext, region: Trace) -> Callable[..., Any]:
    def run(*args: Any) -> tuple[torch.Tensor, ...]:
        RUNS.append(region)
        _fail(cx, "run")
        values: dict[Var, Any] = dict(zip(region.params, args, strict=True))
        numbers = {param.name: values[param] for param in region.params if isinstance(param.type, NumberType)}

        def value(leaf: Any) -> Any:
            if isinstance(leaf, Number):
                return evaluated(leaf, numbers)
            return values[leaf] if isinstance(leaf, Var) else to_torch(leaf)

        for op in region.ops:
            out = _operator(op.sym.name)(*map_tree(value, op.args), **map_tree(value, op.kwargs))
            if op.sym.name == cx.options["wrong"]:
                out = out + 1
            _assign(op.outs, out, values)
        results = [values[v] for v in region.result]
        for param, arg in zip(region.params, args, strict=True):
            if param in region.spent:
                _overwrite(arg, results)
        _fail(cx, "end")
        return tuple(results)

    return run


def _overwrite(spent: torch.Tensor, results: list[torch.Tensor]) -> None:
    """Let a result lie in the memory of a dead argument; if none fits, make sure that whoever reads it finds out."""
    memories = [result.untyped_storage().data_ptr() for result in results]
    for place, (result, memory) in enumerate(zip(results, memories, strict=True)):
        fits = (result.dtype, result.numel()) == (spent.dtype, spent.numel()) and memories.count(memory) == 1
        if fits and memory != spent.untyped_storage().data_ptr():
            results[place] = _beside(spent, result).copy_(result)
            return
    if spent.untyped_storage().data_ptr() not in memories:
        spent.fill_(torch.nan if spent.is_floating_point() or spent.is_complex() else 1)


def _beside(spent: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """A tensor like the result in the memory of the argument, and for autograd no view of it."""
    memory, offset = spent.untyped_storage(), spent.storage_offset()
    return torch.empty(0, dtype=result.dtype, device=result.device).set_(memory, offset, result.shape, result.stride())


def _assign(outs: Any, value: Any, values: dict[Var, Any]) -> None:
    if isinstance(outs, Var):
        values[outs] = value
    elif isinstance(outs, (tuple, list)):
        for out, item in zip(outs, value, strict=True):
            _assign(out, item, values)


def _operator(name: str) -> Any:
    namespace, op, *overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), op), overload[0] if overload else "default")


def _fail(cx: ClaimContext, step: str) -> None:
    if cx.options["fails"] == step:
        raise RuntimeError(f"told to fail in {step}")
