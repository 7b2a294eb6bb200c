"""Dead-code elimination."""

from __future__ import annotations

from thunder.ir.effects import Access
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Trace


def dce(trace: Trace) -> Trace:
    """Drops operations whose outputs nobody reads and that change no state; the identical trace if there are none.

    A random draw stays even if its result is unused, as in eager: it moves the generator, which is a WRITE.
    """
    needed = set(trace.results)
    kept = []
    for op in reversed(trace.ops):
        if _changes_state(op) or not needed.isdisjoint(op.outputs):
            needed.update(op.inputs)
            kept.append(op)
    return trace.with_ops(reversed(kept))


def _changes_state(op: BoundSymbol) -> bool:
    """True if it does more than make its outputs."""
    return any(effect.access is not Access.READ for effect in op.effects)
