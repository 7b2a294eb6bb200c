"""Every test of the conformance suite fails for an executor that is broken in the way it is about."""

from __future__ import annotations

import pytest
import torch

import thunder
from tests.core.testing import faulty  # noqa: F401 (so that it stays imported)
from thunder.testing import suite
from thunder.testing.fakes import FAKE

pytest_plugins = ["pytester"]

FILE = """
from dataclasses import replace

from tests.core.testing import faulty
from tests.core.testing.faulty import HERE, claiming, running
from thunder.testing.fakes import FAKE
from thunder.testing.suite import *

EXECUTOR = {executor}
SAMPLES = {{"torch.nn.functional.linear": faulty.samples}}
PLUGIN = "{plugin}"
"""

STATES = "replace(FAKE, states=tuple(replace(kind, {}) for kind in FAKE.states))"
BROKEN = {
    "a closer that is no symbol": ("specification_is_valid", STATES.format('close="fake.nothing"'), "not a symbol"),
    "code that does not exist": ("specification_is_valid", 'claiming(lower=f"{HERE}:nowhere")', "does not resolve"),
    "a target under another name": ("specification_is_valid", 'claiming(target="torch.Tensor.add")', "canonical name"),
    "a check that raises": ("what_a_check_answers", 'claiming(check=f"{HERE}:raises")', "ValueError: boom"),
    "a check that answers False": ("what_a_check_answers", 'claiming(check=f"{HERE}:answers_false")', "returned False"),
    "a refusal without a reason": ("what_a_check_answers", 'claiming(check=f"{HERE}:refuses_silently")', "reason=''"),
    "a kernel that fails where it was promised": (
        "what_a_check_answers",
        'running(linear_fwd=f"{HERE}:rank_two_only")',
        "no kernel for this",
    ),
    "a claim that takes nothing": ("every_claim_is_taken", 'claiming(check=f"{HERE}:refuses_all")', "is accepted"),
    "a key that is not hashable": ("cache_key", 'replace(FAKE, cache_key=f"{HERE}:a_list")', "unhashable"),
    "a key that is never the same": ("cache_key", 'replace(FAKE, cache_key=f"{HERE}:another_each_time")', "=="),
    "a wrong result": ("results_equal_eager", 'running(linear_fwd=f"{HERE}:linear_plus_one")', "are not close"),
    "a wrong gradient": ("test_gradients_equal", 'claiming(backward=f"{HERE}:doubled_gradients")', "are not close"),
    "a wrong result in one of two ways": (
        "other_ways_equal",
        'claiming(check=f"{HERE}:two_ways", lower=f"{HERE}:wrong_second_way")',
        "are not close",
    ),
    "gradients only of all inputs": (
        "gradients_of_some",
        'claiming(backward=f"{HERE}:all_or_nothing")',
        "a gradient is missing",
    ),
    "no kernel for one tensor given twice": (
        "one_tensor_given_twice",
        'running(linear_fwd=f"{HERE}:no_aliases", meta_linear_fwd="thunder.testing.fakes.kernels:linear")',
        "input and weight are one tensor",
    ),
    "a meta with another dtype": (
        "values_have_the_types",
        'running(meta_linear_fwd=f"{HERE}:double_precision")',
        "f64",
    ),
    "a meta with other strides": (
        "values_have_the_types",
        'running(meta_linear_fwd=f"{HERE}:transposed_layout")',
        "strides",
    ),
    "a kernel that writes into its argument": (
        "arguments_are_left_alone",
        'running(linear_fwd=f"{HERE}:linear_writing")',
        "writes into an argument",
    ),
    "one state for all": ("states_are_made_anew", STATES.format('init=f"{HERE}:shared"'), "one object twice"),
    "a state changed that is only read": (
        "touch_what_they_declare",
        'running(linear_bwd=f"{HERE}:meddling")',
        "only to read",
    ),
    "a closer for one state only": (
        "closers_run_once",
        'running(sync_backward=f"{HERE}:sync_one")',
        "takes 1 positional argument but 2 were given",
    ),
    "an argument that no text spells": (
        "printed_programs_run",
        'replace(running(linear_fwd=f"{HERE}:linear_noted", meta_linear_fwd=f"{HERE}:meta_noted"),'
        ' claims=(replace(FAKE.claims[0], lower=f"{HERE}:noted", grad=None),))',
        "'ellipsis' object has no attribute",
    ),
}
"""What is wrong: the test that finds it, the executor, and what the report says."""


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    """Have everything imported: what a run in this process is the first to import, it unloads."""
    thunder.jit(torch.nn.Linear(2, 2), executors=[FAKE], frontend="functional")(torch.randn(2, 2)).sum().backward()


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_executor_fails(fault: str, pytester: pytest.Pytester) -> None:
    test, executor, because = BROKEN[fault]
    assert because in report(pytester, test, executor)


def test_a_plugin_that_imports_torch_fails(pytester: pytest.Pytester) -> None:
    found = report(pytester, "imports_without_torch", "FAKE", plugin="thunder.testing.fakes.kernels")
    assert "imports torch" in found


def test_the_fake_itself_passes(pytester: pytest.Pytester) -> None:
    assert not report(pytester, "test", "FAKE")


def test_every_test_has_a_broken_executor() -> None:
    wanted = [name for name in suite.__all__ if name.startswith("test_")]
    used = ["imports_without_torch", *(test for test, *_ in BROKEN.values())]
    assert not [name for name in wanted if not any(part in name for part in used)]


def report(pytester: pytest.Pytester, test: str, executor: str, plugin: str = "thunder.testing.fakes") -> str:
    """What is said about the failures of a test of the suite; empty if it passes with all its parameters."""
    pytester.makepyfile(FILE.format(executor=executor, plugin=plugin))
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", "-k", test)
    counts = result.parseoutcomes()
    assert "error" not in counts
    assert bool(counts.get("failed")) != bool(counts.get("passed")), counts
    return "\n".join(line for line in result.outlines if line.startswith("E ")) if counts.get("failed") else ""
