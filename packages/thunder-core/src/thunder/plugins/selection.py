"""Which executors run, and in which order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from types import EllipsisType
from typing import TypeGuard

from thunder.errors import PluginError
from thunder.plugins.manager import Registry
from thunder.plugins.spec import Executor
from thunder.plugins.targets import unknown_targets

Item = str | Executor | EllipsisType
Spec = str | Sequence[Item] | None
ALWAYS = ("torch", "python")
"""The executors that run what nobody else claimed; always last, in this order."""


def select_executors(spec: Spec, registry: Registry) -> tuple[Executor, ...]:
    """The executors in order of priority.

    ``spec`` is a sequence of names, Executor objects, ``...`` for the defaults, and ``"-name"`` to remove one; or the
    same as text (``"example,...,-other"``); or None for the value of ``THUNDER_EXECUTORS``, else the defaults. With
    nothing but removals, they are removed from the defaults. Raises PluginError for a name that cannot be used.
    """
    items = _items(spec)
    removed = {_removable(item[1:], registry) for item in items if _is_removal(item)}
    wanted = [item for item in items if not _is_removal(item)]
    if removed and not wanted:
        wanted = [...]
    chosen = {executor.name: executor for executor in _expand(wanted, registry)}
    names = [name for name in chosen if name not in removed and name not in ALWAYS]
    selected = (*[chosen[name] for name in names], *[registry.executor(name) for name in ALWAYS])
    for executor in selected:
        _check_targets(executor)
    return selected


def default_executors(registry: Registry) -> tuple[Executor, ...]:
    """The executors that are active by default, ordered by their ``before`` and then by name.

    Raises PluginError if the orders they ask for contradict each other.
    """
    executors = {executor.name: executor for executor in registry.defaults()}
    sorter = TopologicalSorter[str](dict.fromkeys(executors, ()))
    for executor in executors.values():
        for later in executor.before:
            if later in executors:
                sorter.add(later, executor.name)
    try:
        return tuple(executors[name] for name in _by_name(sorter))
    except CycleError as error:
        raise PluginError(
            "the default executors cannot be ordered",
            why=f"each asks to come before the next: {', '.join(reversed(error.args[1]))}",
            fix="name the executors in the order you want, or remove one of these",
        ) from error


def _items(spec: Spec) -> list[Item]:
    if spec is None:
        spec = os.environ.get("THUNDER_EXECUTORS") or (...,)
    if isinstance(spec, str):
        spec = [name for part in spec.split(",") if (name := part.strip())]
    if not isinstance(spec, Sequence):
        raise _unusable(spec)
    for item in spec:
        if isinstance(item, str) and "," in item:
            raise _unusable(item, f"write {[name.strip() for name in item.split(',')]}, or that text without a list")
    return [... if item == "..." else item for item in spec]


def _is_removal(item: Item) -> TypeGuard[str]:
    return isinstance(item, str) and item.startswith("-")


def _removable(name: str, registry: Registry) -> str:
    """``name``, if removing it makes sense. A plugin that is installed but not usable may be removed."""
    if name in ALWAYS:
        raise PluginError(f'executor "{name}" cannot be removed', why="it runs what no other executor claimed")
    if not registry.knows(name):
        registry.executor(name)
    return name


def _expand(items: Iterable[Item], registry: Registry) -> Iterator[Executor]:
    for item in items:
        if item is ...:
            yield from default_executors(registry)
        elif isinstance(item, Executor):
            yield registry.register(item)
        elif isinstance(item, str):
            yield registry.executor(item)
        else:
            raise _unusable(item)


def _check_targets(executor: Executor) -> None:
    """Plugins are listed without torch, so this cannot be asked earlier."""
    if faults := unknown_targets(executor):
        raise PluginError(
            f'executor "{executor.name}" claims what this PyTorch does not have',
            why="; ".join(map(str, faults)),
            fix="mend the claims, or declare the version of PyTorch that it needs",
        )


def _unusable(item: object, fix: str = 'write a name, an Executor, ... or "-name"') -> PluginError:
    return PluginError(f"{item!r} names no executor", fix=fix)


def _by_name(sorter: TopologicalSorter[str]) -> Iterator[str]:
    """A topological order that takes the first ready name each time, so that it depends on nothing else."""
    sorter.prepare()
    ready: set[str] = set()
    while sorter.is_active():
        ready.update(sorter.get_ready())
        name = min(ready)
        ready.remove(name)
        sorter.done(name)
        yield name
