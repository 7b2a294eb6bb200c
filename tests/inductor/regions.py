"""Regions of one operation each, from what PyTorch dispatches while a program runs on real tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.trace import Stage, Trace
from thunder.ir.types import Var
from thunder.lang.names import canonical_name
from thunder.lang.values import tensor_type, to_ir


@dataclass(frozen=True)
class Call:
    """One call of an ATen operator, as a region. inputs: its tensors, by parameter. expected: what it returned."""

    op: BoundSymbol
    region: Trace
    inputs: tuple[torch.Tensor, ...]
    expected: tuple[torch.Tensor, ...]

    def __str__(self) -> str:
        return f"{self.op.sym}({', '.join(str(p.type) for p in self.region.params)}; {self.op.args})"


class Calls(TorchDispatchMode):
    """Collects the calls of operators that make new tensors and write into none."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Call] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = op(*args, **(kwargs or {}))
        results = list(_tensors(out))
        aliases = any(argument.alias_info is not None for argument in op._schema.arguments)
        strided = all(t.layout is torch.strided for t in (*_tensors((args, kwargs or {})), *results))
        if not aliases and strided and op.namespace == "aten" and results:
            self.made.append(_call(canonical_name(op), args, kwargs or {}, out))
        return out


def _call(name: str, args: Any, kwargs: Any, out: Any) -> Call:
    inputs: dict[int, tuple[Var, torch.Tensor]] = {}

    def param(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return to_ir(leaf)
        return inputs.setdefault(id(leaf), (Var(f"p{len(inputs)}", tensor_type(leaf.detach())), _copy(leaf)))[0]

    made = iter(range(1000))

    def value(leaf: Any) -> Any:
        return Var(f"v{next(made)}", tensor_type(leaf.detach())) if isinstance(leaf, torch.Tensor) else None

    outs = tree.map_tree(value, out)
    op = BoundSymbol(Symbol(name), tree.map_tree(param, tuple(args)), tree.map_tree(param, dict(kwargs)), outs)
    params = tuple(var for var, _ in inputs.values())
    region = Trace("region", params, (op,), tree.variables(outs), Stage.LOWERED)
    return Call(op, region, tuple(t for _, t in inputs.values()), tuple(map(_copy, _tensors(out))))


def _copy(t: torch.Tensor) -> torch.Tensor:
    """What the tensor is now, with its strides, whatever is written into it later."""
    memory = t.detach().untyped_storage().clone()
    return torch.empty(0, dtype=t.dtype).set_(memory, t.storage_offset(), t.shape, t.stride())


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree.leaves(value) if isinstance(leaf, torch.Tensor))
