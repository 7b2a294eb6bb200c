"""``import thunder`` is quick and light, and every module can be the first one imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.meta.sources import module_name, sources

LIMIT_MS = 50
PROBE = """
import sys, time
start = time.perf_counter()
import thunder
print((time.perf_counter() - start) * 1e3, "torch" in sys.modules)
"""


def python(code: str) -> str:
    """What a fresh interpreter prints for a program. Raises if the program fails, with what it said."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_quick_and_leaves_torch_alone():
    # The quickest of several: the others measure what else the machine was doing.
    runs = [python(PROBE).split() for _ in range(5)]
    assert all(torch_too == "False" for _, torch_too in runs)
    assert min(float(ms) for ms, _ in runs) < LIMIT_MS


@pytest.mark.parametrize("module", ["thunder.ir", "thunder.plugins", "thunder.errors"])
def test_light_modules_leave_torch_alone(module):
    assert python(f"import {module}, sys; print('torch' in sys.modules)").strip() == "False"


EACH = """
import importlib, os, sys, torch, torch._dynamo
for module in sys.stdin.read().split():
    if os.fork() == 0:
        importlib.import_module(module)
        os._exit(0)
    if os.wait()[1]:
        print(module)
"""


def test_every_module_can_be_the_first_one_imported():
    """Each in a fork of one interpreter that has torch: import cycles that another order hides show here."""
    modules = "\n".join(module_name(path) for path in sources())
    done = subprocess.run([sys.executable, "-c", EACH], input=modules, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [], done.stderr
