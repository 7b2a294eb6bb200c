"""The command line: what there is, whether it is healthy, who runs what, and a start for a new executor."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Iterator
from enum import Enum
from importlib.machinery import SourceFileLoader
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from thunder.errors import PluginError, ThunderError
from thunder.plugins.discovery import Found, Status
from thunder.plugins.manager import discover, registry
from thunder.plugins.spec import Check, CheckResult, resolve
from thunder.plugins.suggest import did_you_mean, quoted

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Look into Thunder and its plugins.")
plugins = typer.Typer(help="List the plugins, with the status of each.")
app.add_typer(plugins, name="plugins", invoke_without_command=True)

_COLORS = {Status.ACTIVE: "green", Status.AVAILABLE: "green", Status.UNAVAILABLE: "yellow", Status.BLOCKED: "yellow"}
_BAD = (Status.BROKEN, Status.INCOMPATIBLE)


def main() -> None:
    """The entry point of the ``thunder`` command. Errors of Thunder are printed without a traceback."""
    try:
        app()
    except ThunderError as error:
        Console(stderr=True).print(f"[red]thunder:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(1)


@plugins.callback()
def list_plugins(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the plugins, with the status of each."""
    if context.invoked_subcommand is not None:
        return
    if as_json:
        typer.echo(json.dumps([_record(found) for found in discover()], indent=2))
        return
    _print_plugins(discover())


@plugins.command("validate")
def validate_plugin(
    name: Annotated[str, typer.Argument(help="The name of an entry point or of an executor.")],
    imports: Annotated[bool, typer.Option("--imports", help="Also import all code that it names.")] = False,
) -> None:
    """Check everything that can be checked about a plugin. The exit status is 1 if something is wrong."""
    from thunder.plugins.targets import unknown_targets, unresolved

    found = _plugin(name)
    faults = [found.why] if found.status in _BAD else _contested(found)
    for executor in found.executors if found.status not in _BAD else ():
        faults += [str(fault) for fault in (*unknown_targets(executor), *(unresolved(executor) if imports else ()))]
    console = Console()
    for fault in faults:
        console.print(f"[red]fault[/] {escape(fault)}", soft_wrap=True)
    if faults:
        raise typer.Exit(1)
    note = f", though {found.status.value} here: {found.why}" if not found.status.usable else ""
    console.print(f"[green]valid[/] {escape(found.origin + note)}", soft_wrap=True)


@app.command()
def doctor() -> None:
    """Check the health of this installation, and how fast it is. The exit status is 1 if something is wrong."""
    console = Console()
    _print_plugins(discover())
    healthy = not any(found.status in _BAD for found in discover())
    for found, check in registry().checks():
        result = _run(check)
        healthy &= result.ok
        mark = "[green]ok[/]  " if result.ok else "[red]fail[/]"
        fix = "" if result.ok or not result.fix else f"\n     try {result.fix}"
        console.print(f"{mark} {escape(f'{found.name}: {check.name}: {result.message}{fix}')}", soft_wrap=True)
    console.print(_rates_table())
    if not healthy:
        raise typer.Exit(1)


@app.command()
def explain(
    target: Annotated[str, typer.Argument(help="package.module:function or path/to/file.py:function")],
    executors: Annotated[str | None, typer.Option(help='Such as "example,...,-other".')] = None,
    input: Annotated[
        str | None, typer.Option(help="Likewise: a function that returns the arguments as a tuple.")
    ] = None,
) -> None:
    """Say who runs each operation of a function, and why."""
    import thunder

    function = _load(target)
    arguments = _load(input)() if input is not None else ()
    _check_arguments(target, function, arguments)
    if executors is not None:
        function = thunder.jit(function, executors=executors)
    report = thunder.explain(function)(*arguments)
    typer.echo(str(report))


@app.command("new-executor")
def make_executor(
    name: Annotated[str, typer.Argument(help="The name of the executor.")],
    into: Annotated[Path, typer.Option(help="The folder to make the package in.")] = Path(),
) -> None:
    """Write a new executor package, which works and passes the conformance suite."""
    from thunder.scaffold import new_executor

    typer.echo(f"made {new_executor(name, into)}: its README.md says what is where")


def _check_arguments(target: str, function: Any, arguments: tuple[Any, ...]) -> None:
    fix = "name a function that returns its arguments as a tuple: --input path/to/file.py:function"
    if not isinstance(arguments, tuple):
        raise ThunderError(f"{target} takes its arguments from a tuple", why=f"--input gave {type(arguments)}", fix=fix)
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise ThunderError(f"{target} takes other arguments", why=str(error), fix=fix) from None


@app.command()
def bisect(
    target: Annotated[str, typer.Argument(help="package.module:function or path/to/file.py:function")],
    executors: Annotated[str | None, typer.Option(help='Such as "example,...,-other".')] = None,
    input: Annotated[
        str | None, typer.Option(help="Likewise: a function that returns the arguments as a tuple.")
    ] = None,
    fuser: Annotated[str | None, typer.Option(help="The executor to look at; the first that fuses.")] = None,
) -> None:
    """Find the fused region that makes results or gradients of a function wrong; then the exit status is 1."""
    from thunder.observe.bisect import bisect as find
    from thunder.passes.reproducers import save_reproducer

    arguments = _load(input) if input is not None else tuple
    culprit = find(_load(target), arguments, executors, fuser=fuser)
    if culprit is None:
        typer.echo("all fused regions together make no difference")
        return
    call = culprit.call
    assert call.fused is not None
    assert call.selection is not None
    typer.echo(f"region {culprit.number} of {culprit.total} makes a difference: {culprit.difference}\n")
    typer.echo(f"{call.fused}\n{call.source or ''}".rstrip())
    executor = registry().executor(call.selection.executor)
    typer.echo(f"saved as {save_reproducer(executor, {}, call.fused)}")
    raise typer.Exit(1)


def _plugin(name: str) -> Found:
    by_executor = {executor.name: found for found in discover() for executor in found.executors}
    by_entry_point = {found.name: found for found in discover()}
    found = by_entry_point.get(name) or by_executor.get(name)
    if found is None:
        fix = did_you_mean(name, by_entry_point | by_executor)
        raise PluginError(f'there is no plugin "{name}"', why=f"there is {quoted(by_entry_point)}", fix=fix)
    return found


def _contested(found: Found) -> list[str]:
    """The executors of a plugin that another distribution has, too."""
    others = {e.name: other for other in discover() if other is not found for e in other.executors}
    names = [executor.name for executor in found.executors if executor.name in others]
    return [f'executor "{name}" is also in {others[name].origin}' for name in names]


def _run(check: Check) -> CheckResult:
    """The result of a check; one that raises has failed."""
    try:
        return resolve(check.run)()
    except Exception as error:
        return CheckResult(False, f"{type(error).__name__}: {error}")


def _record(found: Found) -> dict[str, Any]:
    """A plugin as plain data."""
    names = ("name", "distribution", "version", "entry_point", "why", "fix")
    executors = [dataclasses.asdict(executor, dict_factory=_plain) for executor in found.executors]
    return {**{name: getattr(found, name) for name in names}, "status": found.status.value, "executors": executors}


def _plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: _plain_value(value) for name, value in items}


def _plain_value(value: Any) -> Any:
    if isinstance(value, type):
        return value.__name__
    return value.value if isinstance(value, Enum) else value


def _print_plugins(found: tuple[Found, ...]) -> None:
    console, table = Console(), Table(box=None, pad_edge=False)
    for title in ("plugin", "status", "from", "executors"):
        table.add_column(title, overflow="fold")
    for plugin in found:
        color = _COLORS.get(plugin.status, "red")
        summary = "\n".join(f"{executor.name}: {executor.summary}" for executor in plugin.executors)
        origin = f"{plugin.distribution} {plugin.version}"
        table.add_row(escape(plugin.name), f"[{color}]{plugin.status.value}[/]", escape(origin), escape(summary))
    console.print(table)
    for line in _reasons(found):
        console.print(line, soft_wrap=True)


def _rates_table() -> Table:
    """Who runs matrix products and attention how fast on this machine, the fastest first."""
    from thunder.observe.machine import survey

    table = Table(title="GF/s, forward and backward", title_justify="left", box=None, pad_edge=False)
    for heading in ("call", "rates", "refused"):
        table.add_column(heading, overflow="fold")
    for found in survey(map(registry().executor, registry().names())):
        ranked = sorted(found.by_executor.items(), key=lambda item: -item[1])
        told = "\n".join(f"{name} {rate / 1e9:.0f}" for name, rate in ranked)
        refused = "\n".join(f"{name}: {reason}" for name, reason in found.refusals.items())
        table.add_row(escape(str(found.work)), told, escape(refused))
    return table


def _reasons(found: tuple[Found, ...]) -> Iterator[str]:
    for plugin in found:
        if plugin.status.usable:
            continue
        yield f'\n"{escape(plugin.name)}" is {plugin.status.value}'
        rows = (("from", plugin.origin), ("because", plugin.why), ("try", plugin.fix))
        yield from (f"  {label:<8}{escape(text)}" for label, text in rows if text)


def _load(text: str) -> Any:
    """The object that ``package.module:name`` or ``path/to/file.py:name`` names. Raises ThunderError."""
    place, _, name = text.rpartition(":")
    try:
        return attrgetter(name)(_module(place))
    except (ImportError, AttributeError, FileNotFoundError, ValueError) as error:
        fix = "write package.module:function or path/to/file.py:function"
        raise ThunderError(f"{text!r} does not load", why=f"{type(error).__name__}: {error}", fix=fix) from error


def _module(place: str) -> ModuleType:
    """A module by name or by file, with the path that ``python`` itself would search for it."""
    if not place.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(place)
    path = Path(place).resolve(strict=True)
    sys.path.insert(0, str(path.parent))
    return _module_of_file(path)


@functools.cache
def _module_of_file(path: Path) -> ModuleType:
    """Under a name that hides no other module, whatever the file is called."""
    loader = SourceFileLoader(f"__{path.stem}__", str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = sys.modules[loader.name] = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
