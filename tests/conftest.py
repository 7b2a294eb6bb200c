"""Settings of the whole test suite: one thread per process, repeatable examples, no executor that was not asked for.

Fusers that are active by default would compile C++ in every test. They are blocked here, and their own tests pass
their specifications as objects (with ``default=False``, since what is registered stays registered in the process).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("THUNDER_BLOCK_PLUGINS", "inductor")
os.environ["COLUMNS"] = "120"  # tables are as wide wherever the tests run

import pytest
from hypothesis import settings

# Examples are drawn from a fixed seed, and no example fails for being slow on a busy machine.
settings.register_profile("thunder", deadline=None, derandomize=True)
settings.load_profile("thunder")


@pytest.fixture
def strict(monkeypatch):
    """Every trace is verified between passes, and what would be a warning, or run eagerly instead, is an error."""
    import torch  # here: some tests are about not importing it

    monkeypatch.setenv("THUNDER_VERIFY", "1")
    monkeypatch.setenv("THUNDER_STRICT", "1")
    torch._dynamo.reset()
    torch.manual_seed(0)
