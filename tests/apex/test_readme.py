"""The README is true: its table is that of the specification, its program runs, its command is that of the error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import thunder
from thunder.plugins.manager import registry
from thunder_apex.extensions import CROSS_ENTROPY, NORM
from thunder_apex.plugin import APEX, INSTALL

README = Path(__file__).parents[2] / "packages" / "thunder-apex" / "README.md"


def claims() -> str:
    """The lines of the table of claims, from the specification."""
    lines = ["| call | forward | backward |", "| --- | --- | --- |"]
    for claim in APEX.claims:
        name = claim.target.rpartition(".")[2]
        module = CROSS_ENTROPY if name == "cross_entropy" else NORM
        symbols = [op.name for op in APEX.symbols if op.name.startswith(f"apex.{name}_")]
        lines.append(f"| `{claim.target}` | {' | '.join(f'`{symbol}` (`{module}`)' for symbol in symbols)} |")
    return "\n".join(lines)


def test_the_table_of_claims():
    written = re.search(r"<!-- made from the specification -->\n(.*?)\n<!-- end -->", README.read_text(), re.DOTALL)[1]
    assert written == claims()


def test_options():
    text = README.read_text()
    for option in APEX.options:
        assert f"| `apex.{option.name}` | {option.default} |" in text


def test_the_command_is_that_of_the_error():
    assert INSTALL in README.read_text()


def test_the_program_runs(device):
    registry().register(APEX)
    program = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[1]
    assert len(program.strip().splitlines()) <= 6
    space: dict = {}
    exec(program.replace(".cuda()", f".to('{device}')").replace('"cuda"', f'"{device}"'), space)
    assert all(p.grad is not None for p in space["model"].parameters())
    symbols = [op.sym.name for op in thunder.last_traces(space["model"])[-1].ops]
    assert "apex.layer_norm_fwd" in symbols
    assert isinstance(space["loss"], torch.Tensor)
    assert pytest.approx(1, rel=0.2) == space["loss"].item()  # a layer norm has variance 1
