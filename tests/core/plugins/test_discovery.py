"""Every fault a plugin can have gets a status, a reason and a remedy, and harms no other plugin."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from types import SimpleNamespace

import pytest

from tests.core.plugins.install import FIXTURES
from thunder.errors import PluginError
from thunder.extend import Check, Executor, Transform, hookimpl
from thunder.plugins.discovery import Found, Status, discover_all, judge
from thunder.plugins.manager import Registry, discover, registry

ALL = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())

MATRIX = [
    ("thunder-example", Status.AVAILABLE, "", ""),
    ("thunder-bad-import", Status.BROKEN, "No module named 'a_module_that_does_not_exist'", "uninstall"),
    ("thunder-bad-api", Status.INCOMPATIBLE, "version 7 of the plugin contract", "upgrade thunder-core"),
    ("thunder-bad-spec", Status.BROKEN, "symbol 'elsewhere.mm'", "tell the authors of thunder-bad-spec"),
    ("thunder-duplicate", Status.AVAILABLE, "", ""),
    ("thunder-unmet", Status.UNAVAILABLE, "a-distribution-nobody-has >=2.0 is required", "pip install"),
    ("thunder-raising", Status.BROKEN, "thunder_executors raised OSError: the disk is on fire", "THUNDER_BLOCK"),
]


def by_distribution(found: tuple[Found, ...]) -> dict[str, Found]:
    return {plugin.distribution: plugin for plugin in found}


def test_the_matrix_has_every_fixture():
    assert sorted(name for name, *_ in MATRIX) == ALL


@pytest.mark.parametrize(("name", "status", "why", "fix"), MATRIX)
def test_status_of_each_fixture(installed, name, status, why, fix):
    installed(name)
    found = by_distribution(discover_all({}))[name]
    assert found.status is status
    assert why in found.why
    assert fix in found.fix
    assert status.usable is (not found.why)


def test_faults_harm_no_other_plugin(installed):
    installed(*ALL)
    found = by_distribution(discover_all({}))
    assert {name: found[name].status for name in ALL} == {name: status for name, status, *_ in MATRIX}
    assert found["thunder-core"].status is Status.ACTIVE


@pytest.mark.parametrize(
    ("name", "executor"),
    [
        ("thunder-bad-import", "bad_import"),
        ("thunder-bad-api", "bad_api"),
        ("thunder-bad-spec", "bad_spec"),
        ("thunder-unmet", "unmet"),
        ("thunder-raising", "raising"),
    ],
)
def test_naming_what_is_not_available_says_why(installed, name, executor):
    installed(name)
    found = by_distribution(discover())[name]
    with pytest.raises(PluginError) as error:
        registry().executor(executor)
    assert f'"{executor}" is installed but {found.status.value}' in error.value.what
    assert (error.value.where, error.value.why, error.value.fix) == (found.origin, found.why, found.fix)


def test_two_distributions_of_one_name(installed):
    installed("thunder-example", "thunder-duplicate")
    with pytest.raises(PluginError) as error:
        registry().executor("example")
    assert "thunder-example 1.2.0" in error.value.where
    assert "thunder-duplicate 0.1.0" in error.value.where


def test_blocking_one_of_two_settles_it(installed, monkeypatch):
    installed("thunder-example", "thunder-duplicate")
    monkeypatch.setenv("THUNDER_BLOCK_PLUGINS", "thunder-duplicate")
    assert registry().executor("example").op("example.gelu") is not None


@pytest.mark.parametrize("name", ["bad_import", "thunder-bad-import"])
def test_a_blocked_plugin_is_not_imported(installed, name):
    installed("thunder-bad-import")
    found = by_distribution(discover_all({"THUNDER_BLOCK_PLUGINS": f"other, {name}"}))["thunder-bad-import"]
    assert found.status is Status.BLOCKED
    assert "thunder_bad_import" not in sys.modules


@pytest.mark.parametrize(("name", "status"), [row[:2] for row in MATRIX])
def test_strict(installed, name, status):
    installed(name)
    if status in (Status.BROKEN, Status.INCOMPATIBLE):
        with pytest.raises(PluginError, match=status.value):
            discover_all({"THUNDER_STRICT_PLUGINS": "1"})
    else:
        discover_all({"THUNDER_STRICT_PLUGINS": "1"})


def test_listing_plugins_imports_no_torch(installed):
    """Unless one that is there needs a device: only torch knows of those."""
    others = ",".join(entry.name for entry in entry_points(group="thunder"))
    site = installed(*ALL)
    code = f"""
import sys
sys.path.insert(0, {str(site)!r})
import thunder.cli, thunder.extend
from thunder.plugins import discover
print(len(discover()), "torch" in sys.modules)
"""
    env = {**os.environ, "THUNDER_BLOCK_PLUGINS": others}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    count, torch_too = done.stdout.split()
    assert int(count) >= len(ALL) + 2
    assert torch_too == "False"


EXECUTOR = Executor(name="mine")


def plugin(**functions: object) -> SimpleNamespace:
    return SimpleNamespace(**functions)


def judged(plugin_object: object) -> Found:
    return judge(Found(name="mine", distribution="mine", version="1", entry_point="mine"), plugin_object)


@hookimpl
def thunder_executors():
    return [EXECUTOR]


def raises_system_exit():
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("plugin_object", "why"),
    [
        (plugin(thunder_executer=hookimpl(lambda: [EXECUTOR])), "unknown hook 'thunder_executer'"),
        (plugin(thunder_compiled=hookimpl(lambda trace: None)), "trace"),
        (plugin(thunder_executors=lambda: [EXECUTOR]), "thunder_executors is not marked @hookimpl"),
        (plugin(thunder_executors=thunder_executors, thunder_checks=list), "thunder_checks is not marked"),
        (plugin(), "implements no hook"),
        (plugin(thunder_executors=hookimpl(lambda: None)), "thunder_executors returned None"),
        (plugin(thunder_executors=hookimpl(lambda: 3)), "thunder_executors raised TypeError"),
        (plugin(thunder_executors=hookimpl(raises_system_exit)), "thunder_executors raised SystemExit: 3"),
        (plugin(thunder_executors=hookimpl(lambda: ["mine"])), "'mine', which is not of type Executor"),
        (plugin(thunder_executors=hookimpl(lambda: [Executor(name="torch")])), "has the name of a built-in one"),
        (plugin(thunder_checks=hookimpl(lambda: [Check("c", run="nowhere")])), "malformed import string 'nowhere'"),
        (
            plugin(thunder_transforms=hookimpl(lambda: [Transform("t", summary="", apply="nowhere")])),
            "malformed import string 'nowhere'",
        ),
    ],
)
def test_faults_of_hooks(plugin_object, why):
    found = judged(plugin_object)
    assert found.status is Status.BROKEN
    assert why in found.why
    assert "\n" not in found.why


def test_a_default_executor_makes_its_plugin_active():
    found = judged(plugin(thunder_executors=hookimpl(lambda: [Executor(name="mine", default=True)])))
    assert found.status is Status.ACTIVE
    assert Registry([found]).defaults() == found.executors


def test_an_observer_that_raises_harms_no_other():
    records = []

    def fails(record):
        raise KeyError(record)

    def keeps(record):
        records.append(record)

    observers = [fails, keeps, lambda: records.append("called without arguments")]
    found = [judged(plugin(thunder_compiled=hookimpl(observer))) for observer in observers]
    with pytest.warns(RuntimeWarning, match="KeyError"):
        Registry(found).compiled("the record")
    assert records == ["the record", "called without arguments"]


def test_transforms_and_checks_are_found_by_name():
    transform, check = Transform("double", summary="", apply="m:f"), Check("disk", run="m:f")
    found = judged(
        plugin(thunder_transforms=hookimpl(lambda: [transform]), thunder_checks=hookimpl(lambda: iter([check])))
    )
    mine = Registry([found])
    assert mine.transform("double") is transform
    assert list(mine.checks()) == [(found, check)]
    with pytest.raises(PluginError, match='did you mean "double"'):
        mine.transform("doubel")
