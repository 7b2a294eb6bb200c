"""Fixtures of measured selection."""

from __future__ import annotations

import pytest

from tests.core.runtime.measuring import Prices
from thunder.passes import measure
from thunder.runtime import measured


@pytest.fixture
def folder(tmp_path, monkeypatch, strict):
    """A cache of its own, and nothing measured unless asked for."""
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("THUNDER_SELECT", raising=False)
    return tmp_path


@pytest.fixture
def priced(monkeypatch):
    """Let candidates of calls have prices."""

    def use(**seconds: float) -> Prices:
        prices = Prices(**seconds)
        monkeypatch.setattr(measured, "trial", prices.trial)
        monkeypatch.setattr(measure, "clock_for", lambda types: lambda: prices.now)
        return prices

    return use
