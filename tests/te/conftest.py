"""Every trace is verified between passes, and what would run eagerly instead is an error."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _strict(strict):
    """For every test here."""
