"""Measured fusing: a region slower than its operations one by one is not fused, and nothing joins one in vain."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from thunder.ir.types import TensorType
from thunder.passes.costs import is_single
from thunder.passes.decisions import Decision
from thunder.passes.measure import Candidate, Measurer
from thunder.passes.regions import region_key
from thunder.runtime.library import LIMIT, CompiledRegion

UNFUSED = "torch"
"""The label of a region's operations one by one."""
APART = "apart"
"""The label of what joined a region, and the rest of it as it would run without that."""


def is_slower(region: CompiledRegion, measurer: Measurer) -> bool:
    """True if a compiled region loses against its operations one by one. One that touches state is not measured.

    What was joined was faster than the fastest without.
    """
    if not _is_measurable(region) or _joined(region, measurer) is not None:
        return False
    name = region.fuser.name
    made = {name: lambda: Candidate(region.function()), UNFUSED: lambda: Candidate(region.unfused)}
    candidates = {label: made[label] for label in _labels(region)}
    decision = measurer.decide(f"{name}.region", signature(region), candidates, _types(region), region.spent)
    return decision.chosen == UNFUSED


def may_win(region: CompiledRegion, measurer: Measurer) -> bool:
    """False for one that need not be compiled: it was slower before, or is one operation that cannot be timed."""
    if not _is_measurable(region):
        return not is_single(region.region)
    known = measurer.kept(f"{region.fuser.name}.region", signature(region), _labels(region))
    if known is None:
        return measurer.has_time or not is_single(region.region)
    return known.chosen != UNFUSED


def _labels(region: CompiledRegion) -> list[str]:
    """The candidates, first what runs if they are alike: one operation is a region only if that is faster."""
    name = region.fuser.name
    return [UNFUSED, name] if is_single(region.region) else [name, UNFUSED]


def gains(region: CompiledRegion, apart: Callable[[CompiledRegion], Callable[..., Any]], measurer: Measurer) -> bool:
    """True if a region is faster than without what joined it. apart: makes what runs instead, if it is open."""
    if not _is_measurable(region):
        return False
    name = region.fuser.name
    candidates = {APART: lambda: Candidate(apart(region)), name: lambda: Candidate(region.function())}
    return measurer.decide(f"{name}.region", signature(region), candidates, _types(region)).chosen == name


def is_open(region: CompiledRegion, measurer: Measurer) -> bool:
    """True if that has to be measured, and there is time for it."""
    return _is_measurable(region) and measurer.has_time and _joined(region, measurer) is None


def _joined(region: CompiledRegion, measurer: Measurer) -> Decision | None:
    """What is known of a region that something joined."""
    name = region.fuser.name
    return measurer.kept(f"{name}.region", signature(region), [APART, name])


@functools.lru_cache(maxsize=LIMIT)
def signature(region: CompiledRegion) -> str:
    """Its operations and types for people, and a digest of all that it computes."""
    digest = hashlib.sha256(repr(region_key(replace(region.region, spent=()))).encode()).hexdigest()[:16]
    names = ", ".join(op.sym.name.removeprefix("aten.") for op in region.region.ops)
    return f"({names}) where {', '.join(f'{p.name}: {p.type}' for p in region.region.params)}, {digest}"


def _types(region: CompiledRegion) -> list[TensorType]:
    return [p.type for p in region.region.params if isinstance(p.type, TensorType)]


def _is_measurable(region: CompiledRegion) -> bool:
    trace = region.region
    return not any(op.effects for op in trace.ops) and len(_types(region)) == len(trace.params)
