"""The machine: where oneDNN is faster than what PyTorch calls by itself."""

from __future__ import annotations

import torch

from thunder.extend import ClaimContext
from thunder_onednn import cpu


def refusal() -> str:
    """Why oneDNN is not expected to be faster for float32 on this machine; empty if it is.

    MKL multiplies on AMD's processors at half the rate of oneDNN, and on Intel's at the same.
    """
    if not torch.backends.mkl.is_available():
        return "PyTorch does not multiply through MKL here, which is what oneDNN is known to beat"
    if cpu.vendor() != "AuthenticAMD":
        return f"MKL is expected to be as fast on this CPU ({cpu.vendor() or 'of unknown vendor'})"
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return "oneDNN is known to be faster than MKL on AMD's CPUs with AVX-512 only"
    return ""


PRODUCT = 1 << 20
"""Multiplications of a float32 product from which on the higher rate pays for the call.

Measured on one thread of an EPYC with AVX-512: a call costs 10 us more, at 240 against 110 GF/s.
"""

BFLOAT16 = 1 << 12
"""Multiplications from which on PyTorch calls oneDNN for bfloat16: there, a bias or an activation comes for nothing."""

ACTIVATED = {"float32": PRODUCT, "bfloat16": BFLOAT16}
"""The same for linear layers with an activation."""

ATTENTION = {"float32": 1 << 23, "bfloat16": 1 << 21}
"""The same for attention, whose blocks cost some calls each."""

FEW_ROWS = 128
"""Rows up to which a product with a packed weight is much faster: to sort the weight takes longer than to multiply."""


def slower(cx: ClaimContext, multiplications: int, enough: int, *, same_product: bool = False) -> str:
    """Why oneDNN is expected to be slower than PyTorch; empty if it is not, or if that is not the question.

    same_product: PyTorch would multiply through oneDNN, too, and something else is gained.
    """
    if cx.measured or cx.options["when"] == "always":
        return ""
    if multiplications <= enough:
        return f"{multiplications} multiplications are too few to pay for a call of oneDNN"
    return "" if same_product else refusal()
