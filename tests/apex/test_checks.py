"""What is refused, and what is said about it."""

from __future__ import annotations

import re
import time

import pytest
import torch
from torch.nn import functional as F

from tests.apex.installing import installed
from tests.apex.programs import close, executors, jit, reason, step
from thunder.errors import PluginError
from thunder.extend import ClaimContext, TensorType, Yes
from thunder.plugins.manager import Registry
from thunder_apex import checks, extensions
from thunder_apex.plugin import APEX, INSTALL

CLASSES = 40


def logits(*shape, dtype=torch.float32):
    return torch.randn(shape or (4, CLASSES)).to(dtype)


def labels(*shape):
    return torch.zeros(shape or (4,), dtype=torch.int64)


def cross_entropy(*tensors, **keywords):
    return lambda: ("cross_entropy", lambda *t: F.cross_entropy(*t, **keywords), tensors)


def norm(name, *tensors, **keywords):
    return lambda: (name, lambda x, *t: getattr(F, name)(x, (8,), *t, **keywords), tensors)


X = torch.randn(4, 8)

REFUSED = {
    "weights": (cross_entropy(logits(), labels(), torch.ones(CLASSES)), "weights of classes"),
    "probabilities": (cross_entropy(logits(), logits().softmax(1)), r"labels \[rows\], not \[4, 40\] and \[4, 40\]"),
    "one row": (cross_entropy(logits(CLASSES), labels()[0]), r"not \[40\] and \[\]"),
    "images": (cross_entropy(logits(2, CLASSES, 3), labels(2, 3)), r"not \[2, 40, 3\]"),
    "small labels": (cross_entropy(logits(), labels().to(torch.uint8)), "int64 labels, not uint8"),
    "wide logits": (cross_entropy(logits(dtype=torch.float64), labels()), "no kernel for float64 logits"),
    "few classes": (cross_entropy(logits(4, 31), labels()), "at least 32 classes"),
    "strided logits": (cross_entropy(logits(CLASSES, 4).t(), labels()), "the logits are not contiguous"),
    "no rows": (cross_entropy(logits(0, CLASSES), labels(0)), "the logits are empty"),
    "deprecated": (cross_entropy(logits(), labels(), size_average=False), "are deprecated: use reduction"),
    "mixed layer norm": (
        norm("layer_norm", X.bfloat16(), torch.ones(8), torch.ones(8)),
        "the dtypes differ: bfloat16 input and float32 parameters",
    ),
    "mixed rms norm": (norm("rms_norm", X, torch.ones(8).half()), "float32 input and float16 parameters"),
    "strided input": (norm("layer_norm", torch.randn(8, 4).t()), "the input is not contiguous"),
    "strided parameter": (norm("rms_norm", X, torch.ones(16)[::2]), "a parameter is not contiguous"),
    "empty": (norm("rms_norm", X[:0]), "the input is empty"),
    "complex": (norm("rms_norm", X.to(torch.complex64)), "no kernel for complex64"),
}


@pytest.mark.filterwarnings("ignore:size_average")
@pytest.mark.parametrize(("case", "text"), REFUSED.values(), ids=REFUSED)
def test_refusals(stand_ins, case, text):
    """With the reason; the call runs on PyTorch, to the bit."""
    name, fn, tensors = case()
    jitted = jit(fn)
    assert torch.equal(jitted(*tensors).nan_to_num(7), fn(*tensors).nan_to_num(7))
    assert executors(jitted)[name] == "torch"
    assert re.search(text, reason(jitted, name))


def test_apex_takes_cuda_tensors_only(stand_ins, monkeypatch):
    monkeypatch.delattr(extensions.find(extensions.NORM), "device_types")
    jitted = jit(lambda x: F.layer_norm(x, (8,)))
    jitted(X)
    assert reason(jitted, "layer_norm") == "fused_layer_norm_cuda takes tensors on cuda, not on cpu"


def test_one_of_the_extensions(stand_ins, monkeypatch):
    """Apex can be built with either: the claims of the other say so."""
    monkeypatch.setitem(__import__("sys").modules, extensions.CROSS_ENTROPY, None)
    extensions.find.cache_clear()
    jitted = jit(lambda logits, labels: F.cross_entropy(F.rms_norm(logits, (CLASSES,)), labels))
    jitted(logits(), labels())
    assert executors(jitted)["rms_norm"] == "apex"
    assert reason(jitted, "cross_entropy") == "xentropy_cuda is not installed here"
    assert checks.doctor().message == "fused_layer_norm_cuda, without xentropy_cuda"


def test_both_extensions(stand_ins):
    assert checks.doctor().message == "xentropy_cuda and fused_layer_norm_cuda"


def test_without_apex_the_executor_is_unavailable(tmp_path):
    with installed(tmp_path):
        here = [name for name in APEX.needs[0].any_of if extensions.find(name) is not None]
        if here:
            pytest.skip(f"{here[0]} is installed here")
        with pytest.raises(PluginError) as error:
            Registry().register(APEX)
        assert error.value.fix == INSTALL
        assert "fused_layer_norm_cuda or xentropy_cuda is required" in error.value.why
        assert not checks.doctor().ok


def older(fn, arity):
    """A function of a version before the flag for what is kept."""

    def call(*args):
        assert len(args) == arity
        return fn(*args, False)

    call.__doc__ = f"{fn.__name__}({', '.join(f'arg{n}: object' for n in range(arity))}) -> object"
    return call


@pytest.fixture
def old(stand_ins, monkeypatch):
    module = extensions.find(extensions.NORM)
    for name, arity in (("backward", 6), ("backward_affine", 8), ("rms_backward", 5), ("rms_backward_affine", 6)):
        monkeypatch.setattr(module, name, older(getattr(module, name), arity))


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_versions_without_the_flag(old, name, affine):
    x, parameters = X.clone().requires_grad_(), [torch.rand(8)] if affine else []
    fn, grad = (lambda x, *p: getattr(F, name)(x, (8,), *p)), torch.randn(4, 8)
    jitted = jit(fn)
    close(step(jitted, x, *parameters, grad=grad), step(fn, x, *parameters, grad=grad), 1e-5)
    assert executors(jitted)[name] == "apex"


def test_what_a_version_cannot_do_is_refused(old, monkeypatch):
    jitted = jit(lambda x: F.layer_norm(x, (8,)), memory_efficient=True)
    jitted(X)
    assert reason(jitted, "layer_norm").endswith("cannot start backward from results: update Apex")
    monkeypatch.delattr(extensions.find(extensions.NORM), "rms_forward_affine")
    jitted = jit(lambda x: F.rms_norm(x, (8,)))
    jitted(X)
    assert reason(jitted, "rms_norm").endswith("has no rms_forward_affine: update Apex")


def test_a_check_takes_under_20_microseconds(stand_ins):
    cx = ClaimContext(options={"memory_efficient": True}, needs_grad=(True,))
    x = TensorType((4096, 50304), (50304, 1), "float32", "cpu")
    target, row = TensorType((4096,), (1,), "int64", "cpu"), TensorType((50304,), (1,), "float32", "cpu")
    for ask in (
        lambda: checks.cross_entropy(cx, x, target),
        lambda: checks.layer_norm(cx, x, (50304,), row, row),
        lambda: checks.rms_norm(cx, x, (50304,), row),
    ):
        assert isinstance(ask(), Yes)
        best = min(_seconds(ask) for _ in range(20))
        assert best < 20e-6


def _seconds(fn) -> float:
    start = time.perf_counter()
    for _ in range(50):
        fn()
    return (time.perf_counter() - start) / 50
