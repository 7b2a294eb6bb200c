"""Every operator of PyTorch's own database against eager: values, types, layouts, aliasing, writes, gradients, raising.

The whole sweep is slow; without it, a sample of operators is swept that stays the same from run to run.
"""

from __future__ import annotations

import warnings

import pytest
import torch

from tests.core.semantics.op_db.cases import DTYPES, cases, operators, seeded_sample
from tests.core.semantics.op_db.known_differences import DECLINED, KNOWN, UNINITIALISED
from tests.core.semantics.op_db.sweep import Outcome, Verdict, sweep

KINDS = (
    "__getitem__",  # makes a constant of a Python list
    "_batch_norm_with_update",  # writes more than its schema says
    "atan2",  # needs what it overwrites for its derivative
    "atleast_2d",  # passes some arguments through
    "linalg.cond",  # views of forward values in backward
    "linalg.matrix_rank",  # leaves out= alone on fakes
    "masked_select",  # shapes that depend on data
    "native_group_norm",  # changes sizes in place below autograd
    "nn.functional.dropout",  # random
    "nn.functional.embedding",  # sparse gradients
    "pca_lowrank",  # views of views of forward values in backward
    "sparse.sampled_addmm",  # tensors without strides
    "squeeze",  # changes sizes in place
    "to",  # arguments that are positional for the schema and keywords for Python
)
"""Operators that stand for a kind of difficulty each: always swept."""

SAMPLE = sorted({*KINDS, *seeded_sample(count=60, seed=0)})


@pytest.fixture(autouse=True)
def _verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_VERIFY", "1")


def judged(name: str, dtypes: tuple[torch.dtype, ...], limit: int) -> list[Outcome]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(sweep(cases(operators()[name], dtypes), limit))


def unexpected(outcomes: list[Outcome], name: str) -> list[str]:
    """The outcomes that are neither right nor known."""
    allowed = {Verdict.RIGHT, Verdict.RAISES} | ({Verdict.DECLINED} if name in DECLINED else set())
    return [str(outcome) for outcome in outcomes if outcome.verdict not in allowed]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_operators_means_what_it_means_in_eager(name: str) -> None:
    if name not in operators():
        pytest.skip(f"PyTorch {torch.__version__} has no samples of {name}")
    found = unexpected(judged(name, (torch.float32,), limit=2), name)
    assert not found, "\n".join(found)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(operators()))
def test_every_operator_means_what_it_means_in_eager(name: str) -> None:
    outcomes = judged(name, DTYPES, limit=6)
    found = unexpected(outcomes, name)
    assert not found, "\n".join(found)
    declines = any(outcome.verdict is Verdict.DECLINED for outcome in outcomes)
    assert declines == (name in DECLINED), "known_differences.DECLINED does not say what happens"


def test_known_differences_name_operators_that_exist_and_say_why() -> None:
    named = {*UNINITIALISED, *DECLINED, *(known.operator for known in KNOWN)}
    assert named <= operators().keys() | {"resize_as_", "qr"}  # not in the database of every version of PyTorch
    assert all(DECLINED.values())
    assert all(known.reason for known in KNOWN)
