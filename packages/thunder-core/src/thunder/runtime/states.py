"""The instances of executors' states. They outlive recompilations: they belong to call sites, not to programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thunder.ir.effects import Scope, StateKind
from thunder.plugins.spec import resolve


class States:
    """The states that one jitted function owns.

    instances: by kind, then by name of the call site (empty for a state of the whole function). prefix: of the names.
    """

    def __init__(self, whole: States | None = None, prefix: str = "") -> None:
        self.instances: dict[str, dict[str, Any]] = {} if whole is None else whole.instances
        self._loaded: dict[str, dict[str, Any]] = {} if whole is None else whole._loaded
        self._prefix = prefix

    def part(self, prefix: str) -> States:
        """The states of a part of the function that is compiled on its own."""
        return States(self, prefix)

    def find(self, kind: StateKind, of: str) -> Any:
        """The instance for a call site; a new one the first time."""
        owner = _PROCESS if kind.scope is Scope.PROCESS else self
        return owner._find(kind, owner._prefix + of)

    def _find(self, kind: StateKind, name: str) -> Any:
        of_kind = self.instances.setdefault(kind.name, {})
        if name not in of_kind:
            new = resolve(kind.init)(name) if kind.init else None
            loaded = self._loaded.get(kind.name, {})
            if new is not None and name in loaded:
                new.load_state_dict(loaded.pop(name))
            of_kind.setdefault(name, new)
        return of_kind[name]

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """What the instances that have a ``state_dict`` save, by kind, then by name; of none that has not run yet."""
        saved: dict[str, dict[str, Any]] = {kind: dict(by_name) for kind, by_name in self._loaded.items() if by_name}
        for kind, by_name in self.instances.items():
            for name, instance in by_name.items():
                if hasattr(instance, "state_dict"):
                    saved.setdefault(kind, {})[name] = instance.state_dict()
        return saved

    def load_state_dict(self, saved: Mapping[str, Mapping[str, Any]]) -> None:
        """Restore what ``state_dict`` gave; for instances that do not exist yet, when they are made."""
        for kind, by_name in saved.items():
            for name, value in by_name.items():
                instance = self.instances.get(kind, {}).get(name)
                if instance is None:
                    self._loaded.setdefault(kind, {})[name] = value
                else:
                    instance.load_state_dict(value)


_PROCESS = States()
"""The states that the whole process shares."""
