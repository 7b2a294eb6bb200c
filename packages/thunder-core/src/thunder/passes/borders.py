"""What crosses the borders of regions before there are any, from what they may compute alone."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Trace
from thunder.ir.types import Var

Asks = Callable[[BoundSymbol], bool]


def read_outside(trace: Trace, is_cheap: Asks, is_view: Asks) -> set[Var]:
    """What is read, itself or a view of it, by operations that are in no region; and what the trace returns.

    is_cheap: whether an operation does nothing but what a region may compute. is_view: or nothing but view memory.
    """
    outside = set(trace.results)
    for op in reversed(trace.ops):
        if not outside.isdisjoint(op.outputs) if is_view(op) else not is_cheap(op):
            outside.update(op.inputs)
    return outside


def read_from_afar(
    ops: Iterable[BoundSymbol], is_cheap: Asks, views: Container[Var] = frozenset()
) -> Iterator[list[Var] | None]:
    """For each operation what it reads of an earlier region, with others between the two; None for one in no region.

    views: results that are as near as what they view.
    """
    rank: dict[Var, int] = {}  # even for what a region makes, odd for the rest; it rises from one to the other
    for op in ops:
        read = {v: rank.get(v, -1) for v in op.inputs}
        is_view = all(v in views for v in op.outputs)
        inside = not is_view and is_cheap(op)
        rises = ((0 if is_view else r % 2 == inside) + r for r in read.values())
        own = max(rises, default=0 if inside else -1)
        rank.update(dict.fromkeys(op.outputs, own))
        yield [v for v, r in read.items() if r % 2 == 0 and r < own] if inside else None
