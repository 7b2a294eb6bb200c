"""Settings of the whole test suite: one thread per process, repeatable examples, no executor that was not asked for.

Fusers that are active by default would compile C++ in every test. They are blocked here, and their own tests pass
their specifications as objects (with ``default=False``, since what is registered stays registered in the process).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("THUNDER_BLOCK_PLUGINS", "inductor")
os.environ["COLUMNS"] = "120"  # tables are as wide wherever the tests run

from hypothesis import settings

# Examples are drawn from a fixed seed, and no example fails for being slow on a busy machine.
settings.register_profile("thunder", deadline=None, derandomize=True)
settings.load_profile("thunder")
