"""Files stay small enough to read in one sitting."""

from __future__ import annotations

import pytest

from tests.meta.sources import ROOT, sources

LIMIT = 500
FILES = [path for part in ("packages", "tests", "benchmarks", "examples") for path in sources(ROOT / part)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_is_long(path):
    assert len(path.read_text().splitlines()) <= LIMIT
