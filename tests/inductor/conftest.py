"""Failures are errors, traces are verified between passes, and kernels are compiled once for all tests of a session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from thunder.plugins import manager

if not os.environ.get("CXX", "") and not any(Path(p, "g++").exists() for p in os.environ["PATH"].split(os.pathsep)):
    pytest.skip("a C++ compiler is required, and there is none: install g++", allow_module_level=True)


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    """A new folder for compiled kernels, shared by the processes of the session."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(root / "inductor"))
        yield


@pytest.fixture(scope="module", autouse=True)
def _registered():
    """The executor is a default one for as long as it is registered: other tests are to run without it."""
    yield
    manager.registry.cache_clear()


@pytest.fixture(autouse=True)
def _strict(strict):
    """For every test here."""
