"""Who runs, in which order: the forms of a selection, their equivalence, and every way to get one wrong."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thunder.errors import PluginError
from thunder.executors.python import PYTHON
from thunder.executors.torch import TORCH
from thunder.extend import Claim, Cuda, Distribution, Executor, Modules, Probe
from thunder.plugins.manager import Registry, registry
from thunder.plugins.selection import default_executors, select_executors

NAMES = ["alpha", "beta", "gamma", "delta"]
LAST = ["torch", "python"]


def make_registry(*executors: Executor) -> Registry:
    made = Registry()
    for executor in executors:
        made.register(executor)
    return made


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv("THUNDER_EXECUTORS", raising=False)


@pytest.fixture
def some() -> Registry:
    """alpha and beta are defaults, gamma and delta are not; beta comes before alpha."""
    return make_registry(
        Executor(name="alpha", default=True),
        Executor(name="beta", default=True, before=("alpha",)),
        Executor(name="gamma", before=("beta",)),
        Executor(name="delta", numerics="approximate"),
    )


def names(spec: Any, known: Registry) -> list[str]:
    return [executor.name for executor in select_executors(spec, known)]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (None, ["beta", "alpha"]),
        ([], []),
        ((), []),
        ("", []),
        (["gamma"], ["gamma"]),
        (("gamma", "alpha"), ["gamma", "alpha"]),
        (["gamma", ...], ["gamma", "beta", "alpha"]),
        ([..., "gamma"], ["beta", "alpha", "gamma"]),
        (["alpha", ...], ["alpha", "beta"]),
        (["gamma", "..."], ["gamma", "beta", "alpha"]),
        (["gamma", ..., "-beta"], ["gamma", "alpha"]),
        (["-beta"], ["alpha"]),
        (["-beta", "gamma"], ["gamma"]),
        (["gamma", "gamma", "-gamma"], []),
        ([..., ...], ["beta", "alpha"]),
        (["torch", "gamma"], ["gamma"]),
        ("gamma,...,-beta", ["gamma", "alpha"]),
        (" gamma , delta ", ["gamma", "delta"]),
        ("gamma", ["gamma"]),
    ],
)
def test_forms(some, spec, expected):
    assert names(spec, some) == expected + LAST


def test_nothing_installed():
    assert select_executors(None, Registry()) == (TORCH, PYTHON)


def test_objects(some):
    mine = Executor(name="mine")
    assert select_executors(["gamma", mine, TORCH], some)[1] is mine
    assert some.executor("mine") is mine


def test_an_object_that_is_replaced(some):
    first, second = Executor(name="mine"), Executor(name="mine", summary="better")
    assert select_executors([first], some)[0] is first
    assert select_executors([second], some)[0] is second
    assert some.executor("mine") is second


def test_the_environment_is_the_default_only(some, monkeypatch):
    monkeypatch.setenv("THUNDER_EXECUTORS", "delta,...,-beta")
    assert names(None, some) == ["delta", "alpha", *LAST]
    assert names(["gamma"], some) == ["gamma", *LAST]


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        (["gama"], 'there is no executor "gama"'),
        (["-gama"], 'there is no executor "gama"'),
        (["-torch"], '"torch" cannot be removed'),
        ([3], "3 names no executor"),
        (3, "3 names no executor"),
        ([None], "None names no executor"),
        ([Executor(name="Bad")], '"Bad" is not valid'),
        ([Executor(name="torch", summary="another")], 'there is an executor "torch" already'),
        ([Executor(name="mine", needs=(Distribution("nobody-has-this"),))], '"mine" is unavailable'),
        ([Executor(name="mine", claims=(Claim("torch.snn"),))], '"mine" claims what this PyTorch does not have'),
    ],
)
def test_errors(some, spec, what):
    with pytest.raises(PluginError) as error:
        select_executors(spec, some)
    assert what in error.value.what
    assert error.value.fix or error.value.why


def test_several_names_in_one_are_answered_with_what_to_write(some):
    with pytest.raises(PluginError) as error:
        select_executors(["gamma, beta"], some)
    assert "['gamma', 'beta']" in error.value.fix


def test_an_unknown_name_is_answered_with_the_nearest_and_the_list(some):
    with pytest.raises(PluginError) as error:
        select_executors(["gama"], some)
    assert '"gamma"' in error.value.fix
    for name in [*NAMES, *LAST]:
        assert f'"{name}"' in error.value.why


def test_what_is_not_available_may_be_removed(installed):
    installed("thunder-unmet", "thunder-bad-import", "thunder-example")
    assert names("example,...,-unmet,-bad_import", registry()) == ["example", *LAST]
    with pytest.raises(PluginError, match="installed but unavailable"):
        names("unmet", registry())


def test_needs_ask_for_devices_last(monkeypatch):
    monkeypatch.setattr(Cuda, "unmet", lambda self: pytest.fail("asked for a device"))
    with pytest.raises(PluginError, match="nobody-has-this"):
        Registry().register(Executor(name="mine", needs=(Cuda(), Distribution("nobody-has-this"))))


@pytest.mark.parametrize(
    ("available", "capability", "why"),
    [
        (False, (0, 0), "PyTorch sees none"),
        (True, (8, 6), "8.9 is required, and the best one here has 8.6"),
        (True, (9, 0), ""),
    ],
)
def test_cuda(monkeypatch, available, capability, why):
    import torch

    capabilities = [(7, 5), capability]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: capabilities[index])
    unmet = Cuda(min=(8, 9)).unmet()
    assert (unmet.why if unmet else "").endswith(why)
    assert (unmet is None) is (why == "")


@pytest.mark.parametrize(
    ("installed_version", "specifier", "met"),
    [
        ("2.10.0", ">=2.10", True),
        ("2.10.0a0+git", ">=2.10", True),
        ("2.9.1", ">=2.10", False),
        ("3.0", ">=2.0,<3", False),
        ("0.1", "", True),
    ],
)
def test_distribution(monkeypatch, installed_version, specifier, met):
    monkeypatch.setattr("thunder.plugins.needs.metadata.version", lambda name: installed_version)
    unmet = Distribution("anything", specifier).unmet()
    assert (unmet is None) is met
    assert met or installed_version in unmet.why


@pytest.mark.parametrize(
    ("names", "met"),
    [(("no_such_module", "json"), True), (("no_such_module", "nor_this"), False), (("made_by_hand",), True)],
)
def test_modules(monkeypatch, names, met):
    monkeypatch.setitem(sys.modules, "made_by_hand", ModuleType("made_by_hand"))
    unmet = Modules(any_of=names, install="make it").unmet()
    assert (unmet is None) is met
    assert met or (unmet.fix == "make it" and "no_such_module or nor_this" in unmet.why)


def nothing_missing() -> str:
    return ""


def an_entry_point_missing() -> str:
    return "no entry point"


@pytest.mark.parametrize(
    ("function", "why"),
    [("nothing_missing", None), ("an_entry_point_missing", "no entry point"), ("no_such_function", "AttributeError")],
)
def test_probe(function, why):
    unmet = Probe(run=f"{__name__}:{function}", fix="get it").unmet()
    assert (unmet is None) is (why is None)
    assert why is None or (why in unmet.why and unmet.fix == "get it")


ITEMS = st.lists(st.sampled_from([*NAMES, *LAST, ..., *[f"-{name}" for name in NAMES]]), max_size=8)


@given(ITEMS)
def test_laws(spec):
    known = make_registry(*[Executor(name=name, default=name in ("alpha", "beta")) for name in NAMES])
    chosen = names(spec, known)
    removed = {item[1:] for item in spec if item is not ... and item.startswith("-")}
    assert chosen[-2:] == LAST
    assert len(set(chosen)) == len(chosen)
    assert removed.isdisjoint(chosen)
    assert names(",".join("..." if item is ... else item for item in spec), known) == chosen
    named = [item for item in spec if item in NAMES and item not in removed]
    if ... not in spec and named:
        assert chosen[:-2] == list(dict.fromkeys(named))
    if ... in spec:
        assert {"alpha", "beta"} - removed <= set(chosen)


@given(st.permutations(NAMES), st.data())
def test_default_order_respects_before(order, data):
    executors = []
    for index, name in enumerate(order):
        later = data.draw(st.sets(st.sampled_from(order[index + 1 :]))) if order[index + 1 :] else set()
        executors.append(Executor(name=name, default=True, before=tuple(later)))
    chosen = [executor.name for executor in default_executors(make_registry(*executors))][:-2]
    position = {executor.name: index for index, executor in enumerate(default_executors(make_registry(*executors)))}
    assert all(position[e.name] < position[later] for e in executors for later in e.before)
    assert (
        chosen
        == [executor.name for executor in default_executors(make_registry(*data.draw(st.permutations(executors))))][:-2]
    )


def test_contradicting_orders():
    known = make_registry(
        Executor(name="alpha", default=True, before=("beta",)),
        Executor(name="beta", default=True, before=("alpha",)),
    )
    with pytest.raises(PluginError, match=r"alpha, beta, alpha|beta, alpha, beta"):
        select_executors(None, known)
    assert names(["alpha", "beta"], known) == ["alpha", "beta", *LAST]


def test_defaults_that_ask_for_nothing_are_ordered_by_name():
    known = make_registry(*[Executor(name=name, default=True) for name in ("gamma", "alpha", "beta")])
    assert names(None, known) == ["alpha", "beta", "gamma", *LAST]
