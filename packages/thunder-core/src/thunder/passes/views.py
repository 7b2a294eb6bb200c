"""Views of views, taken at once: each call takes a microsecond or more, and most lead to nothing but another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import torch

from thunder.capture.fakes import run_on
from thunder.errors import CaptureError
from thunder.grad.rule import formal_call
from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol, Phase, Symbol
from thunder.ir.trace import Trace
from thunder.ir.types import TensorType, Var
from thunder.lang.numbers import fake_mode
from thunder.lang.values import empty
from thunder.passes.dce import live


class Views:
    """Shortens the traces of one compilation."""

    def __init__(self) -> None:
        self._memo: dict[Hashable, bool] = {}

    def shortened(self, trace: Trace) -> Trace:
        """The lowered trace with one call for each run of views that all begin where its base does.

        A view that is like its base is the base, unless it is a result. The identical trace if there are no such runs.
        """
        readers = Counter(v for op in trace.ops for v in op.inputs) + Counter(trace.results)
        bases: dict[Var, Var] = {}  # of each view, what it may be taken of, past views that nobody else reads
        same: dict[Var, Var] = {}
        ops: list[BoundSymbol] = []
        for op in trace.ops:
            op = op.with_inputs(same)
            if not self._is_view(op):
                ops.append(op)
                continue
            (base,), out = op.inputs, op.outs
            bases[out] = bases[base] if base in bases and readers[base] == 1 else base
            if _steps(out) == _steps(bases[out]) and out not in trace.results:
                same[out] = bases[out]
            else:
                ops.append(op if bases[out] is base else taken_of(op, bases[out]))
        if not same and all(op is old for op, old in zip(ops, trace.ops, strict=True)):
            return trace
        return trace.with_ops(live(ops, trace.results), made_by="views")

    def _is_view(self, op: BoundSymbol) -> bool:
        """True if its one result is a view of its one argument that begins where that does."""
        if op.is_claimed or not op.sym.name.startswith(("torch.", "aten.")) or len(op.inputs) != 1:
            return False
        if op.effects or op.is_symbolic or op.phase is Phase.EPILOGUE:
            return False
        if not isinstance(op.outs, Var) or not all(isinstance(v.type, TensorType) for v in (*op.inputs, op.outs)):
            return False
        call, inputs = formal_call(op, (False,))
        key = (call.sym.name, tree.freeze((call.args, call.kwargs)))
        if key not in self._memo:
            self._memo[key] = _begins_at_base(call, *inputs)
        return self._memo[key]


def _begins_at_base(call: BoundSymbol, base: Var) -> bool:
    assert isinstance(base.type, TensorType)
    if base.type.stride is None:
        return False
    try:
        with fake_mode(), torch._C._DisableAutocast(), torch.no_grad():
            given = empty(base.type)
            made = run_on(call, {base: given})
    except (CaptureError, RuntimeError):
        return False
    if made.layout is not torch.strided or made.dtype != given.dtype or made.is_conj() or made.is_neg():
        return False
    shared = made.untyped_storage()._cdata == given.untyped_storage()._cdata
    return shared and made.storage_offset() == given.storage_offset()


def _steps(var: Var) -> tuple[Any, Any]:
    assert isinstance(var.type, TensorType)
    return var.type.shape, var.type.stride


def taken_of(op: BoundSymbol, base: Var) -> BoundSymbol:
    """What sees the memory of ``base``, from its beginning, in the sizes and strides of the result of ``op``."""
    shape, stride = _steps(op.outs)
    args = (base, list(shape), list(stride))
    return replace(op, sym=Symbol("aten.as_strided"), args=args, kwargs={}, call="torch:as_strided")
