"""Regions and operations as graphs of ATen operators, over fake tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from thunder.extend import (
    BoundSymbol,
    Number,
    NumberType,
    TensorType,
    Trace,
    Var,
    evaluated,
    fake_mode,
    leaves,
    map_tree,
    stand_in,
    to_torch,
)
from thunder_inductor import inductor


@dataclass(frozen=True)
class Graph:
    """A graph, with the inputs it was made from: fake tensors and symbolic integers.

    spent: the positions of those that may be overwritten.
    """

    module: GraphModule
    mode: FakeTensorMode
    inputs: tuple[Any, ...]
    spent: tuple[int, ...] = ()

    @property
    def results(self) -> tuple[torch.Tensor, ...]:
        """The fake tensors that it makes."""
        output = next(iter(reversed(self.module.graph.nodes)))
        return tuple(node.meta["val"] for node in output.args[0])

    @property
    def shares_memory(self) -> bool:
        """True if a result shares memory with an input or with another result."""
        tensors = [t for t in (*self.inputs, *self.results) if isinstance(t, torch.Tensor)]
        storages = [t.untyped_storage()._cdata for t in tensors]
        return any(storages.count(t.untyped_storage()._cdata) > 1 for t in self.results)

    def differs_from(self, results: Sequence[Var]) -> str:
        """Which of the results is of another type than said, and how; empty if none is."""
        for var, made in zip(results, self.results, strict=True):
            type = var.type
            assert isinstance(type, TensorType)
            shape, stride = map_tree(to_torch, (type.shape, type.stride))
            if (tuple(made.shape), tuple(made.stride()), made.dtype) != (shape, stride, dtype_of(type)):
                return f"{var.name} is {type} of strides {type.stride}, and Inductor makes {made}"
        return ""


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """No mode, no autocast and no autograd of the program that is being compiled."""
    with _disable_current_modes(), torch._C._DisableAutocast(), torch.inference_mode(False), torch.no_grad():
        yield


def graph_of(params: Sequence[Var], ops: Sequence[BoundSymbol], results: Sequence[Var]) -> Graph:
    """The graph of some operations. Raises what PyTorch raises for what cannot be traced."""

    def program(*given: Any) -> tuple[torch.Tensor, ...]:
        return _run_all(ops, dict(zip(params, given, strict=True)), results)

    return _traced(program, params)


def graph_of_region(region: Trace) -> Graph:
    """The graph of a region. Raises ValueError if it makes a result of another type than the region says.

    On a CPU it takes and makes uint8 for bool: Inductor's kernels load and store bools one by one.
    """

    def program(*given: Any) -> tuple[torch.Tensor, ...]:
        pairs = zip(region.params, given, strict=True)
        values = {v: value.to(torch.float32) != 0 if is_bool(v) else value for v, value in pairs}
        made = _run_all(region.ops, values, region.result)
        pairs = zip(region.results, made, strict=True)
        return tuple(t.to(torch.float32).to(torch.uint8) if is_bool(v) else t for v, t in pairs)

    graph = _traced(program, [_in_memory(v) for v in region.params])
    if reason := graph.differs_from([_in_memory(v) for v in region.results]):
        raise ValueError(reason)
    return replace(graph, spent=tuple(place for place, v in enumerate(region.params) if v in region.spent))


def is_byte(var: Var) -> bool:
    """True for tensors on a CPU that are uint8 in the graph of a region."""
    return is_bool(var) or (isinstance(var.type, TensorType) and (var.type.dtype, var.type.device) == ("uint8", "cpu"))


def is_bool(var: Var) -> bool:
    """True for tensors of bools on a CPU."""
    return isinstance(var.type, TensorType) and (var.type.dtype, var.type.device) == ("bool", "cpu")


def _in_memory(var: Var) -> Var:
    if not is_bool(var):
        return var
    assert isinstance(var.type, TensorType)
    return replace(var, type=replace(var.type, dtype="uint8"))


def _traced(program: Callable[..., tuple[torch.Tensor, ...]], params: Sequence[Var]) -> Graph:
    mode = fake_mode()
    with mode:
        inputs = tuple(map(stand_in, params))
    return Graph(inductor.decomposed(program, mode, inputs), mode, inputs)


def operator(op: BoundSymbol) -> torch._ops.OpOverload:
    """What an operation calls. Raises AttributeError if it is no operator of this PyTorch."""
    namespace, name, *overload = op.sym.name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload[0] if overload else "default")


def _run_all(ops: Sequence[BoundSymbol], values: dict[Var, Any], results: Sequence[Var]) -> tuple[torch.Tensor, ...]:
    for op in ops:
        _run(op, values)
    return tuple(values[v] for v in results)


def _run(op: BoundSymbol, values: dict[Var, Any]) -> None:
    """Call an operation on the values of its arguments, and add its results to them."""
    numbers = {var.name: value for var, value in values.items() if isinstance(var.type, NumberType)}

    def value(leaf: Any) -> Any:
        if isinstance(leaf, Number):
            return evaluated(leaf, numbers)
        return values[leaf] if isinstance(leaf, Var) else to_torch(leaf)

    made = operator(op)(*map_tree(value, op.args), **map_tree(value, op.kwargs))
    for out, tensor in zip(leaves(op.outs), leaves(made), strict=True):
        if isinstance(out, Var):
            assert isinstance(out.type, TensorType)
            values[out] = _laid_out(tensor, map_tree(value, out.type.stride))


def _laid_out(t: torch.Tensor, stride: tuple[Any, ...]) -> torch.Tensor:
    """A result in the strides that PyTorch's kernel gives it, if its decomposition gives others."""
    if t.stride() == stride:
        return t
    made = t.new_empty_strided(t.shape, stride)
    return torch.ops.aten.copy.default(made, t)


def dtype_of(type: Any) -> torch.dtype:
    """The dtype of tensors of a type."""
    assert isinstance(type, TensorType)
    return getattr(torch, type.dtype)
