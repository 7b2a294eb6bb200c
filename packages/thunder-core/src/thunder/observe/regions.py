"""The fused regions of a compiled program, as ``thunder.explain`` tells of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from thunder.passes.costs import fused_cost, unfused_cost

if TYPE_CHECKING:
    from rich.table import Table

    from thunder.ir.types import Var
    from thunder.runtime.library import CompiledRegion
    from thunder.runtime.program import CompilationRecord


def fused_results(record: CompilationRecord) -> dict[Var, str]:
    """Who runs the region that makes it, for each variable of the forward program that is made inside of one."""
    calls = [(op, op.selection.executor) for op in record.traces[-1].ops if op.fused is not None and op.selection]
    by_result = {v: executor for op, executor in calls for v in op.outputs}
    hidden = " or ".join(sorted(set(by_result.values())))  # what makes a variable that has no name outside
    known = {v for op in record.traces[-1].ops if op.fused is None for v in op.outputs}
    made = (v for trace in record.traces for op in trace.ops for v in op.outputs)
    return {v: by_result.get(v, hidden) for v in made if v not in known} if calls else {}


def regions_table(regions: Mapping[CompiledRegion, int]) -> Table:
    """One row for each different region, the most called first: its operations, the megabytes that its calls move."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    calls = sum(regions.values())
    title = f"fused regions: {calls}, of which {len(regions)} different"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("operations", overflow="fold")
    for heading in ("MB unfused", "MB fused", "compiled in s"):
        table.add_column(heading, justify="right")
    table.add_column("runs on", overflow="fold")
    for region, count in sorted(regions.items(), key=lambda item: -item[1]):
        table.add_row(f"{count}x", *_cells(region, count))
    return table


def _cells(region: CompiledRegion, count: int) -> tuple[str, str, str, str, str]:
    before, after = unfused_cost(region.region).moved, fused_cost(region.region).moved
    runs_on = f"unfused: {region.failure}" if region.failure else region.fuser.name
    moved, left = (f"{count * size / 1e6:.2f}" for size in (before, after))
    return _operations(region), moved, left, f"{region.seconds:.2f}", runs_on


def _operations(region: CompiledRegion) -> str:
    names = Counter(op.sym.name.removeprefix("aten.").partition(".")[0] for op in region.region.ops)
    return ", ".join(f"{count} {name}" if count > 1 else name for name, count in names.items())
