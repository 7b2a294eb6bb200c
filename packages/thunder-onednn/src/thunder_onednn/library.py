"""Whether PyTorch's library has what this package calls. PyTorch is not imported for it."""

from __future__ import annotations

import mmap
from importlib import metadata, util
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from thunder_onednn import cpu

KNOWN = SpecifierSet(">=2.10,<2.14")
"""The versions of PyTorch whose entry points are known to be those of ``entry``."""

MATMUL = "_ZN2at6native13mkldnn_matmulERKNS_6TensorES3_S3_ff"
"""``at::native::mkldnn_matmul(const Tensor&, const Tensor&, const Tensor& result, float beta, float alpha)``"""

INSTRUCTIONS = ({"avx512bw", "avx512vl", "avx512dq"}, {"avx_ne_convert"})
"""What PyTorch asks of a CPU before it calls oneDNN: one of these."""


def path() -> Path:
    """PyTorch's library."""
    spec = util.find_spec("torch")
    folders = spec.submodule_search_locations if spec is not None else None
    return Path(folders[0] if folders else "", "lib", "libtorch_cpu.so")


def missing() -> str:
    """Why the entry points cannot be used here; empty if they can, as far as one sees from outside."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "PyTorch is not installed"
    if not KNOWN.contains(Version(version).base_version):
        return f"the entry points of PyTorch {KNOWN} are known, and this is {version}"
    if not any(cpu.flags() >= needed for needed in INSTRUCTIONS):
        return "oneDNN wants a CPU with AVX-512 or AVX-NE-CONVERT, and a system that says so"
    if not path().is_file():
        return f"there is no {path()}"
    with path().open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        found = content.find(MATMUL.encode() + b"\0") >= 0
    return "" if found else f"{path()} does not export {MATMUL}"
