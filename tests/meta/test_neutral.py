"""thunder-core knows no executor by name, apart from the two it brings: torch and python."""

from __future__ import annotations

import re

import pytest

from tests.meta.sources import module_name, sources

FOREIGN = re.compile(
    r"\b(nvfuser|apex|inductor|triton|te|onednn|transformer[_ ]?engine|thunder_(te|apex|nvfuser|inductor|onednn))\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("path", sources(), ids=module_name)
def test_no_foreign_executor_is_named(path):
    lines = enumerate(path.read_text().splitlines(), start=1)
    assert not [f"{path.name}:{n}: {line.strip()}" for n, line in lines if FOREIGN.search(line)]


@pytest.mark.parametrize("text", ['"te.fp8.backward"', "nvFuser", "# as TransformerEngine", "import thunder_apex"])
def test_the_pattern_finds_them(text):
    assert FOREIGN.search(text)


@pytest.mark.parametrize("text", ["tensor", "write", "torch.float32", "the latest state"])
def test_the_pattern_finds_nothing_else(text):
    assert not FOREIGN.search(text)
