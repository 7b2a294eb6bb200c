"""The C++ compiler that Inductor runs."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from thunder.extend import CheckResult

INSTALL = (
    "install a C++ compiler (apt install g++, dnf install gcc-c++, conda install gxx, xcode-select --install), "
    "or name one in the environment variable CXX"
)


def command() -> str:
    """The compiler that is used: the one that CXX names, else the usual one of the system."""
    return os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")


def missing() -> str:
    """What is missing to compile; empty if nothing is. Nothing is run."""
    return "" if shutil.which(command()) else f"there is no C++ compiler: no program {command()!r} on PATH"


def doctor() -> CheckResult:
    """Compiles, loads and runs a kernel."""
    if reason := missing():
        return CheckResult(False, reason, INSTALL)
    import torch

    from thunder_inductor.library import build, load, source_of

    source = 'extern "C" void kernel(const float* in, float* out) { out[0] = in[0] + 1; }'
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "check.so")
            build(source_of([("check", ("const float*", "float*"), source)]), path)
            out = torch.zeros(1)
            load(path, "check")(torch.ones(1), out)
    except Exception as error:
        return CheckResult(False, f"{command()} does not compile a kernel: {error}", INSTALL)
    if out.item() != 2:
        return CheckResult(False, f"a kernel compiled by {command()} computes {out.item()} instead of 2", INSTALL)
    return CheckResult(True, f"{shutil.which(command())} compiles and runs a kernel")
