"""What is taken, what is refused and why, and where the executor is unavailable."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from packaging.specifiers import SpecifierSet
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F

import thunder_onednn
from tests.onednn.subjects import jit, operations, refusals, step
from thunder.errors import PluginError
from thunder.extend import ClaimContext, No, TensorType, Yes
from thunder.ir.types import contiguous_strides
from thunder.plugins.manager import Registry
from thunder_onednn import attending, cpu, entry, library, machine, products
from thunder_onednn.plugin import ONEDNN

README = Path(__file__, "../../../packages/thunder-onednn/README.md").resolve().read_text()
LINEAR = "torch.nn.functional.linear"
X, W, B = (64, 256), (128, 256), (128,)
Q = (2, 4, 64, 8)


@pytest.fixture
def tried_again():
    """The entry points are tried anew, in the test and after it."""
    entry.wrong.cache_clear()
    yield
    entry.wrong.cache_clear()


@pytest.fixture
def amd(monkeypatch):
    """A machine on which oneDNN is expected to be faster."""
    monkeypatch.setattr(cpu, "vendor", lambda: "AuthenticAMD")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)


def tensor(shape, dtype="float32", device="cpu", layout="strided", requires_grad=False):
    return TensorType(shape, contiguous_strides(shape), dtype, device, requires_grad, layout)


def asked(check, *args, needs_grad=(), measured=False, when="faster", pack=False, **kwargs):
    cx = ClaimContext(options={"when": when, "pack": pack}, needs_grad=needs_grad, measured=measured)
    return check(cx, *args, **kwargs)


REFUSED = {
    "device": (products.check_linear, [tensor(X, device="cuda:0"), tensor(W, device="cuda:0")], {}, "on the CPU"),
    "layout": (products.check_product, [tensor(X, layout="sparse_coo"), tensor(X[::-1])], {}, "strided"),
    "empty": (products.check_linear, [tensor((0, 256)), tensor(W)], {}, "empty"),
    "mixed": (products.check_linear, [tensor(X), tensor(W, "bfloat16")], {}, "differ in dtype"),
    "bfloat16": (products.check_linear, [tensor(X, "bfloat16"), tensor(W, "bfloat16")], {}, "not faster for bfloat16"),
    "float64": (products.check_product, [tensor(X, "float64"), tensor(X[::-1], "float64")], {}, "float64"),
    "vector": (products.check_linear, [tensor((256,)), tensor(W)], {}, "two dimensions"),
    "one output": (products.check_linear, [tensor(X), tensor((256,))], {}, "a matrix as weight"),
    "bias": (products.check_linear, [tensor(X), tensor(W), tensor((1, 128))], {}, "a vector as bias"),
    "alpha": (products.check_sum, [tensor((8, 8))] * 3, {"alpha": 0}, "alpha is zero"),
    "dropout": (attending.check, [tensor(Q)] * 3, {"dropout_p": 0.1}, "dropout"),
    "heads": (attending.check, [tensor(Q[1:])] * 3, {}, "four dimensions"),
    "broadcast": (attending.check, [tensor(Q), *[tensor((1, *Q[1:]))] * 2], {}, "broadcast"),
    "groups": (attending.check, [tensor(Q), *[tensor((2, 2, 64, 8))] * 2], {}, "differ in heads"),
    "double": (attending.check, [tensor(Q, "float64")] * 3, {}, "does not attend in float64"),
    "mask": (attending.check, [*[tensor(Q)] * 3, tensor((64, 64), "float64")], {}, "the mask is float64"),
    "wanted": (attending.check, [*[tensor(Q)] * 3, tensor((64, 64), requires_grad=True)], {}, "wants a gradient"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_run_is_refused(case):
    check, args, kwargs, why = REFUSED[case]
    for how in ({"when": "always"}, {"measured": True}, {}):
        answer = asked(check, *args, needs_grad=[arg.requires_grad for arg in args], **how, **kwargs)
        assert isinstance(answer, No)
        assert why in answer.reason


SMALL = [
    (products.check_linear, [tensor((16, 64)), tensor((64, 64))]),
    (products.check_product, [tensor((4, 16, 64)), tensor((4, 64, 64))]),
    (products.check_sum, [tensor((64,)), tensor((16, 64)), tensor((64, 64))]),
    (attending.check, [tensor((1, 2, 16, 8))] * 3),
]
LARGE = [
    (products.check_linear, [tensor((256, 128)), tensor((384, 128))]),
    (products.check_product, [tensor((32, 256, 64)), tensor((32, 64, 256))]),
    (products.check_sum, [tensor((512,)), tensor((256, 128)), tensor((128, 512))]),
    (attending.check, [tensor((4, 8, 256, 32))] * 3),
    (attending.check, [tensor((4, 4, 64, 32), "bfloat16")] * 3),
]


@pytest.mark.parametrize(("check", "args"), SMALL)
def test_small_calls_are_refused_unless_measured(amd, check, args):
    answer = asked(check, *args)
    assert isinstance(answer, No)
    assert "too few" in answer.reason
    assert isinstance(asked(check, *args, measured=True), Yes)
    assert isinstance(asked(check, *args, when="always"), Yes)


@pytest.mark.parametrize(("check", "args"), LARGE)
def test_large_calls_are_taken_where_that_is_faster(amd, monkeypatch, check, args):
    assert isinstance(asked(check, *args), Yes)
    for vendor, why in (("GenuineIntel", "GenuineIntel"), ("", "unknown vendor")):
        with monkeypatch.context() as patch:
            patch.setattr(cpu, "vendor", lambda vendor=vendor: vendor)
            answer = asked(check, *args)
            assert isinstance(answer, No)
            assert why in answer.reason
            assert isinstance(asked(check, *args, measured=True), Yes)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert "AVX-512 only" in asked(check, *args).reason
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    assert "MKL" in asked(check, *args).reason


def test_packing_is_asked_for(amd):
    few, many = (tensor((rows, 512)) for rows in (8, 1024))
    weight, half = tensor((2048, 512)), [tensor((8, 512), "bfloat16"), tensor((2048, 512), "bfloat16")]
    assert asked(products.check_linear, few, weight) == Yes()
    assert asked(products.check_linear, few, weight, pack=True) == Yes(candidates=("packed", "plain"))
    assert asked(products.check_linear, many, weight, pack=True) == Yes()
    assert asked(products.check_linear, few, weight, pack=True, needs_grad=(False, True)) == Yes()
    assert asked(products.check_linear, *half, pack=True) == Yes(candidates=("packed",))
    assert isinstance(asked(products.check_linear, *half), No)
    half.append(tensor((2048,), "bfloat16"))
    assert asked(products.check_linear, *half, pack=True) == Yes(candidates=("packed", "plain"))
    assert asked(products.check_linear, *half) == Yes()


def test_a_bias_is_gained_in_bfloat16_on_any_cpu(monkeypatch):
    monkeypatch.setattr(machine, "refusal", lambda: "another vendor")
    weight, bias = tensor((64, 64), "bfloat16"), tensor((64,), "bfloat16")
    for rows, needs_grad in ((1, ()), (2, ()), (2, (True, True, True))):
        answer = asked(products.check_linear, tensor((rows, 64), "bfloat16"), weight, bias, needs_grad=needs_grad)
        assert answer == Yes() if rows > 1 else "too few" in answer.reason
    sums = [tensor((2, 64), "bfloat16"), tensor((64, 64), "bfloat16")]
    assert asked(products.check_sum, bias, *sums) == Yes()
    for c, scales in ((bias, {"beta": 2}), (bias, {"alpha": 2}), (sums[0], {})):
        assert "not faster" in asked(products.check_sum, c, *sums, **scales).reason


def test_reasons_reach_the_user(amd):
    compiled = jit(F.linear, when="faster")
    compiled(torch.randn(16, 64), torch.randn(64, 64))
    (reason,) = refusals(compiled, LINEAR)
    assert "65536 multiplications are too few" in reason


def test_only_what_is_wanted_is_computed():
    layer, x = torch.nn.Linear(16, 8), torch.randn(4, 16)
    compiled = jit(layer)
    compiled(x).sum().backward()
    assert operations(compiled) == ["onednn.linear", "onednn.matmul"]
    layer.weight.requires_grad_(False)
    layer.zero_grad()
    compiled(x.requires_grad_()).sum().backward()
    assert operations(compiled) == ["onednn.linear", "onednn.linear"]
    assert layer.weight.grad is None
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(4, 16))


def test_draws_are_not_opened():
    """Attention with dropout is made of products, and of a draw that has no derivative by itself."""

    def program(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)

    tensors, results = [torch.randn(2, 2, 5, 8) for _ in range(3)], []
    for function in (jit(program), program):
        torch.manual_seed(3)
        results.append(step(function, *tensors))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ((library, "KNOWN", SpecifierSet("<2.0")), "the entry points of PyTorch <2.0 are known"),
        ((library, "MATMUL", "no_such_symbol"), "does not export no_such_symbol"),
        ((library, "path", lambda: Path("/nowhere")), "there is no /nowhere"),
        ((cpu, "flags", lambda: frozenset({"avx2"})), "wants a CPU with AVX-512"),
        ((cpu, "flags", lambda: frozenset({"avx512f", "avx512bw"})), "wants a CPU with AVX-512"),
    ],
)
def test_unavailable(monkeypatch, patch, why):
    monkeypatch.setattr(*patch)
    with pytest.raises(PluginError, match=why):
        Registry().register(ONEDNN)


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ((entry, "packed", lambda weight: torch.ops.mkldnn.no_such_operator), "an entry point is missing"),
        ((entry, "matmul", lambda *args, **kwargs: None), "come out wrong"),
        ((torch.backends.mkldnn, "is_available", lambda: False), "built without oneDNN"),
    ],
)
def test_what_does_not_work_is_refused(monkeypatch, tried_again, patch, why):
    monkeypatch.setattr(*patch)
    compiled, x, w = jit(F.linear), torch.randn(8, 16), torch.randn(4, 16)
    torch.testing.assert_close(compiled(x, w), F.linear(x, w))
    assert why in refusals(compiled, LINEAR)[0]


def test_listing_does_not_import_torch():
    code = "import sys; from thunder_onednn import library; print(repr(library.missing()), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "'' False\n"


def test_it_is_tried_on_real_tensors_whatever_the_mode(tried_again):
    with FakeTensorMode(), torch.device("meta"):
        assert entry.wrong() == ""


def test_a_default_device_does_not_matter():
    compiled, x, w = jit(torch.mm, frontend="dynamo"), torch.randn(8, 16).t(), torch.randn(8, 4)
    with torch.device("meta"):
        torch.testing.assert_close(compiled(x, w), torch.mm(x, w))


def test_the_symbol_spells_its_arguments():
    """Three references to tensors and two floats: what the call passes."""
    assert library.MATMUL.endswith("mkldnn_matmulERKNS_6TensorES3_S3_ff")
    assert entry._matmul().argtypes == [ctypes.c_void_p] * 3 + [ctypes.c_float] * 2


FROM = {
    "products:check_linear": {"float32": machine.PRODUCT, "bfloat16 with a bias": machine.BFLOAT16},
    "products:check_product": {"float32": machine.PRODUCT},
    "products:check_sum": {"float32": machine.PRODUCT},
    "aten.addmm": {"float32": machine.PRODUCT, "bfloat16 with a bias": machine.BFLOAT16},
    "activations:check": machine.ACTIVATED,
    "attending:check": machine.ATTENTION,
}
"""From how many multiplications on each check, or the claim on a target, expects to be faster."""


def table() -> str:
    """The lines of the table of claims, from the specification."""
    lines = ["| call | gradients | expected to be faster above so many multiplications |", "| --- | --- | --- |"]
    for claim in ONEDNN.claims:
        calls = (claim.target,) if isinstance(claim.target, str) else claim.target
        gradients = "its own" if claim.grad else "PyTorch's" if len(calls) == 1 else "none"
        sizes = FROM.get(claim.target) or FROM[claim.check.removeprefix("thunder_onednn.")]
        above = ", ".join(f"{dtype} {_short(size)}" for dtype, size in sizes.items())
        lines.append(f"| {', then '.join(f'`{call}`' for call in calls)} | {gradients} | {above} |")
    return "\n".join(lines)


def _short(size: int) -> str:
    return f"{size / 2**20:g} M" if size >= 2**20 else f"{size / 2**10:g} K"


def test_the_readme_is_that_of_the_specification():
    written = re.search(r"<!-- made from the specification -->\n(.*?)\n<!-- end -->", README, re.DOTALL)
    assert written
    assert written[1] == table()
    for option in ONEDNN.options:
        assert f"`onednn.{option.name}`" in README
    assert f"{machine.FEW_ROWS} rows" in README
    assert str(library.KNOWN) == "<2.14,>=2.10"
    assert "2.10 to 2.13" in README
    assert thunder_onednn.__version__ == "0.1.0"
