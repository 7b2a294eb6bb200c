"""Flash attention inside of regions, where the option asks for it: forward and backward.

PyTorch has its operator on CUDA only: what runs here is the stand-in's, or nothing.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import thunder
from tests.nvfuser.programs import NVFUSER_HERE, regions
from thunder.extend import BoundSymbol, ClaimContext, TensorType, Var
from thunder.ir.symbol import Symbol
from thunder_nvfuser.fuser import supports

pytestmark = pytest.mark.usefixtures("on_stand_in")

FLASH = "aten._scaled_dot_product_flash_attention"


def program(q, k, v, w):
    out = torch.ops.aten._scaled_dot_product_flash_attention(q * w, k, v, 0.0, True, scale=0.3)[0]
    return F.silu(out) * q


def reference(q, k, v, w):
    return F.silu(F.scaled_dot_product_attention(q * w, k, v, is_causal=True, scale=0.3)) * q


def inputs(dtype):
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in [(2, 3, 16, 8)] * 3 + [(8,)]]


def jit(**options):
    named = {f"nvfuser.{name}": value for name, value in options.items()}
    return thunder.jit(program, executors=[NVFUSER_HERE], frontend="functional", options=named)


def names(region):
    return [op.sym.name for op in region.ops]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_attention_and_what_surrounds_it_are_one_region(dtype):
    """Forward and backward; outside of a region it would find no kernel."""
    given, fn = inputs(dtype), jit(sdpa=True)
    out = fn(*given)
    want = reference(*given)
    torch.testing.assert_close(out, want, rtol=2e-2, atol=2e-2)
    g = torch.randn_like(out)
    for found, expected in zip(torch.autograd.grad(out, given, g), torch.autograd.grad(want, given, g), strict=True):
        torch.testing.assert_close(found, expected, rtol=5e-2, atol=5e-2)
    forward, backward = regions(fn)
    assert FLASH in names(forward)
    assert "aten.mul.Tensor" in names(forward)
    assert f"{FLASH}_backward" in names(backward)
    assert "aten.mul.Tensor" in names(backward)


def test_backward_starts_from_what_forward_saved():
    """The result, the log-sum-exp and the random state; attention is not run again."""
    given, fn = inputs(torch.bfloat16), jit(sdpa=True)
    fn(*given).sum().backward()
    _, _, saved = thunder.last_traces(fn)[-1].result
    assert [v.type.dtype for v in saved if v.type.dtype != "bfloat16"] == ["float32", "uint64", "uint64"]
    assert FLASH not in names(regions(fn)[-1])


@pytest.mark.parametrize(
    ("reason", "dtype", "dropout"), [("takes no float32", "float32", 0.0), ("with dropout", "bfloat16", 0.1)]
)
def test_what_is_no_flash_attention_is_refused(reason, dtype, dropout):
    """In forward and in backward alike."""
    cx, t = (
        ClaimContext(options={"sdpa": True}),
        [Var(f"t{i}", TensorType((2, 3), (3, 1), dtype, "cpu")) for i in range(6)],
    )
    forward = BoundSymbol(Symbol(FLASH), (*t[:3], dropout))
    backward = BoundSymbol(Symbol(f"{FLASH}_backward"), (*t, None, None, 4, 4, dropout, True))
    assert all(reason in supports(cx, op).reason for op in (forward, backward))


def test_without_the_option_it_is_left_outside():
    given, fn = inputs(torch.bfloat16), jit()
    with pytest.raises(Exception, match=r"flash_attention"):
        fn(*given)
    assert all(FLASH not in names(region) for region in regions(fn))
