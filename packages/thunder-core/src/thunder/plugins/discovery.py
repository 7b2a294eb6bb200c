"""Finding plugins: each entry point becomes one ``Found``, whatever happens while it loads."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from importlib import metadata
from typing import Any

import pluggy

from thunder.errors import PluginError
from thunder.plugins import hookspecs
from thunder.plugins.needs import first_unmet
from thunder.plugins.spec import SUPPORTED_API, Check, Executor, Transform
from thunder.plugins.validate import validate, validate_check, validate_transform

GROUP = "thunder"
BUILT_IN = {"torch": "thunder.executors.torch", "python": "thunder.executors.python"}
"""The core's own plugins. They need no entry point, so that the core works wherever it can be imported."""

HOOKS = tuple(name for name in vars(hookspecs) if name.startswith(f"{GROUP}_"))


class Status(str, Enum):
    """What became of an entry point."""

    ACTIVE = "active"
    AVAILABLE = "available"
    UNAVAILABLE = "unavailable"
    INCOMPATIBLE = "incompatible"
    BROKEN = "broken"
    BLOCKED = "blocked"

    @property
    def usable(self) -> bool:
        """True if executors and transforms of such a plugin can run."""
        return self in (Status.ACTIVE, Status.AVAILABLE)


@dataclass(frozen=True, kw_only=True)
class Found:
    """A plugin that was found.

    name: of the entry point. entry_point: the module it names.
    status: *active* if one of its executors runs without being named, *available* if its executors run when named;
        otherwise ``why`` says what is in the way and ``fix`` what to do about it.
    compiled: calls its ``thunder_compiled`` hook, if it has one.
    """

    name: str
    distribution: str
    version: str
    entry_point: str
    status: Status = Status.AVAILABLE
    why: str = ""
    fix: str = ""
    executors: tuple[Executor, ...] = ()
    transforms: tuple[Transform, ...] = ()
    checks: tuple[Check, ...] = ()
    compiled: Callable[..., Any] | None = field(default=None, repr=False, compare=False)

    @property
    def origin(self) -> str:
        """Where it comes from, for messages."""
        return f"{self.distribution} {self.version} (entry point {GROUP}: {self.name} = {self.entry_point})"


def discover_all(environ: Mapping[str, str]) -> tuple[Found, ...]:
    """The built-in plugins and all entry points of the group, by name.

    Never raises, except PluginError under ``THUNDER_STRICT_PLUGINS=1`` if a plugin is broken or incompatible.
    ``THUNDER_BLOCK_PLUGINS`` names entry points or distributions that are not even imported, separated by commas.
    """
    blocked = {name.strip() for name in environ.get("THUNDER_BLOCK_PLUGINS", "").split(",")}
    entries = [(_unjudged(entry), entry) for entry in metadata.entry_points(group=GROUP)]
    entries.sort(key=lambda pair: (pair[0].name, pair[0].distribution))
    found = (*(load(entry) for entry in built_in()), *(_load_unless_blocked(*pair, blocked) for pair in entries))
    if environ.get("THUNDER_STRICT_PLUGINS") == "1":
        _insist(found)
    return found


def built_in() -> Iterator[metadata.EntryPoint]:
    """Entry points of the core's own plugins."""
    return (metadata.EntryPoint(name, module, GROUP) for name, module in BUILT_IN.items())


def load(entry: metadata.EntryPoint) -> Found:
    """Import one plugin and judge it. Never raises."""
    return _loaded(_unjudged(entry), entry)


def _unjudged(entry: metadata.EntryPoint) -> Found:
    distribution, version = _distribution(entry)
    return Found(name=entry.name, distribution=distribution, version=version, entry_point=entry.value)


def _loaded(found: Found, entry: metadata.EntryPoint) -> Found:
    try:
        plugin = entry.load()
    except (Exception, SystemExit) as error:
        fix = f"update or uninstall {found.distribution}, or set THUNDER_BLOCK_PLUGINS={found.name}"
        return replace(found, status=Status.BROKEN, why=f"importing it raised {_line(error)}", fix=fix)
    return judge(found, plugin)


def judge(found: Found, plugin: object) -> Found:
    """``found`` with what the hooks of a plugin object return, and the status that follows from it. Never raises."""
    fix = f"tell the authors of {found.distribution}, or set THUNDER_BLOCK_PLUGINS={found.name}"
    try:
        found = _call_hooks(found, plugin)
    except (Exception, SystemExit) as error:
        return replace(found, status=Status.BROKEN, why=_line(error), fix=fix)
    if (version := _unsupported(found.executors)) is not None:
        supported, side = max(SUPPORTED_API), "thunder-core" if version > max(SUPPORTED_API) else found.distribution
        why = f"it is written for version {version} of the plugin contract, and this thunder-core has {supported}"
        return replace(found, status=Status.INCOMPATIBLE, why=why, fix=f"pip install --upgrade {side}")
    if faults := tuple(_faults(found)):
        return replace(found, status=Status.BROKEN, why="; ".join(faults), fix=fix)
    if (unmet := first_unmet(need for executor in found.executors for need in executor.needs)) is not None:
        return replace(found, status=Status.UNAVAILABLE, why=unmet.why, fix=unmet.fix)
    active = any(executor.default for executor in found.executors)
    return replace(found, status=Status.ACTIVE if active else Status.AVAILABLE)


def _call_hooks(found: Found, plugin: object) -> Found:
    """One pluggy manager for each plugin: nothing of a failed registration is left, and each error has one author."""
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin, found.name)  # refuses wrong argument names
    manager.check_pending()  # refuses unknown hooks
    for name in HOOKS:
        if hasattr(plugin, name) and not hasattr(getattr(plugin, name), f"{GROUP}_impl"):
            raise PluginError(f"its function {name} is not marked @hookimpl")
    if not manager.get_hookcallers(plugin):
        raise PluginError("it implements no hook")
    return replace(
        found,
        executors=_collect(manager, "thunder_executors", Executor),
        transforms=_collect(manager, "thunder_transforms", Transform),
        checks=_collect(manager, "thunder_checks", Check),
        compiled=manager.hook.thunder_compiled if manager.hook.thunder_compiled.get_hookimpls() else None,
    )


def _collect(manager: pluggy.PluginManager, hook: str, kind: type) -> tuple[Any, ...]:
    caller = getattr(manager.hook, hook)
    try:
        results = caller()
        items = tuple(item for result in results for item in result)
    except (Exception, SystemExit) as error:
        raise PluginError(f"its hook {hook} raised {_line(error)}") from error
    if caller.get_hookimpls() and not results:
        raise PluginError(f"its hook {hook} returned None")
    if strangers := [item for item in items if not isinstance(item, kind)]:
        raise PluginError(f"its hook {hook} returned {strangers[0]!r}, which is not of type {kind.__name__}")
    return items


def _unsupported(executors: Iterable[Executor]) -> int | None:
    return next((executor.api for executor in executors if executor.api not in SUPPORTED_API), None)


def _faults(found: Found) -> Iterator[str]:
    for executor in found.executors:
        yield from (f"executor {executor.name!r}, {fault}" for fault in validate(executor))
        if executor.name in BUILT_IN and found.entry_point != BUILT_IN[executor.name]:
            yield f"executor {executor.name!r} has the name of a built-in one"
    yield from (str(fault) for transform in found.transforms for fault in validate_transform(transform))
    yield from (str(fault) for check in found.checks for fault in validate_check(check))


def _load_unless_blocked(found: Found, entry: metadata.EntryPoint, blocked: set[str]) -> Found:
    if blocked.isdisjoint({found.name, found.distribution}):
        return _loaded(found, entry)
    why, fix = "THUNDER_BLOCK_PLUGINS names it", "take it out of THUNDER_BLOCK_PLUGINS"
    return replace(found, status=Status.BLOCKED, why=why, fix=fix)


def _insist(found: Iterable[Found]) -> None:
    for plugin in found:
        if plugin.status in (Status.BROKEN, Status.INCOMPATIBLE):
            what = f'plugin "{plugin.name}" is {plugin.status.value}, and THUNDER_STRICT_PLUGINS=1'
            raise PluginError(what, where=plugin.origin, why=plugin.why, fix=plugin.fix)


def _distribution(entry: metadata.EntryPoint) -> tuple[str, str]:
    """Name and version of what brought an entry point."""
    if entry.dist is None:
        return "thunder-core", _own_version()
    declared = entry.dist.metadata  # read and parsed anew each time
    return declared["Name"], declared["Version"]


@functools.cache
def _own_version() -> str:
    try:
        return metadata.version("thunder-core")
    except metadata.PackageNotFoundError:
        return "from source"


def _line(error: BaseException) -> str:
    """An error as one line; what a PluginError says is said already."""
    if isinstance(error, PluginError):
        return error.what
    return " ".join("".join(traceback.format_exception_only(error)).split())
