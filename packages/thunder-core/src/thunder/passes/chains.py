"""Chains: calls of which each is all that reads what the one before it returned, for executors that run them as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol, Phase, Refusal, Symbol
from thunder.ir.types import Const, Var

CHAIN = "thunder.prims.structural.chain"


def as_one(calls: Sequence[BoundSymbol]) -> BoundSymbol:
    """The calls of a chain as one call."""
    first, *others = calls
    then = tuple([(Const(call.sym.name), call.args[1:], call.kwargs) for call in others])
    args, kwargs = (Const(first.sym.name), *first.args), {**first.kwargs, "then": then}
    return replace(calls[-1], sym=Symbol(CHAIN), args=args, kwargs=kwargs, selection=None)


def target_of(op: BoundSymbol) -> str | tuple[str, ...]:
    """The target that a claim on the call has: its name; for a chain, those of its calls."""
    if op.sym.name != CHAIN:
        return op.sym.name
    return (op.args[0].text, *[fn.text for fn, _, _ in op.kwargs["then"]])


def title(op: BoundSymbol) -> str:
    """What a call is, for people."""
    target = target_of(op)
    return target if isinstance(target, str) else " + ".join(target)


def told(parts: Iterable[BoundSymbol], chain: BoundSymbol, refusals: Sequence[Refusal]) -> list[BoundSymbol]:
    """The parts of a chain's last call, where the chain is not one call: what makes its result tells why."""
    reasons = tuple([Refusal(refused.executor, f"as one, {title(chain)}: {refused.reason}") for refused in refusals])
    return [_refusing(part, reasons) if chain.outs in part.outputs else part for part in parts]


def _refusing(op: BoundSymbol, refusals: tuple[Refusal, ...]) -> BoundSymbol:
    selection = op.selection
    assert selection is not None
    return op.with_facts(selection=replace(selection, refusals=(*selection.refusals, *refusals)))


def chains_in(
    ops: Sequence[BoundSymbol], results: Iterable[Var], targets: Collection[tuple[str, ...]]
) -> list[tuple[int, ...]]:
    """The places of the calls of each chain that is a target; a call is in one at most, and in the longest.

    results: the variables that are read beyond these operations.
    """
    heads = {target[0] for target in targets}
    if not any(op.sym.name in heads for op in ops):
        return []
    readers, taken = _only_readers(ops, results), set[int]()
    found = []
    for place, op in enumerate(ops):
        if op.sym.name in heads and place not in taken and (run := _longest(place, ops, readers, targets)):
            taken.update(run)
            found.append(run)
    return found


def _longest(
    place: int, ops: Sequence[BoundSymbol], readers: dict[int, int], targets: Collection[tuple[str, ...]]
) -> tuple[int, ...]:
    run = [place]
    longest: tuple[int, ...] = ()
    for _ in range(1, max(map(len, targets))):
        if run[-1] not in readers:
            break
        run.append(readers[run[-1]])
        if tuple([ops[place].sym.name for place in run]) in targets:
            longest = tuple(run)
    return longest


def _only_readers(ops: Sequence[BoundSymbol], results: Iterable[Var]) -> dict[int, int]:
    """The place of the call that can follow each call in a chain: alone it reads the result, once, before all else.

    What lies between the two does not matter: neither has an effect, so the first may run just before the second.
    """
    reads = Counter(leaf for op in ops for leaf in tree.leaves((op.args, op.kwargs)) if isinstance(leaf, Var))
    reads.update(results)
    makers = {op.outs: place for place, op in enumerate(ops) if isinstance(op.outs, Var) and _is_pure(op)}
    readers = {}
    for place, op in enumerate(ops):
        maker = makers.get(op.args[0]) if op.args and isinstance(op.args[0], Var) else None
        if maker is None or reads[op.args[0]] > 1 or not _is_pure(op) or op.region != ops[maker].region:
            continue
        readers[maker] = place
    return readers


def _is_pure(op: BoundSymbol) -> bool:
    return op.phase is Phase.FORWARD and not op.effects
