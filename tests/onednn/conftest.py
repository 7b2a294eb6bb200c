"""Every trace is verified between passes, what would run eagerly instead is an error."""

from __future__ import annotations

import pytest

from thunder_onednn.library import missing


@pytest.fixture(autouse=True)
def _strict(strict, request):
    if missing() and "without_onednn" not in request.fixturenames:
        pytest.skip(f"oneDNN cannot be used here: {missing()}")
