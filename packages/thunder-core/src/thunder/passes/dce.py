"""Dead-code elimination."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thunder.ir.effects import Access
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Trace
from thunder.ir.types import Var


def dce(trace: Trace) -> Trace:
    """Drops operations whose outputs nobody reads and that change no state; the identical trace if there are none.

    A random draw stays even if its result is unused, as in eager: it moves the generator, which is a WRITE.
    """
    return trace.with_ops(live(trace.ops, trace.results))


def live(ops: Sequence[BoundSymbol], needed: Iterable[Var]) -> tuple[BoundSymbol, ...]:
    """The operations that make what is needed, or change a state, in order."""
    wanted = set(needed)
    kept = []
    for op in reversed(ops):
        if changes_state(op) or not wanted.isdisjoint(op.outputs):
            wanted.update(op.inputs)
            kept.append(op)
    return tuple(reversed(kept))


def live_in(ops: Sequence[BoundSymbol], needed: Iterable[Var]) -> tuple[Var, ...]:
    """What the operations, and those who need what they make, read from outside, in order of first use."""
    made = {v for op in ops for v in op.outputs}
    read = dict.fromkeys([*(v for op in ops for v in op.inputs), *needed])
    return tuple([v for v in read if v not in made])


def changes_state(op: BoundSymbol) -> bool:
    """True if it does more than make its outputs."""
    return any(effect.access is not Access.READ for effect in op.effects)
