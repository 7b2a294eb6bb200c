"""What the README says of operations is what the executor says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from thunder.capture.record import record
from thunder.extend import ClaimContext, Yes
from thunder.ir.trace import Names
from thunder.passes.bodies import Bodies
from thunder.passes.functionalize import functionalize
from thunder_inductor.supports import supports

README = Path(__file__).parents[2] / "packages" / "thunder-inductor" / "README.md"
ROW = re.compile(r"\| `(torch\..*?)` \| (yes|no) \| (.*?) ?\|")
ROWS = ROW.findall(README.read_text())


def asked(text: str) -> list:
    """The answers for the operators that a call is made of; the last call in the text is the one it is about."""
    x, i = torch.randn(8, 8), torch.zeros(8, 8, dtype=torch.int64)
    program = eval(f"lambda x, i: {text}", {"torch": torch})
    trace = functionalize(record(lambda x, i: list(_flat(program(x, i))), [("x", x), ("i", i)]))
    op = trace.ops[-1]
    parts = Bodies().prims(op, Names.of(trace)) or [op]
    return [supports(ClaimContext(), part) for part in parts]


def _flat(out):
    return out if isinstance(out, (tuple, list)) else [out]


@pytest.mark.parametrize(("text", "answer", "reason"), ROWS, ids=[row[0] for row in ROWS])
def test_rows(text, answer, reason):
    found = asked(text)
    refusals = [refusal.reason for refusal in found if not isinstance(refusal, Yes)]
    assert (answer == "yes") == (not refusals)
    assert all(refusal.startswith(reason) for refusal in refusals)


def test_there_are_rows():
    assert len(ROWS) > 10
