"""Regions of one operation, as the core hands them to a fuser, from an operator and actual arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from tests.nvfuser.samples import REFERENCES, samples
from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.trace import Stage, Trace
from thunder.ir.types import Var
from thunder.lang.values import tensor_type, to_ir, to_torch

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.bool)

# Eager kernels round intermediate results of half precision here and there, and add up in another order.
TOLERANCE = {torch.bfloat16: {"rtol": 2e-2, "atol": 1e-2}, torch.float16: {"rtol": 3e-3, "atol": 1e-3}}


def overload(target: str) -> Any:
    """The operator of a name in a trace."""
    namespace, name, *rest = target.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), rest[0] if rest else "default")


class Region:
    """A region of one call. expected: what eager PyTorch returns. inputs: its tensors, by parameter."""

    def __init__(self, target: str, args: Any, kwargs: Any, device: str | None = None) -> None:
        self.inputs: list[torch.Tensor] = []
        self.expected = (REFERENCES.get(target) or overload(target))(*args, **kwargs)
        self._device = device
        self._params: list[Var] = []
        ir_args, ir_kwargs = tree.map_tree(self._param, args), tree.map_tree(self._param, kwargs)
        outs = tree.map_tree(self._out, self.expected)
        self.op = BoundSymbol(Symbol(target), tuple(ir_args), ir_kwargs, outs)
        result = tuple(v for v in tree.leaves(outs) if isinstance(v, Var))
        self.trace = Trace("region", tuple(self._params), (self.op,), result, Stage.LOWERED)

    @property
    def results(self) -> list[torch.Tensor]:
        """The tensors that eager PyTorch returns."""
        return [t for t in tree.leaves(self.expected) if isinstance(t, torch.Tensor)]

    def _param(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return to_ir(leaf)
        self.inputs.append(leaf)
        self._params.append(self._var(f"p{len(self._params)}", leaf))
        return self._params[-1]

    def _out(self, leaf: Any) -> Any:
        self._made = getattr(self, "_made", -1) + 1
        return self._var(f"v{self._made}", leaf) if isinstance(leaf, torch.Tensor) else None

    def _var(self, name: str, t: torch.Tensor) -> Var:
        type = tensor_type(t)
        return Var(name, replace(type, device=self._device) if self._device else type)


def calls(target: str, dtype: torch.dtype, device: str | None = None) -> list[Region]:
    """The sample calls that eager PyTorch runs, as regions."""
    found = []
    try:
        given = samples(target, dtype)
    except RuntimeError:  # a sample is made by an operator that takes no such dtype
        return []
    for args, kwargs in given:
        try:
            found.append(Region(target, args, kwargs, device))
        except RuntimeError:  # "not implemented for 'Bool'"
            continue
    return found


def unfused(region: Trace, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """What the operations of a region compute one by one, on a CPU."""
    values = dict(zip(region.params, inputs, strict=True))

    def value(leaf: Any) -> Any:
        if isinstance(leaf, Var):
            return values[leaf]
        known = to_torch(leaf)
        return torch.device("cpu") if isinstance(known, torch.device) else known

    for op in region.ops:
        run = REFERENCES.get(op.sym.name) or overload(op.sym.name)
        out = run(*tree.map_tree(value, op.args), **tree.map_tree(value, op.kwargs))
        made = zip(tree.leaves(op.outs), tree.leaves(out), strict=True)
        values.update((var, t) for var, t in made if isinstance(var, Var))
    return [values[var] for var in region.result]
