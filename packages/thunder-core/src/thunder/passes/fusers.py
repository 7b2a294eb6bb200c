"""The fusers of one compilation, and asking them: an answer that fails is a no, told once."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Trace
from thunder.ir.types import TensorType
from thunder.lang.numbers import compiling
from thunder.lang.values import by_example
from thunder.passes.costs import is_long, is_single, saves
from thunder.passes.regions import detached, region_of
from thunder.passes.reproducers import report_failure
from thunder.plugins.options import FUEL
from thunder.plugins.spec import ClaimContext, Executor, Fuser, No, Yes, resolve


@dataclass(frozen=True)
class ActiveFuser:
    """An executor that fuses, with the context that it is asked in. fuel: how many regions it may run; None: any."""

    executor: Executor
    cx: ClaimContext
    fuel: int | None = None

    @property
    def name(self) -> str:
        return self.executor.name

    @property
    def spec(self) -> Fuser:
        assert self.executor.fuser is not None
        return self.executor.fuser

    @functools.cached_property
    def key(self) -> Hashable:
        """Equal for fusers that make the same of a region."""
        return (self.name, self.spec, tuple(sorted(self.cx.options.items())), self.cx.cache_key)

    def is_asked_for(self, op: BoundSymbol) -> bool:
        """True for ATen operations and the executor's own: others are what they are made of, or are not fused."""
        return op.sym.name.startswith("aten.") or self.executor.op(op.sym.name) is not None

    def supports(self, op: BoundSymbol, measured: bool = False) -> bool:
        """True if a lowered operation may be part of a region. measured: of one that is timed."""
        if not self.is_asked_for(op) or any(e.state.name not in self.spec.absorbs for e in op.effects):
            return False
        if op.is_symbolic and not self.spec.symbolic:
            return False
        types = [v.type for v in (*op.inputs, *op.outputs)]
        if any(isinstance(type, TensorType) and not by_example(type).numel for type in types):
            return False
        try:
            answer = _answer(self.spec.supports, replace(self.cx, measured=measured), op)
        except Exception as error:
            self.report(f"could not say whether it supports {op.sym}", _alone(op), error)
            return False
        return isinstance(answer, Yes)

    def pays(self, region: Trace) -> Yes | No:
        """Whether a region is worth fusing: by the core's model, then by the fuser's own.

        Of one operation the model knows nothing: to time it, or to go by what the fuser says of it, is worth it where
        its work takes longer than its call.
        """
        gain = saves(region, self.spec.overhead)
        if gain <= 0 and not (is_single(region) and is_long(region)):
            return No(f"it would cost {-gain:.1f} us more than its operations one by one")
        if self.spec.pays is None:
            return Yes()
        try:
            answer: Yes | No = resolve(self.spec.pays)(self.cx, region)
        except Exception as error:
            self.report("could not say whether a region pays", region, error)
            return No(f"it failed: {error}")
        return answer

    def is_faster_alone(self, op: BoundSymbol) -> bool:
        """True if it says that it runs a lowered operation that it supports faster than PyTorch does."""
        if self.spec.alone is None:
            return False
        try:
            return isinstance(_answer(self.spec.alone, self.cx, op), Yes)
        except Exception as error:
            self.report(f"could not say whether it is faster for {op.sym}", _alone(op), error)
            return False

    def report(self, what: str, region: Trace, error: Exception) -> None:
        """Tell that it failed on a region; see ``report_failure``."""
        report_failure(self.executor, self.cx.options, what, region, error)

    def compile(self, region: Trace) -> Any:
        """What the fuser makes of a region: a callable, or a future of one. Raises whatever it raises."""
        return resolve(self.spec.compile)(self.cx, region)


def active_fusers(
    executors: Sequence[Executor], options: Mapping[str, Mapping[str, Any]], grad_mode: bool
) -> tuple[ActiveFuser, ...]:
    """The fusers among executors, in their order."""
    return tuple(
        _active(executor, options.get(executor.name, {}), grad_mode)
        for executor in executors
        if executor.fuser is not None
    )


def _active(executor: Executor, options: Mapping[str, Any], grad_mode: bool) -> ActiveFuser:
    own = MappingProxyType({name: value for name, value in options.items() if name != FUEL.name})
    cx = ClaimContext(options=own, cache_key=executor.key(options), grad_mode=grad_mode)
    return ActiveFuser(executor, cx, options.get(FUEL.name))


def _answer(question: str, cx: ClaimContext, op: BoundSymbol) -> Yes | No:
    """What a fuser says of an operation, which it sees as that of a region."""
    region, numbers = detached(_alone(op))
    with compiling(numbers):
        answer: Yes | No = resolve(question)(cx, region.ops[0])
    return answer


def _alone(op: BoundSymbol) -> Trace:
    return region_of([op], {}, op.outputs)[0]
