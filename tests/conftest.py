"""Settings of the whole test suite: one thread per process, repeatable examples."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import settings

# Examples are drawn from a fixed seed, and no example fails for being slow on a busy machine.
settings.register_profile("thunder", deadline=None, derandomize=True)
settings.load_profile("thunder")
