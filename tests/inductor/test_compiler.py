"""Without a compiler the executor says so; with one that fails, programs are right and one warning tells it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from thunder.errors import PluginError
from thunder.plugins.manager import Registry
from thunder.plugins.needs import first_unmet
from thunder_inductor import compiler
from thunder_inductor.plugin import INDUCTOR


def test_no_compiler(monkeypatch, tmp_path):
    """The reason names the program that was looked for, and the fix how to get one."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    unmet = first_unmet(INDUCTOR.needs)
    assert unmet is not None
    assert compiler.command() in unmet.why
    assert "apt install g++" in unmet.fix
    assert not compiler.doctor().ok
    with pytest.raises(PluginError, match="unavailable"):
        Registry().register(INDUCTOR)


def test_a_compiler_by_name(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    assert str(tmp_path) in compiler.missing()
    monkeypatch.setenv("CXX", sys.executable)
    assert compiler.missing() == ""


PROGRAM = """
import warnings, torch, thunder
from thunder_inductor.compiler import doctor
from thunder_inductor.plugin import INDUCTOR
x = torch.arange(64.0, requires_grad=True)
program = lambda x: (x.sin() + x.cos() * 2, x.exp().sum())
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    jitted = thunder.jit(program, executors=[INDUCTOR], frontend="functional")
    for _ in range(3):
        assert all(map(torch.equal, jitted(x), program(x)))
told = [str(w.message) for w in told if "runs unfused" in str(w.message)]
assert len(told) == len({w.split("inductor_region")[0] for w in told}) and told, told
assert all("told to fail" in w for w in told), told
assert not doctor().ok and "told to fail" in doctor().message, doctor()
"""


@pytest.mark.slow
def test_a_compiler_that_fails(tmp_path):
    """Regions run unfused, bitwise as in eager; the warning has the compiler's words, and so has ``thunder doctor``."""
    broken = tmp_path / "g++"
    broken.write_text(
        '#!/bin/sh\ncase "$*" in *--version*|*-dumpversion*) exec g++ "$@";; esac\necho told to fail >&2; exit 1\n'
    )
    broken.chmod(0o755)
    environment = {**os.environ, "CXX": str(broken), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "THUNDER_STRICT": "0"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
