"""Options: defaults, values that fit, and an error for each way not to fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thunder.errors import OptionError
from thunder.extend import Executor, Option
from thunder.plugins.options import resolve_options

MINE = Executor(
    name="mine",
    options=(
        Option("recipe", str, "delayed", "which recipe", choices=("delayed", "current")),
        Option("margin", int, 0, "how much room"),
        Option("rate", float, 0.5, "how fast"),
        Option("fast", bool, False, "whether to hurry"),
        Option("path", str, None, "where, if anywhere"),
    ),
)
OTHER = Executor(name="other", options=(Option("margin", int, 7, ""),))
CORE = (Option("verify", bool, False, ""),)


def test_defaults():
    assert resolve_options({}, [MINE, OTHER], CORE) == {
        "core": {"verify": False},
        "mine": {"recipe": "delayed", "margin": 0, "rate": 0.5, "fast": False, "path": None},
        "other": {"margin": 7},
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mine.recipe", "current"),
        ("mine.margin", 3),
        ("mine.rate", 2),
        ("mine.fast", True),
        ("mine.path", "/tmp"),
        ("mine.path", None),
    ],
)
def test_a_value_changes_one_option(name, value):
    before, after = resolve_options({}, [MINE, OTHER]), resolve_options({name: value}, [MINE, OTHER])
    assert after["mine"] == {**before["mine"], name.partition(".")[2]: value}
    assert after["other"] == before["other"]


def test_an_int_becomes_a_float():
    assert type(resolve_options({"mine.rate": 2}, [MINE])["mine"]["rate"]) is float


@pytest.mark.parametrize(
    ("user", "what", "more"),
    [
        ({"mine.recipy": "current"}, '"mine.recipy"', 'did you mean "mine.recipe"'),
        ({"mien.recipe": "current"}, '"mien.recipe"', 'did you mean "mine.recipe"'),
        ({"verfy": True}, '"verfy"', 'did you mean "verify"'),
        ({"other.margin": 1}, '"other.margin"', 'no executor "other" is selected'),
        ({"elsewhere.x": 1}, '"elsewhere.x"', 'add "elsewhere" to executors='),
        ({"core.verify": True}, '"core.verify"', 'did you mean "verify"'),
        ({"mine.recipe": "curent"}, "'curent'", "'delayed', 'current'"),
        ({"mine.recipe": "curent"}, "'curent'", 'did you mean "current"'),
        ({"mine.margin": True}, "of type int", "True"),
        ({"mine.margin": 1.0}, "of type int", "1.0"),
        ({"mine.margin": None}, "of type int", "how much room"),
        ({"mine.fast": 1}, "of type bool", "1"),
        ({"mine.path": 1}, "of type str", "1"),
    ],
)
def test_errors(user, what, more):
    with pytest.raises(OptionError) as error:
        resolve_options(user, [MINE], CORE)
    assert what in error.value.what
    assert more in str(error.value)


@given(st.dictionaries(st.sampled_from(["mine.margin", "other.margin"]), st.integers()))
def test_every_option_has_the_users_value_or_its_default(user):
    resolved = resolve_options(user, [MINE, OTHER])
    assert resolved["mine"]["margin"] == user.get("mine.margin", 0)
    assert resolved["other"]["margin"] == user.get("other.margin", 7)


def test_resolved_options_are_read_only():
    with pytest.raises(TypeError):
        resolve_options({}, [MINE])["mine"]["margin"] = 1  # type: ignore[index]
