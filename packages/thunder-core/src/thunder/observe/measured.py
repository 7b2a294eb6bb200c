"""What measuring decided, as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from thunder.passes.decisions import Decision

if TYPE_CHECKING:
    from rich.table import Table

ORIGINS = {"measured": "measured now", "kept": "measured before", "order": "the order"}


def measured_table(decisions: Sequence[Decision]) -> Table:
    """The candidates of each different call with their times in microseconds, the choice, and where it comes from."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title="who is fastest", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for heading in ("call", "candidates, us", "runs on", "decided by"):
        table.add_column(heading, overflow="fold")
    for decision in decisions:
        times = "\n".join(f"{label} {cost.seconds * 1e6:.1f}" for label, cost in decision.costs.items())
        origin = f"{ORIGINS[decision.origin]}: {decision.why}" if decision.why else ORIGINS[decision.origin]
        call = f"{decision.what}{decision.signature}"
        for long, short in (("torch.nn.functional.", "F."), ("thunder.prims.structural.", "")):
            call = call.replace(long, short)
        table.add_row(call, times, decision.chosen, origin)
    return table
