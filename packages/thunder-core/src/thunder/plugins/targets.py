"""What a specification names outside itself: targets in PyTorch, and code behind import strings. Imports torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from thunder.errors import PluginError
from thunder.plugins.spec import Executor, resolve
from thunder.plugins.suggest import did_you_mean
from thunder.plugins.validate import Fault, import_strings


@functools.cache
def unknown_targets(executor: Executor) -> tuple[Fault, ...]:
    """One fault for each claim that no call can match: on nothing in PyTorch, or on a name that is not canonical."""
    targets = [claim.target for claim in executor.claims]
    names = [name for target in targets for name in ((target,) if isinstance(target, str) else target)]
    return tuple(fault for name in names if (fault := _fault(name)) is not None)


def unresolved(executor: Executor) -> tuple[Fault, ...]:
    """One fault for each import string whose module or attribute does not import here."""
    faults = []
    for where, text in import_strings(executor):
        try:
            resolve(text)
        except PluginError as error:
            faults.append(Fault("unresolved", where, error.what, error.why))
    return tuple(faults)


def _fault(target: str) -> Fault | None:
    from thunder.lang.names import canonical_name

    where, found = f"claim on {target!r}", _callable(target)
    if found is None:
        return Fault("target", where, "PyTorch has no such callable", _nearest(target))
    canonical = canonical_name(found)
    if canonical is None or canonical == target:
        return None
    return Fault("alias", where, "not the canonical name of this callable", f'write "{canonical}"')


def _callable(target: str) -> Callable[..., Any] | None:
    import torch

    from thunder.lang.names import resolve_symbol

    try:
        found = resolve_symbol(target)
    except (AttributeError, ImportError, ValueError):
        return None
    if isinstance(found, torch._ops.OpOverload) and found.name() not in _operators():
        return None  # an overload of TorchScript's on plain numbers, such as aten.add: no tensor ever reaches it
    return found if callable(found) else None


@functools.cache
def _operators() -> frozenset[str]:
    import torch

    return frozenset(torch._C._dispatch_get_all_op_names())


def _nearest(target: str) -> str:
    import torch

    spaces = {"torch": torch, "torch.nn.functional": torch.nn.functional}
    known = {f"{space}.{name}" for space, module in spaces.items() for name in dir(module)}
    known |= {name.replace("::", ".") for name in _operators() if name.startswith("aten::")}
    return did_you_mean(target, known) or 'write a path such as "torch.nn.functional.linear" or "aten.add.Tensor"'
