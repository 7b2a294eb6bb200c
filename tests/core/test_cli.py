"""The command line: what it prints, and how it exits."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from typer.testing import CliRunner

import thunder
from tests.core.testing.racing import racer
from thunder import cli
from thunder.executors import torch as torch_executor
from thunder.extend import Check, CheckResult, Executor, Option
from thunder.observe import machine, memory
from thunder.plugins.discovery import Found, Status
from thunder.plugins.manager import Registry


def ok() -> CheckResult:
    return CheckResult(True, "all is well")


def bad() -> CheckResult:
    return CheckResult(False, "all is lost", "start again")


def fails() -> CheckResult:
    raise OSError("no disk")


def found(name: str, status: Status, **more: object) -> Found:
    return Found(
        name=name, distribution=f"d-{name}", version="1.0", entry_point=f"{name}.plugin", status=status, **more
    )


FINE = found(
    "fine",
    Status.AVAILABLE,
    executors=(Executor(name="fine", summary="does it all", options=(Option("n", int, 1, "how many"),)),),
    checks=(Check("health", run=f"{__name__}:ok"),),
)
AWAY = found("away", Status.UNAVAILABLE, why="no [device] here", fix="buy one", executors=(Executor(name="far"),))
BROKEN = found("broken", Status.BROKEN, why="it is broken", fix="mend it")


SMALL = machine.Work("linear", torch.nn.functional.linear, ((8, 4), (6, 4)), torch.float32, 1e3)


@pytest.fixture
def run(monkeypatch):
    """Runs the command line in a process that has certain plugins."""

    def invoke(arguments: list[str], *plugins: Found):
        known = Registry([*Registry().found, *plugins])
        monkeypatch.setattr(cli, "registry", lambda: known)
        monkeypatch.setattr(cli, "discover", lambda: known.found)
        monkeypatch.setattr(machine, "WORKS", (SMALL,))
        monkeypatch.setattr(torch_executor, "check_program", ok)
        monkeypatch.setattr(memory, "check_memory", ok)
        monkeypatch.setenv("COLUMNS", "200")
        return CliRunner().invoke(cli.app, arguments)

    return invoke


def test_plugins_lists_each_with_its_reason(run):
    result = run(["plugins"], FINE, AWAY, BROKEN)
    assert result.exit_code == 0
    for text in ("torch", "python", "d-fine 1.0", "fine: does it all", "no [device] here", "buy one", "it is broken"):
        assert text in result.output


def test_plugins_as_json(run):
    rows = {row["name"]: row for row in json.loads(run(["plugins", "--json"], FINE, AWAY).output)}
    assert set(rows) == {"torch", "python", "fine", "away"}
    assert rows["torch"]["status"] == "active"
    assert rows["fine"]["executors"][0]["options"][0] == {
        "name": "n", "type": "int", "default": 1, "help": "how many", "choices": None
    }  # fmt: skip
    assert (rows["away"]["status"], rows["away"]["why"]) == ("unavailable", "no [device] here")


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("torch", 0, "valid"),
        ("fine", 0, "valid"),
        ("far", 0, "though unavailable here: no [device] here"),
        ("broken", 1, "fault it is broken"),
    ],
)
def test_validate(run, name, code, text):
    result = run(["plugins", "validate", name], FINE, AWAY, BROKEN)
    assert result.exit_code == code
    assert text in result.output


def test_validate_looks_at_targets_and_on_request_at_code(run):
    from thunder.extend import Claim

    claims = (Claim("torch.snn"), Claim("torch.sin", check="no_such_module:f"))
    plugin = found("odd", Status.AVAILABLE, executors=(Executor(name="odd", claims=claims),))
    plain, imports = (run(["plugins", "validate", "odd", *more], plugin) for more in ([], ["--imports"]))
    assert (plain.exit_code, imports.exit_code) == (1, 1)
    assert "torch.snn" in plain.output
    assert "no_such_module" not in plain.output
    assert "no_such_module" in imports.output


def test_validate_an_unknown_name(run):
    result = run(["plugins", "validate", "tortch"])
    assert result.exit_code == 1
    assert 'did you mean "torch"' in str(result.exception)


def test_validate_finds_the_other_owner_of_a_name(run):
    other = found("twin", Status.AVAILABLE, executors=(Executor(name="fine"),))
    result = run(["plugins", "validate", "fine"], FINE, other)
    assert result.exit_code == 1
    assert 'executor "fine" is also in d-twin 1.0' in result.output


@pytest.mark.parametrize(
    ("check", "code", "texts"),
    [
        ("ok", 0, ["ok", "health: all is well"]),
        ("bad", 1, ["fail", "all is lost", "try start again"]),
        ("fails", 1, ["fail", "OSError: no disk"]),
    ],
)
def test_doctor(run, check, code, texts):
    plugin = found("sick", Status.AVAILABLE, checks=(Check("health", run=f"{__name__}:{check}"),))
    cli.resolve.cache_clear()
    result = run(["doctor"], plugin)
    cli.resolve.cache_clear()
    assert result.exit_code == code
    assert all(text in result.output for text in texts)


@pytest.mark.parametrize(("plugin", "code"), [(AWAY, 0), (BROKEN, 1)])
def test_doctor_minds_broken_plugins(run, plugin, code):
    cli.resolve.cache_clear()
    result = run(["doctor"], plugin)
    cli.resolve.cache_clear()
    assert result.exit_code == code
    assert plugin.fix in result.output


def test_doctor_measures_the_machine(run):
    """Executors that can run a call are timed beside PyTorch; the others say why they cannot."""
    takes, refuses = racer("takes", "often"), racer("refuses", "once")
    plugin = found("racing", Status.AVAILABLE, executors=(takes, refuses))
    cli.resolve.cache_clear()
    result = run(["doctor"], plugin)
    cli.resolve.cache_clear()
    row = result.output[result.output.index("GF/s") :]
    for text in ("linear float32 (8, 4) x (6, 4)", "torch", "takes", "refuses: the rows are not one row"):
        assert text in row
    assert row.index("torch") < row.index("takes ")


PROGRAM = """
import dataclasses

@dataclasses.dataclass
class Point:
    x: int

def double(x):
    return 2 * x

def arguments():
    return (Point(4).x,)

def nothing():
    return "nothing"
"""


@pytest.fixture
def explained(monkeypatch):
    """What was asked to be explained."""
    seen = []

    def explain(function):
        def call(*args):
            seen.append(function(*args))
            return "the explanation"

        return call

    def jit(function, executors):
        return lambda *args: (function(*args), executors)

    monkeypatch.setitem(vars(thunder), "explain", explain)
    monkeypatch.setitem(vars(thunder), "jit", jit)
    return seen


@pytest.mark.parametrize("place", ["{file}:", "{module}:"])
def test_explain(run, explained, tmp_path, monkeypatch, place):
    (tmp_path / "a_program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    place = place.format(file="a_program.py", module="a_program")
    with_input = run(["explain", f"{place}double", "--input", f"{place}arguments", "--executors", "fine,..."])
    without = run(["explain", f"{place}nothing"])
    sys.modules.pop("a_program", None)
    assert (with_input.exit_code, with_input.output) == (0, "the explanation\n")
    assert without.exit_code == 0
    assert explained == [(8, "fine,..."), "nothing"]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("no_such_file.py:f", "FileNotFoundError"),
        ("no_such_module:f", "ModuleNotFoundError"),
        ("math:sine", "AttributeError"),
        ("math", "ValueError"),
    ],
)
def test_explain_what_does_not_load(run, explained, monkeypatch, target, why):
    monkeypatch.setattr(sys, "path", sys.path[:])
    result = run(["explain", target])
    assert result.exit_code == 1
    assert why in str(result.exception)
    assert not explained


def test_explain_a_function_that_takes_other_arguments(run, explained, tmp_path, monkeypatch):
    (tmp_path / "a_program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    result = run(["explain", "a_program.py:double"])
    assert isinstance(result.exception, thunder.errors.ThunderError)
    assert "--input" in str(result.exception)
    assert not explained


def test_errors_are_printed_without_a_traceback(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["thunder", "plugins", "validate", "tortch"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith('thunder: there is no plugin "tortch"')
    assert "Traceback" not in error
