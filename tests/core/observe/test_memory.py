"""Whether freed memory stays with the process is seen, and what keeps it there is told."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = "from thunder.observe.memory import check_memory; result = check_memory(); print(result.ok, result.message)"


def told(**environment: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return run.stdout


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the variables are glibc's")
def test_memory_that_goes_back_to_the_system_and_what_is_said_to_keep_it():
    small = {"MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_MMAP_THRESHOLD_": "131072"}
    found = told(**small)
    assert found.startswith("True what is freed goes back to the system: each 100 MB")
    remedy = dict(word.split("=") for word in found.split() if word.startswith("MALLOC_"))
    assert remedy.keys() == small.keys()
    assert (
        told(**{name: value.rstrip(",") for name, value in remedy.items()})
        == "True what is freed stays with the process\n"
    )
