"""What nvFuser is asked for and refuses, and why; how long asking takes."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.nvfuser.regions import Region
from thunder.extend import ClaimContext, No, Number, Yes
from thunder.ir.tree import substitute
from thunder.lang.numbers import Numbers, compiling
from thunder.passes.fusers import ActiveFuser
from thunder.plugins.needs import first_unmet
from thunder.plugins.validate import validate
from thunder_nvfuser.fuser import supports
from thunder_nvfuser.lowerings import TABLE
from thunder_nvfuser.plugin import NVFUSER

pytestmark = pytest.mark.usefixtures("on_stand_in")

CX = ClaimContext(options={option.name: option.default for option in NVFUSER.options})
X = torch.randn(4, 6)


def answer(target, *args, cx=CX, device=None, **kwargs):
    return supports(cx, Region(target, args, kwargs, device).op)


@pytest.mark.parametrize(
    ("reason", "call"),
    [
        ("no counterpart of aten.sort", ("aten.sort", X)),
        ("takes no complex64", ("aten.add.Tensor", X.cfloat(), X)),
        ("takes no uint8", ("aten.add.Tensor", X.byte(), X)),
        ("makes no uint8", ("aten._to_copy", X, {"dtype": torch.uint8})),
        ("makes no bool", ("aten.add.Tensor", X > 0, X > 0)),
        ("takes no float32", ("aten.gcd", X)),
        ("is empty", ("aten.neg", X[:0])),
        ("steps of one", ("aten.slice.Tensor", X, 0, 0, 4, 2)),
        ("vector of integers", ("aten.index.Tensor", X, [X > 0])),
        ("exponents >= 0", ("aten.pow.Tensor_Tensor", X.long().abs(), X.long().abs())),
        ("floor division", ("aten.div.Tensor_mode", X, X, {"rounding_mode": "floor"})),
        ("strides", ("aten.as_strided", X, [2, 2], [1, 1])),
        ("too few elements", ("aten.var.correction", X[:, :1], [1])),
        ("option nvfuser.matmul", ("aten.mm", X, X.t())),
        ("option nvfuser.linear", ("aten.addmm", X[0, :4], X, X.t())),
    ],
)
def test_refusals_say_why(reason, call):
    target, *args = call
    kwargs = args.pop() if isinstance(args[-1], dict) else {}
    args = args * 2 if target == "aten.gcd" else args
    if target == "aten.gcd":
        region = Region(target, [X.long(), X.long()], {})
        float_inputs = {v: replace(v, type=replace(v.type, dtype="float32")) for v in region.trace.params}
        found = supports(CX, replace(region.op, args=tuple(float_inputs.values())))
    else:
        found = answer(target, *args, **kwargs)
    assert isinstance(found, No)
    assert reason in found.reason


def test_other_devices_are_refused():
    found = answer("aten.neg", X, device="cuda:0")
    assert found == No("nvFuser runs on cpu, and p0 is on cuda:0")


def test_options_allow_products():
    cx = replace(CX, options={**CX.options, "matmul": True, "linear": True})
    assert isinstance(answer("aten.mm", X, X.t(), cx=cx), Yes)
    assert isinstance(answer("aten.addmm", X[0, :4], X, X.t(), cx=cx), Yes)
    assert "does not scale" in answer("aten.addmm", X[0, :4], X, X.t(), cx=cx, alpha=2).reason
    assert "adds a vector" in answer("aten.addmm", X @ X.t(), X, X.t(), cx=cx).reason


def test_asking_takes_less_than_20_microseconds():
    ops = [
        Region("aten.add.Tensor", (X, X), {}).op,
        Region("aten.slice.Tensor", (X, 0, 0, 2), {}).op,
        Region("aten.native_layer_norm", (X, [6], X[0], X[0], 1e-5), {}).op,
        Region("aten.native_layer_norm_backward", (X, X, [6], X[:, :1], X[:, :1], X[0], X[0], [True] * 3), {}).op,
    ]

    def seconds():
        start = time.perf_counter()
        for _ in range(200):
            for op in ops:
                supports(CX, op)
        return (time.perf_counter() - start) / (200 * len(ops))

    assert min(seconds() for _ in range(5)) < 20e-6


def test_the_specification_is_valid():
    assert validate(NVFUSER) == ()
    assert len(TABLE) >= 110


def test_without_the_library_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    unmet = first_unmet(NVFUSER.needs)
    assert "nvfuser_direct" in unmet.why
    assert "pip install --pre nvfuser-cu128-torch210" in unmet.fix


README = Path(__file__).parents[2] / "packages/thunder-nvfuser/README.md"


def test_the_readme_lists_the_operators():
    """By ``python -m tests.nvfuser.table``."""
    from tests.nvfuser.table import table

    assert table() in README.read_text()
    assert f"{len(TABLE)} operators" in README.read_text()
    assert re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_symbolic_sizes_stay_outside(monkeypatch):
    monkeypatch.setenv("THUNDER_STRICT", "1")
    fuser, op = ActiveFuser(NVFUSER, CX), Region("aten.neg", [X], {}).op
    numbers = Numbers()
    size = Number("n", numbers.param("n", 4))
    symbolic = {v: replace(v, type=replace(v.type, shape=(size, 6))) for v in (*op.inputs, *op.outputs)}
    assert fuser.supports(op)
    with compiling(numbers):
        assert not fuser.supports(replace(op, args=substitute(op.args, symbolic), outs=substitute(op.outs, symbolic)))
