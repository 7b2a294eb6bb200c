"""Cheaper functions inside of decompositions: as exact as PyTorch's where they are used, and used nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from tests.inductor.regions import Call, Calls
from thunder.extend import ClaimContext
from thunder_inductor.regions import compile, show

CX = ClaimContext(cache_key=1)
TOLERANCE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 1e-2}
"""Relative to values of size one."""


VALUES = (*torch.linspace(-12, 12, 4001).tolist(), -1e9, 1e9, -torch.inf, torch.inf, torch.nan)


def gelu(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


def gelu_backward(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.gelu_backward(torch.ones_like(x), x, approximate="tanh")


def region(program: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Call:
    """The last operation of a program."""
    with Calls() as calls:
        program(x)
    return calls.made[-1]


def test_gelu_is_as_exact_without_tanh():
    cases = [(program, torch.tensor(VALUES, dtype=dtype)) for program in (gelu, gelu_backward) for dtype in TOLERANCE]
    calls = [region(program, x) for program, x in cases]
    for (program, x), call, kernel in zip(cases, calls, [compile(CX, call.region) for call in calls], strict=True):
        (found,) = kernel.result()(*call.inputs)
        rtol = atol = TOLERANCE[x.dtype]
        torch.testing.assert_close(found.double(), program(x.double()), rtol=rtol, atol=atol, equal_nan=True)
        assert "tanh" not in show(CX, call.region)


def test_tanh_itself_is_exact_near_zero():
    x = torch.logspace(-20, 0, 64)
    call = region(torch.tanh, x)
    (found,) = compile(CX, call.region).result()(*call.inputs)
    torch.testing.assert_close(found, torch.tanh(x), rtol=4 * torch.finfo(x.dtype).eps, atol=0)
