"""The registry: executors, symbols, transforms, checks and observers by name."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterable, Iterator

from thunder.errors import PluginError
from thunder.plugins.discovery import Found, built_in, discover_all, load
from thunder.plugins.needs import first_unmet
from thunder.plugins.spec import Check, Executor, Op, Transform
from thunder.plugins.suggest import did_you_mean, quoted
from thunder.plugins.validate import validate


class Registry:
    """What is installed, and what was registered by hand. ``Registry()`` alone knows the built-in executors only."""

    def __init__(self, found: Iterable[Found] | None = None) -> None:
        self.found: tuple[Found, ...] = tuple(load(entry) for entry in built_in()) if found is None else tuple(found)
        self._registered: dict[str, Executor] = {}

    def register(self, executor: Executor) -> Executor:
        """Add an executor for the life of this registry; a second one of the same name replaces the first.

        Raises PluginError if it is not valid or if an installed one has its name.
        """
        if faults := validate(executor):
            raise PluginError(
                f'executor "{executor.name}" is not valid',
                why="; ".join(map(str, faults)),
                fix="mend the specification",
            )
        if (unmet := first_unmet(executor.needs)) is not None:
            raise PluginError(f'executor "{executor.name}" is unavailable', why=unmet.why, fix=unmet.fix)
        if (owners := self._owners(executor.name)) and executor not in owners[0].executors:
            raise PluginError(
                f'there is an executor "{executor.name}" already',
                where=owners[0].origin,
                fix="give this one another name",
            )
        if not owners:
            self._registered[executor.name] = executor
        return executor

    def knows(self, name: str) -> bool:
        """True if an executor of that name is registered or installed, usable or not."""
        return name in self._registered or any(name in _names(found) for found in self.found)

    def names(self) -> tuple[str, ...]:
        """The executors that can be named, sorted."""
        installed = {executor.name for found in self._usable() for executor in found.executors}
        return tuple(sorted(installed | self._registered.keys()))

    def executor(self, name: str) -> Executor:
        """The executor of a name.

        Raises PluginError if there is none, if it is not available (with the reason), or if two distributions have one.
        """
        if name in self._registered:
            return self._registered[name]
        owners = self._owners(name)
        if len(owners) > 1:
            raise PluginError(
                f'two distributions have an executor "{name}"',
                where=" and ".join(found.origin for found in owners),
                fix=f"uninstall one, or set THUNDER_BLOCK_PLUGINS={owners[-1].distribution}",
            )
        if not owners:
            raise self._missing(name)
        return next(executor for executor in owners[0].executors if executor.name == name)

    def release(self, executor: Executor) -> str:
        """The distribution and version that an executor comes from; empty if it was registered by hand."""
        owner = next((found for found in self.found if executor in found.executors), None)
        return f"{owner.distribution} {owner.version}" if owner is not None else ""

    def defaults(self) -> tuple[Executor, ...]:
        """The executors that are active without being named, by name."""
        installed = {e.name for found in self._usable() for e in found.executors if e.default}
        registered = {e.name for e in self._registered.values() if e.default}
        return tuple(self.executor(name) for name in sorted(installed | registered))

    def op(self, name: str) -> Op:
        """The symbol of a full name, such as ``"example.gelu"``. Raises PluginError."""
        executor = self.executor(name.partition(".")[0])
        if (op := executor.op(name)) is not None:
            return op
        known = [op.name for op in executor.symbols]
        what = f'executor "{executor.name}" has no symbol "{name}"'
        raise PluginError(what, fix=did_you_mean(name, known) or f"it has {quoted(known) or 'none'}")

    def transform(self, name: str) -> Transform:
        """The transform of a name. Raises PluginError."""
        known = {transform.name: transform for found in self._usable() for transform in found.transforms}
        if name in known:
            return known[name]
        fix = did_you_mean(name, known) or f"there is {quoted(sorted(known)) or 'none'}"
        raise PluginError(f'there is no transform "{name}"', fix=fix)

    def checks(self) -> Iterator[tuple[Found, Check]]:
        """The health checks of all usable plugins."""
        return ((found, check) for found in self._usable() for check in found.checks)

    def compiled(self, record: object) -> None:
        """Tell every observer about a compilation. One that raises is reported and harms nobody else."""
        for found in self._usable():
            if found.compiled is None:
                continue
            try:
                found.compiled(record=record)
            except Exception as error:
                warnings.warn(f"thunder_compiled of {found.origin} raised {error!r}", RuntimeWarning, stacklevel=2)

    def _usable(self) -> Iterator[Found]:
        return (found for found in self.found if found.status.usable)

    def _owners(self, name: str) -> list[Found]:
        return [found for found in self._usable() if any(executor.name == name for executor in found.executors)]

    def _missing(self, name: str) -> PluginError:
        for found in self.found:
            if not found.status.usable and name in _names(found):
                what = f'executor "{name}" is installed but {found.status.value}'
                return PluginError(what, where=found.origin, why=found.why, fix=found.fix)
        suggestion = did_you_mean(name, self.names()) or "install the package that has it"
        return PluginError(
            f'there is no executor "{name}"', why=f"the executors here are {quoted(self.names())}", fix=suggestion
        )


def _names(found: Found) -> set[str]:
    """What a plugin may be meant by: one that did not load is known by the name of its entry point only."""
    return {executor.name for executor in found.executors} or {found.name}


@functools.cache
def registry() -> Registry:
    """The registry of this process. Plugins are discovered at the first call."""
    return Registry(discover_all(os.environ))


def discover() -> tuple[Found, ...]:
    """Every plugin found in this process, with its status."""
    return registry().found
