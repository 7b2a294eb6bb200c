"""The memory format of what is saved: that of what forward computes it from, and backward uses it for.

Otherwise a region of forward would read one format and write another, and one of backward the other way round, which
is far slower than to go through memory in one order.
"""

from __future__ import annotations

from collections.abc import Sequence

from thunder.grad.mincut import Facts, read_outside
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Names, Trace
from thunder.passes.layouts import formats_around, relayout


def in_formats_around(
    forward: Sequence[BoundSymbol], programs: Sequence[Trace], facts: Facts, names: Names
) -> list[BoundSymbol]:
    """Copies of saved values in other memory formats, for forward to make and save instead.

    programs: the backward programs, whose parameters are what is saved.
    """
    formats = formats_around(forward, facts.is_cheap)
    if not formats:
        return []
    others = read_outside(programs, facts) | facts.free
    makers = {v: op for op in forward for v in op.outputs if v in formats and v not in others}
    saved = [v for v in dict.fromkeys(v for p in programs for v in p.params) if v in makers]
    return [relayout(makers[v], v, formats[v], names) for v in saved]
