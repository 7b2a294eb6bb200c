"""Environments with fixture packages installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.core.plugins.install import install
from thunder.plugins import manager
from thunder.plugins.spec import resolve


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """A function that installs fixture packages for the length of a test, and returns the folder they are in."""
    for name in ("THUNDER_STRICT_PLUGINS", "THUNDER_EXECUTORS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("THUNDER_BLOCK_PLUGINS", "inductor")  # whatever was blocked outside, and no default of ours
    before = set(sys.modules)

    def add(*names: str) -> Path:
        for name in names:
            install(name, tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path))
        return tmp_path

    manager.registry.cache_clear()
    yield add
    manager.registry.cache_clear()
    resolve.cache_clear()
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]
