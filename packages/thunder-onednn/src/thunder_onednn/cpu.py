"""The CPU, as the system describes it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path


@cache
def described() -> Mapping[str, str]:
    """The first processor's fields of ``/proc/cpuinfo``; empty where there is none."""
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def vendor() -> str:
    """Who made it: ``AuthenticAMD``, ``GenuineIntel``, …; empty if the system does not say."""
    return described().get("vendor_id", "")


def flags() -> frozenset[str]:
    """Its instruction sets: ``avx512bw``, …"""
    return frozenset(described().get("flags", "").split())
