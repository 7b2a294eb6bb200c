"""The hooks of a plugin: functions marked ``@hookimpl`` in the module that its entry point names.

In ``pyproject.toml``::

    [project.entry-points.thunder]
    example = "thunder_example.plugin"

In ``thunder_example/plugin.py``, which is imported whenever plugins are listed and so imports nothing heavy::

    from thunder.extend import Executor, hookimpl

    @hookimpl
    def thunder_executors():
        return [Executor(name="example", ...)]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pluggy

from thunder.plugins.spec import Check, Executor, Transform

hookspec = pluggy.HookspecMarker("thunder")
hookimpl = pluggy.HookimplMarker("thunder")


@hookspec
def thunder_executors() -> Iterable[Executor]:  # type: ignore[empty-body]  # a hook has none
    """What can run operations."""


@hookspec
def thunder_transforms() -> Iterable[Transform]:  # type: ignore[empty-body]  # a hook has none
    """Passes that users may ask for by name."""


@hookspec
def thunder_checks() -> Iterable[Check]:  # type: ignore[empty-body]  # a hook has none
    """Health checks for ``thunder doctor``."""


@hookspec
def thunder_compiled(record: Any) -> None:
    """Called after each compilation with a read-only record of it."""
