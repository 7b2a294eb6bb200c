"""Every operator, in every dtype that it is claimed for, against eager PyTorch."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from tests.nvfuser.regions import DTYPES, TOLERANCE, Region, calls
from tests.nvfuser.samples import CALLS
from thunder_nvfuser import library
from thunder_nvfuser.fusion import Fusion
from thunder_nvfuser.lowerings import TABLE
from thunder_nvfuser.table import refusal

pytestmark = pytest.mark.usefixtures("on_stand_in")

WITHOUT_KERNEL = {
    "aten._scaled_dot_product_flash_attention_backward": {torch.float32},
    "aten._scaled_dot_product_flash_attention": {torch.float32},
}
"""Dtypes of arguments that are no sample's own."""


def test_every_operator_has_samples():
    assert {name if name.startswith(("prims.", "nvfuser.")) else f"aten.{name}" for name in CALLS} == set(TABLE)


@pytest.mark.parametrize("target", TABLE)
def test_results_equal_eager(target):
    row = TABLE[target]
    tried = set()
    for dtype in DTYPES:
        for region in calls(target, dtype):
            if refusal(row, region.op, library.load().device_types):
                continue
            tried.add(dtype)
            results = Fusion(region.trace, library.load())(*region.inputs)
            for found, want in zip(results, region.results, strict=True):
                tolerance = TOLERANCE.get(dtype, {}) if want.is_floating_point() else {}
                torch.testing.assert_close(
                    found,
                    want,
                    equal_nan=True,
                    check_stride=not want._is_view(),
                    **tolerance,
                    msg=partial("{}: {}".format, dtype),
                )
    claimed = {dtype for dtype in DTYPES if str(dtype).removeprefix("torch.") in (row.operands or row.results)}
    floating = {dtype for dtype in claimed if dtype.is_floating_point}
    assert tried >= (floating - WITHOUT_KERNEL.get(target, set()) if floating else claimed)


def test_half_precision_is_rounded_where_eager_rounds():
    """One operation at a time: no result is wider than in the trace, so that chains are equal to the bit."""
    x, y = torch.randn(64, 64).bfloat16(), torch.randn(64, 64).bfloat16()
    for target, args in (("aten.add.Tensor", (x, y)), ("aten.mul.Tensor", (x, y)), ("aten.neg", (x,))):
        region = Region(target, args, {})
        (found,) = Fusion(region.trace, library.load())(*region.inputs)
        assert found.dtype is torch.bfloat16
        assert torch.equal(found, region.results[0])
