"""What is chosen from costs, and the file that keeps them."""

from __future__ import annotations

import json
import multiprocessing
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thunder.passes import decisions
from thunder.passes.decisions import MARGIN, Cost, Store, cheapest, machine_key, store

COSTS = st.dictionaries(
    st.sampled_from("abcd"), st.builds(Cost, st.floats(1e-6, 1.0), st.integers(0, 3)), min_size=2
).flatmap(lambda costs: st.tuples(st.permutations(list(costs)), st.just(costs)))


@given(COSTS, st.booleans())
def test_the_choice(case, trade):
    labels, costs = case
    chosen, native = cheapest(labels, costs, trade), costs[labels[-1]]
    assert costs[chosen].seconds <= MARGIN * native.seconds
    assert trade or costs[chosen].saved <= native.saved
    allowed = [label for label in labels if trade or costs[label].saved <= native.saved]
    for label in allowed[: allowed.index(chosen)]:
        assert costs[label].seconds > MARGIN * min(costs[other].seconds for other in allowed)


@pytest.mark.parametrize(("seconds", "chosen"), [(1.04, "first"), (1.06, "last"), (0.5, "first")])
def test_the_order_stands_within_the_margin(seconds, chosen):
    assert cheapest(["first", "last"], {"first": Cost(seconds), "last": Cost(1.0)}, False) == chosen


def test_memory_is_traded_only_if_asked():
    costs = {"greedy": Cost(1.0, saved=2), "native": Cost(9.0, saved=1)}
    assert cheapest(["greedy", "native"], costs, False) == "native"
    assert cheapest(["greedy", "native"], costs, True) == "greedy"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "measured.json"


def test_a_later_store_knows_what_lasts(path):
    first = Store(path, {"cpu": "x"})
    first.add("group", "call", {"a": Cost(1.0, 5)})
    first.add("group", "other", {"a": Cost(2.0)}, lasting=False)
    later = Store(path, {"cpu": "x"})
    assert later.find("group", "call") == {"a": Cost(1.0, 5)}
    assert later.find("group", "other") is None
    assert later.find("another group", "call") is None
    assert first.find("group", "other") == {"a": Cost(2.0)}
    assert json.loads(path.read_text())["machine"] == {"cpu": "x"}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"costs": 1}', '{"costs": {"g": {"c": {"a": 1}}}}', "\x00"])
def test_a_corrupt_file_is_told_and_written_anew(path, text):
    path.parent.mkdir()
    path.write_text(text)
    with pytest.warns(RuntimeWarning, match="made again"):
        kept = Store(path, {})
    with pytest.warns(RuntimeWarning, match="made again"):
        kept.add("group", "call", {"a": Cost(1.0)})
    assert Store(path, {}).find("group", "call") == {"a": Cost(1.0)}


def test_a_folder_that_cannot_be_written_costs_one_warning(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="made again"):
        kept = Store(tmp_path / "file" / "measured.json", {})
    with pytest.warns(RuntimeWarning, match="not kept"):
        kept.add("group", "call", {"a": Cost(1.0)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept.add("group", "other", {"a": Cost(2.0)})
    assert (kept.find("group", "call"), kept.find("group", "other")) == ({"a": Cost(1.0)}, {"a": Cost(2.0)})


def _adding(path, number):
    kept = Store(path, {})
    for count in range(20):
        kept.add("group", f"{number} {count}", {"a": Cost(float(count))})


def test_concurrent_processes_lose_nothing(path):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_adding, args=(path, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    kept = Store(path, {})
    assert all(kept.find("group", f"{n} {count}") == {"a": Cost(float(count))} for n in range(3) for count in range(20))


def test_another_number_of_threads_is_another_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))
    before = store()
    assert store() is before
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    assert store() is not before
    assert machine_key()["threads"] == 77
    assert machine_key()["cpu"]


def test_where_the_file_lies(tmp_path, monkeypatch):
    monkeypatch.delenv("THUNDER_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert decisions._folder() == tmp_path / "thunder"
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path / "own"))
    assert decisions._folder() == tmp_path / "own"


@pytest.mark.parametrize("wrong", ["null", '"fast"', "NaN", "-1"])
def test_costs_that_are_none_are_measured_again(tmp_path, wrong):
    path = tmp_path / "costs.json"
    path.write_text('{"costs": {"group": {"call": {"mine": [WRONG, 0]}}}}'.replace("WRONG", wrong))
    with pytest.warns(RuntimeWarning, match="made again"):
        assert Store(path, {}).find("group", "call") is None
