"""What this package calls of PyTorch's private interface. All of it is here, and ``missing`` tries it.

PyTorch multiplies float32 matrices with MKL unless it is told to reduce their precision; its oneDNN path in full
precision has no operator. The function behind that path is exported by PyTorch's library, and is called by its symbol,
which spells the types of its arguments: where they differ, the symbol is missing rather than wrong.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

KNOWN = SpecifierSet(">=2.10,<2.14")
"""The versions of PyTorch whose entry points are known to be those below."""

_MATMUL = "_ZN2at6native13mkldnn_matmulERKNS_6TensorES3_S3_ff"
"""``at::native::mkldnn_matmul(const Tensor&, const Tensor&, const Tensor& result, float beta, float alpha)``"""

_Cells = ctypes.c_void_p * 3


@cache
def _matmul() -> Any:
    """The library's function. Calling it releases the interpreter's lock."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    function = library[_MATMUL]
    function.restype = None
    function.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_float] * 2
    return function


def matmul(a: Tensor, b: Tensor, out: Tensor, beta: float = 0.0, alpha: float = 1.0) -> None:
    """``out = beta * out + alpha * (a @ b)``, all matrices or all batches of matrices, float32 or bfloat16, on the CPU.

    Nothing may be empty: an error in the library ends the process. Where the last two dimensions of ``a`` or ``b`` are
    not dense (row- or column-major), it is copied.
    """
    cells = _Cells(a._cdata, b._cdata, out._cdata)  # a reference to a tensor is the address of a pointer to it
    _matmul()(cells, ctypes.byref(cells, 8), ctypes.byref(cells, 16), beta, alpha)


def packed(weight: Tensor) -> Tensor:
    """A matrix [out, in] in the layout that ``_linear_pointwise`` likes best, for any number of rows."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach(), 64)


@cache
def missing() -> str:
    """Why oneDNN cannot be used here; empty if it can."""
    if not KNOWN.contains(Version(torch.__version__).base_version):
        return f"the entry points of PyTorch {KNOWN} are known, and this is {torch.__version__}"
    if not torch.backends.mkldnn.is_available():
        return "this PyTorch is built without oneDNN"
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return "oneDNN wants a CPU with AVX-512, or with AVX-NE-CONVERT"
    try:
        return _wrong()
    except (OSError, AttributeError) as error:
        return f"an entry point is missing: {error}"


def _wrong() -> str:
    """What goes wrong with a small example; empty if nothing does."""
    with _disable_current_modes(), torch.no_grad():  # whoever asks may be recording on tensors without memory
        values = torch.linspace(-1, 1, 24 * 40, dtype=torch.float64, device="cpu")
        a, b = values.reshape(24, 40), values.reshape(40, 24)
        out = torch.ones(24, 24, device="cpu")
        matmul(a.float(), b.float(), out, beta=0.5, alpha=2.0)
        pointwise = torch.ops.mkldnn._linear_pointwise.default(a.float(), packed(b.t().float()), None, "none", [], "")
        right = torch.allclose(out.double(), 0.5 + 2 * (a @ b), atol=1e-4)
        right = right and torch.allclose(pointwise.double(), a @ b, atol=1e-4)
    return "" if right else "a product comes out wrong"
