"""What this package calls of PyTorch's private interface. All of it is here, and ``wrong`` tries it.

PyTorch multiplies float32 matrices with MKL unless it is told to reduce their precision; its oneDNN path in full
precision has no operator. The function behind that path is exported by PyTorch's library, and is called by its symbol,
which spells the types of its arguments: where they differ, the symbol is missing rather than wrong.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import _disable_current_modes

from thunder_onednn import library

POST_OPS: dict[tuple[str, str], Callable[[Tensor], Tensor]] = {
    ("none", ""): lambda t: t,
    ("gelu", "none"): F.gelu,
    ("gelu", "tanh"): partial(F.gelu, approximate="tanh"),
    ("relu", "none"): F.relu,
    ("swish", "none"): F.silu,
}
"""What ``_linear_pointwise`` is asked to apply to a product, by its ``attr`` and ``algorithm``."""

_Cells = ctypes.c_void_p * 3


@cache
def _matmul() -> Any:
    """The library's function. Calling it releases the interpreter's lock."""
    function = ctypes.CDLL(str(library.path()))[library.MATMUL]
    function.restype = None
    function.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_float] * 2
    return function


def matmul(a: Tensor, b: Tensor, out: Tensor, beta: float = 0.0, alpha: float = 1.0) -> None:
    """``out = beta * out + alpha * (a @ b)``, all matrices or all batches of matrices, float32 or bfloat16, on the CPU.

    Nothing may be empty and alpha not be zero: an error in the library ends the process. Where the last two dimensions
    of ``a`` or ``b`` are not dense (row- or column-major), it is copied.
    """
    cells = _Cells(a._cdata, b._cdata, out._cdata)  # a reference to a tensor is the address of a pointer to it
    _matmul()(cells, ctypes.byref(cells, 8), ctypes.byref(cells, 16), beta, alpha)


def linear(
    input: Tensor, weight: Tensor, bias: Tensor | None, attr: str, scalars: list[float], algorithm: str
) -> Tensor:
    """``input @ weight.T + bias``, and one of ``POST_OPS`` of it. The weight may be packed."""
    return torch.ops.mkldnn._linear_pointwise.default(input, weight, bias, attr, scalars, algorithm)


def packed(weight: Tensor) -> Tensor:
    """A matrix [out, in] in the layout that ``_linear_pointwise`` likes best, for any number of rows."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach(), 64)


@cache
def wrong() -> str:
    """What is wrong with the entry points, tried on a small example; empty if nothing is."""
    if not torch.backends.mkldnn.is_available():
        return "this PyTorch is built without oneDNN"
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return "PyTorch does not call oneDNN on this CPU"
    try:
        return "" if _right() else "oneDNN's products come out wrong"
    except (OSError, AttributeError) as error:
        return f"an entry point is missing: {error}"


def _right() -> bool:
    with _disable_current_modes(), torch.no_grad():  # whoever asks may be recording on tensors without memory
        values = torch.linspace(-1, 1, 24 * 40, dtype=torch.float64, device="cpu")
        a, b = values.reshape(24, 40), values.reshape(40, 24)
        out = torch.ones(24, 24, device="cpu")
        matmul(a.float(), b.float(), out, beta=0.5, alpha=2.0)
        pairs = [(out, 0.5 + 2 * (a @ b))]
        for (attr, algorithm), activation in POST_OPS.items():
            found = linear(a.float(), packed(b.t().float()), None, attr, [], algorithm)
            pairs.append((found, activation(a @ b)))
        return all(bool((found - exact).abs().max() < 1e-4) for found, exact in pairs)
