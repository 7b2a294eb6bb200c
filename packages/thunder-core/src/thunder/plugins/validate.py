"""What can be wrong with a specification, found without importing any code that it names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from thunder.ir.effects import RANDOM, StateKind
from thunder.plugins.needs import Cuda, Distribution, Modules, Probe
from thunder.plugins.options import FUEL
from thunder.plugins.spec import (
    SUPPORTED_API,
    Check,
    Claim,
    Executor,
    Fuser,
    Grad,
    Op,
    Option,
    Reads,
    Touch,
    Transform,
)
from thunder.plugins.suggest import did_you_mean

RESERVED = frozenset({"aten", "core", "thunder"})
"""Names that no executor may have: they are prefixes of something else."""

OPTION_TYPES = (bool, int, float, str)
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_ITEMS: dict[str, tuple[type, ...]] = {
    "needs": (Distribution, Modules, Cuda, Probe),
    "symbols": (Op,),
    "states": (StateKind,),
    "claims": (Claim,),
    "options": (Option,),
    "before": (str,),
}


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: its kind (a word to search for), where it is, what it is and how to mend it."""

    kind: str
    where: str
    what: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f" ({self.fix})" if self.fix else "")


def validate(executor: Executor) -> tuple[Fault, ...]:
    """Everything that is wrong with an executor. Whether claim targets exist is the business of ``targets``."""
    if structure := tuple(_structure(executor)):
        return structure  # nothing else can be asked of a specification of the wrong shape
    rules = (_identity, _needs, _prefixes, _duplicates, _chains, _effects, _closers, _fuser, _imports, _options)
    return tuple(fault for rule in rules for fault in rule(executor))


def validate_transform(transform: Transform) -> tuple[Fault, ...]:
    """Everything that is wrong with a transform."""
    where = f"transform {transform.name!r}"
    return (*_name(where, transform.name), *_import(f"{where}, apply", transform.apply))


def validate_check(check: Check) -> tuple[Fault, ...]:
    """Everything that is wrong with a health check."""
    return tuple(_import(f"check {check.name!r}, run", check.run))


def import_strings(executor: Executor) -> Iterator[tuple[str, str]]:
    """Where and what: every import string of an executor."""
    texts: list[tuple[str, str | None]] = [("cache_key", executor.cache_key)]
    texts += [
        (f"symbol {op.name!r}, {part}", getattr(op, part)) for op in executor.symbols for part in ("impl", "meta")
    ]
    texts += [(f"state {state.name!r}, init", state.init) for state in executor.states]
    texts += [("need, run", need.run) for need in executor.needs if isinstance(need, Probe)]
    if (fuser := executor.fuser) is not None:
        texts += [(f"fuser, {part}", getattr(fuser, part)) for part in ("supports", "compile", "pays", "alone", "show")]
    for claim in executor.claims:
        where = f"claim on {claim.target!r}"
        texts += [(f"{where}, {part}", getattr(claim, part)) for part in ("check", "lower")]
        if claim.grad is not None:
            texts += [(f"{where}, grad {part}", getattr(claim.grad, part)) for part in ("forward", "backward")]
    return ((where, text) for where, text in texts if text is not None)


def _structure(executor: Executor) -> Iterator[Fault]:
    for field, kinds in _ITEMS.items():
        yield from _tuple_of(field, getattr(executor, field), kinds)
    if not isinstance(executor.fuser, Fuser | None):
        yield Fault("structure", "fuser", f"{executor.fuser!r} instead of a Fuser")
    for item in (item for field in ("symbols", "claims") for item in _items(getattr(executor, field))):
        if isinstance(item, Op):
            yield from _tuple_of(f"symbol {item.name!r}, effects", item.effects, (Touch,))
        if isinstance(item, Claim) and not isinstance(item.target, str):
            yield from _tuple_of("claim, target", item.target, (str,))
        if isinstance(item, Claim) and not isinstance(item.grad, Grad | None):
            yield Fault("structure", f"claim on {item.target!r}", f"grad is {item.grad!r}", "make it a Grad")


def _items(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else ()


def _tuple_of(where: str, value: object, kinds: tuple[type, ...]) -> Iterator[Fault]:
    names = " or ".join(kind.__name__ for kind in kinds)
    if not isinstance(value, tuple):
        yield Fault("structure", where, f"{type(value).__name__} instead of a tuple of {names}")
    for item in _items(value):
        if not isinstance(item, kinds):
            yield Fault("structure", where, f"{item!r} instead of {names}")


def _identity(executor: Executor) -> Iterator[Fault]:
    yield from _name("name", executor.name)
    if executor.name in RESERVED:
        yield Fault("name", "name", f"{executor.name!r} is reserved", "choose another")
    if executor.api not in SUPPORTED_API:
        supported = ", ".join(map(str, sorted(SUPPORTED_API)))
        yield Fault(
            "api", "api", f"version {executor.api!r} of the contract", f"this thunder-core supports {supported}"
        )
    if executor.numerics not in ("exact", "approximate"):
        yield Fault("numerics", "numerics", f"{executor.numerics!r}", 'either "exact" or "approximate"')
    if executor.default and executor.numerics != "exact":
        yield Fault("default", "default", 'only an executor with numerics="exact" may be active by default')
    for name in executor.before:
        if name == executor.name or not _NAME.fullmatch(name):
            yield Fault("before", "before", f"{name!r} is not the name of another executor")


def _needs(executor: Executor) -> Iterator[Fault]:
    for need in executor.needs:
        if isinstance(need, Distribution) and not need.is_valid:
            yield Fault("need", f"need {need.name!r}", f"invalid specifier {need.specifier!r}", 'such as ">=2.0,<3"')


def _prefixes(executor: Executor) -> Iterator[Fault]:
    prefix = f"{executor.name}."
    for what, named in (("symbol", executor.symbols), ("state", executor.states)):
        for item in named:
            if not (item.name.startswith(prefix) and _DOTTED.fullmatch(item.name)):
                yield Fault("prefix", f"{what} {item.name!r}", "not a dotted name under the executor's", f"{prefix}…")


def _duplicates(executor: Executor) -> Iterator[Fault]:
    names: dict[str, list[str | tuple[str, ...]]] = {
        "symbol": [op.name for op in executor.symbols],
        "state": [state.name for state in executor.states],
        "claim on": [claim.target for claim in executor.claims],
        "option": [option.name for option in executor.options],
    }
    for what, group in names.items():
        for name, count in Counter(group).items():
            if count > 1:
                yield Fault("duplicate", f"{what} {name!r}", f"declared {count} times", "keep one")


def _chains(executor: Executor) -> Iterator[Fault]:
    for claim in executor.claims:
        where = f"claim on {claim.target!r}"
        if isinstance(claim.target, str):
            continue
        if len(claim.target) < 2:
            yield Fault("chain", where, "a chain has two calls or more", "for one, write its name")
        for name in claim.target:
            if not name.startswith("torch."):
                yield Fault("chain", where, f"{name!r} is no torch symbol", "write the calls of programs")
        if claim.lower is None:
            yield Fault("chain", where, "nothing runs it as one call", "give it lower=…")
        if claim.grad is not None:
            yield Fault(
                "chain", where, "it is one call only where no gradient is needed", "claim its calls for training"
            )


def _effects(executor: Executor) -> Iterator[Fault]:
    declared = [RANDOM.name, *(state.name for state in executor.states)]
    for op in executor.symbols:
        for touch in op.effects:
            if touch.kind not in declared:
                fix = did_you_mean(touch.kind, declared) or "declare it in states"
                yield Fault("effect", f"symbol {op.name!r}", f"effect on undeclared state {touch.kind!r}", fix)


def _closers(executor: Executor) -> Iterator[Fault]:
    symbols, closers = [op.name for op in executor.symbols], {state.close for state in executor.states}
    changed = {
        touch.kind
        for op in executor.symbols
        if op.name not in closers
        for touch in op.effects
        if not isinstance(touch, Reads)
    }
    for state in executor.states:
        where = f"state {state.name!r}"
        if state.close is not None and state.close not in symbols:
            fix = did_you_mean(state.close, symbols) or "declare it in symbols"
            yield Fault("closer", where, f"its closer {state.close!r} is not a symbol of this executor", fix)
        if state.close is not None and state.name not in changed:
            fix = "give the symbols that do Updates(…) or Writes(…)"
            yield Fault("untriggered", where, f"no symbol changes it, so nothing triggers {state.close!r}", fix)


def _fuser(executor: Executor) -> Iterator[Fault]:
    if executor.fuser is None:
        return
    if FUEL.name in (option.name for option in executor.options):
        yield Fault("duplicate", f"option {FUEL.name!r}", "every executor with a fuser has it", "leave it out")
    declared = [RANDOM.name, *(state.name for state in executor.states)]
    for name in executor.fuser.absorbs:
        if name not in declared:
            fix = did_you_mean(name, declared) or "declare it in states"
            yield Fault("effect", "fuser, absorbs", f"undeclared state {name!r}", fix)


def _imports(executor: Executor) -> Iterator[Fault]:
    for where, text in import_strings(executor):
        yield from _import(where, text)


def _import(where: str, text: str) -> Iterator[Fault]:
    module, colon, attribute = text.partition(":") if isinstance(text, str) else ("", "", "")
    if not (colon and _DOTTED.fullmatch(module) and _DOTTED.fullmatch(attribute)):
        yield Fault("import", where, f"malformed import string {text!r}", 'write "package.module:attribute"')


def _options(executor: Executor) -> Iterator[Fault]:
    for option in executor.options:
        where = f"option {option.name!r}"
        yield from _name(where, option.name)
        if option.type not in OPTION_TYPES:
            yield Fault("option", where, f"type {option.type!r}", "one of bool, int, float, str")
            continue
        values = [*(option.choices or ()), *([] if option.default is None else [option.default])]
        for value in values:
            if type(value) is not option.type:
                yield Fault("option", where, f"{value!r} is not of its type, {option.type.__name__}")
        if option.choices is not None and option.default not in (None, *option.choices):
            yield Fault("option", where, f"default {option.default!r} is not one of its choices")


def _name(where: str, name: str) -> Iterator[Fault]:
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        fix = "lower case letters, digits and underscores, a letter first"
        yield Fault("name", where, f"{name!r} is not a valid name", fix)
