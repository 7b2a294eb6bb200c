"""The dynamo front end where Dynamo fails, and where Python hands operands over in another order."""

from __future__ import annotations

import operator

import pytest
import torch
import torch._dynamo

import thunder


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch._dynamo.reset()


@pytest.mark.parametrize("error", [AssertionError, torch._dynamo.exc.InternalTorchDynamoError])
def test_what_dynamo_fails_on_runs_eagerly_with_a_warning(error, monkeypatch):
    def failing(*args):
        raise error("on purpose")

    def jitted(**options):
        made = thunder.jit(lambda x: x * 2, **options)
        made._compiled = failing
        return made

    function = jitted()
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="Dynamo fails on it.*on purpose"):
            torch.testing.assert_close(function(torch.ones(2)), torch.full((2,), 2.0))
    assert [note.kind for note in function._thunder_notes] == ["eager"]
    with pytest.raises(error):
        jitted(fullgraph=True)(torch.ones(2))
    monkeypatch.setenv("THUNDER_STRICT", "1")
    with pytest.raises(error):
        jitted()(torch.ones(2))


def test_an_assertion_of_the_program_fails_as_in_eager():
    def fn(x):
        assert x.shape[0] == 3, "three"
        return x * 2

    with pytest.raises(AssertionError, match="three"):
        thunder.jit(fn)(torch.ones(2))


@pytest.mark.parametrize("compare", [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne])
def test_comparisons_have_the_layout_of_their_first_operand(compare):
    def fn(x):
        return compare(x, x.t()), compare(x.t(), x), compare(x, 1)

    x = torch.arange(9.0).reshape(3, 3)
    for ours, theirs in zip(thunder.jit(fn)(x), fn(x)):
        torch.testing.assert_close(ours, theirs)
        assert ours.stride() == theirs.stride()
