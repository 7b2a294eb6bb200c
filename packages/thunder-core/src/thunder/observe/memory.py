"""Whether memory that is freed stays with the process: for ``thunder doctor``."""

from __future__ import annotations

import platform
import time
from importlib import import_module

import torch

from thunder.plugins.spec import CheckResult

_BLOCK = 1 << 20
"""Bytes. Larger than what allocators keep in any case."""

_BLOCKS = 256
"""More than glibc ever keeps unless it is told to: 64 MiB. What a step of a model asks for is often less, and then it
depends on where in memory something else lies whether it stays: the same program is fast in one process and slow in
the next."""

_STEPS = 4

_KEEP = "MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=33554432"
"""What tells glibc to keep up to 1 GiB, of blocks up to 32 MiB: the largest that it takes for the second."""


def check_memory() -> CheckResult:
    """Whether what a step frees is there for the next one; if the system must provide it anew, that takes time."""
    try:
        resource = import_module("resource")
    except ImportError:
        return CheckResult(True, "not known on this system")
    for _ in range(_STEPS):  # allocators adapt
        _step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    seconds = sum(_step() for _ in range(_STEPS))
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    if faults * resource.getpagesize() < _STEPS * _BLOCKS * _BLOCK / 2:
        return CheckResult(True, "what is freed stays with the process")
    return CheckResult(True, f"what is freed goes back to the system: {_cost(seconds)}; {_remedy()}")


def _step() -> float:
    """Seconds to ask for the blocks, write to them and free them, beyond those to write."""
    start = time.perf_counter()
    blocks = [torch.empty(_BLOCK, dtype=torch.uint8).fill_(1) for _ in range(_BLOCKS)]
    asked = time.perf_counter()
    for block in blocks:
        block.fill_(2)
    written = time.perf_counter()
    del blocks
    return (asked - start) - (written - asked)


def _cost(seconds: float) -> str:
    return f"each 100 MB that a step asks for take {1e3 * seconds / _STEPS * 1e8 / (_BLOCKS * _BLOCK):.0f} ms"


def _remedy() -> str:
    if platform.libc_ver()[0] != "glibc":
        return "another allocator may keep it"
    return f"start Python with {_KEEP}, or preload jemalloc or tcmalloc"
