"""The arithmetic of the benchmarks: a number in a table means what its heading says."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import report
from benchmarks.harness import Row, Table, in_child, interleaved, ratios, seconds
from benchmarks.overhead import slope

FLOATS = st.floats(-100, 100)


@given(FLOATS, FLOATS, st.lists(st.integers(0, 2000), min_size=2, unique=True))
def test_slope_of_a_line(gradient, offset, keys):
    assert slope({key: gradient * key + offset for key in keys}) == pytest.approx(gradient, abs=1e-6)


def test_seconds_are_per_call():
    assert 0.002 <= seconds(lambda: time.sleep(0.002), repeat=5) < 0.02


def test_interleaved_runs_everything_in_each_round():
    calls = []
    samples = interleaved({name: lambda name=name: calls.append(name) for name in "abc"}, rounds=3, repeat=2)
    assert {name: len(values) for name, values in samples.items()} == {"a": 3, "b": 3, "c": 3}
    assert "".join(calls) == "aabbcc" + "bbccaa" + "ccaabb"


def test_ratios_are_round_by_round():
    assert ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]


def test_markdown_says_whether_a_target_is_met():
    rows = (
        Row.of("below", [1.0, 3.0, 2.0], target=2.0),
        Row.of("above", [3.0], target=2.0),
        Row.of("free", [5.0]),
    )
    lines = report.markdown(Table(title="T", unit="ms", rows=rows)).splitlines()
    assert lines[4:] == ["| below | 2 | 1 | 2 | yes |", "| above | 3 | 3 | 2 | no |", "| free | 5 | 5 |  |  |"]


def test_a_child_gives_its_result():
    assert in_child("benchmarks.harness:ratios", samples=[2.0], base=[4.0]) == [0.5]


def test_a_failing_child_says_why():
    with pytest.raises(RuntimeError, match="no_such_module"):
        in_child("no_such_module:f")
