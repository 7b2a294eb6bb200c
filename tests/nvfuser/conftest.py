"""Every trace is verified, what would be a warning is an error; the stand-in for nvFuser, where a file asks for it."""

from __future__ import annotations

import pytest

from tests.nvfuser import stand_in
from thunder_nvfuser import library


@pytest.fixture(autouse=True)
def _strict(strict):
    """For every test here."""


@pytest.fixture
def on_stand_in(monkeypatch):
    """The stand-in in the place of the library, on a CPU."""
    found = library.Library(stand_in, frozenset({"cpu"}), lambda device: stand_in.Generator())
    monkeypatch.setattr(library, "load", lambda: found)
