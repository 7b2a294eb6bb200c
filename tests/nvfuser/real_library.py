"""nvFuser itself, without a GPU: run by ``tests/nvfuser/real.sh``, which makes an environment that has it.

Every lowering is built with the real binding. Under the stand-in for CUDA (``fake_cuda.c``), fusions are also evaluated
by the library's own evaluator, and planned and compiled for a device that is not there.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

import thunder
from examples import models
from tests.nvfuser import record
from tests.nvfuser.evaluate import evaluate, on_device
from tests.nvfuser.programs import PROGRAMS, gated, regions
from tests.nvfuser.regions import unfused
from tests.nvfuser.stand_in import compute_tensor_descriptor
from tests.nvfuser.test_operators import DTYPES, TOLERANCE, calls
from thunder.extend import TensorType
from thunder_nvfuser import library
from thunder_nvfuser.fusion import Fusion
from thunder_nvfuser.lowerings import TABLE
from thunder_nvfuser.plugin import NVFUSER
from thunder_nvfuser.table import refusal

nvfuser = pytest.importorskip("nvfuser_direct")

PRINTED = Path(__file__).with_name("printed")
needs_fake_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs tests/nvfuser/fake_cuda.sh")

EVALUATED = Counter()
"""How many calls the evaluator found equal to eager, and how many it cannot run."""


@pytest.fixture(scope="module", autouse=True)
def _report():
    yield
    print(f"\nevaluated by nvFuser: {dict(EVALUATED)}")


def taken(target):
    """The sample calls that the executor takes, as if their tensors were on a GPU."""
    for dtype in DTYPES:
        for region in calls(target, dtype, "cuda:0"):
            if not refusal(TABLE[target], region.op, library.load().device_types):
                yield dtype, region


def test_what_is_recorded_is_what_the_library_says():
    assert json.loads(record.FILE.read_text()) == record.record()


def test_tensors_are_described_as_the_library_does():
    for shape in ((4, 8, 16), (4, 1, 16), (1,), (), (2, 2, 2)):
        for dims in (tuple(range(len(shape))), tuple(reversed(range(len(shape))))):
            for t in (torch.empty(shape).permute(dims), torch.empty((*shape, 2))[..., 0].permute(dims)):
                ours = compute_tensor_descriptor(t.shape, t.stride())
                theirs = nvfuser.compute_tensor_descriptor(list(t.shape), list(t.stride()))
                assert ours == theirs, (t.shape, t.stride())


@pytest.mark.parametrize("target", TABLE)
def test_lowerings_build(target):
    """With the dtypes and ranks of the trace."""
    for dtype, region in taken(target):
        outs = Fusion(region.trace, library.load()).definition.fusion.outputs()
        types = [v.type for v in region.trace.result]
        wanted = [(library.load().dtypes[type.dtype], type.ndim) for type in types]
        assert [(out.dtype(), out.ndim) for out in outs] == wanted, dtype


@needs_fake_cuda
@pytest.mark.parametrize("target", TABLE)
def test_the_evaluator_finds_what_eager_finds(target):
    for dtype, region in taken(target):
        if misjudged(target, region.results[0]):
            EVALUATED["misjudged"] += 1
            continue
        fused = Fusion(region.trace, library.load())
        try:
            found = evaluate(fused.definition, region.inputs, region.results)
        except RuntimeError as error:
            if not any(text in str(error) for text in CANNOT):
                raise
            EVALUATED["cannot"] += 1
            continue
        for result, want in zip(found, region.results, strict=True):
            tolerance = TOLERANCE.get(dtype, {}) if want.is_floating_point() else {}
            torch.testing.assert_close(result, want, equal_nan=True, check_stride=False, **tolerance)
        EVALUATED["equal"] += 1


@needs_fake_cuda
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda fn: fn.__name__)
def test_the_evaluator_finds_what_the_operations_of_a_region_compute(program):
    x, w = torch.randn(6, 8).cuda().requires_grad_(), torch.randn(8).cuda().requires_grad_()
    jitted = thunder.jit(program, executors=[NVFUSER], frontend="functional")
    jitted(x, w)  # nothing is computed, but everything is compiled
    for region in regions(jitted):
        inputs = [host_sample(param.type) for param in region.params]
        expected = unfused(region, inputs)
        try:
            found = evaluate(Fusion(region, library.load()).definition, inputs, expected)
        except RuntimeError as error:
            if not any(text in str(error) for text in CANNOT):
                raise
            EVALUATED["regions that cannot be"] += 1
            continue
        torch.testing.assert_close(found, expected, check_stride=False, rtol=1e-4, atol=1e-5)
        EVALUATED["equal regions"] += 1


CANNOT = (
    "Unexpected operator type",  # the evaluator lacks the operator
    "dynamic_type.h",
    "wrong index for variant",
    "from the 'CPU' backend",  # flash attention
)


def misjudged(target: str, result: torch.Tensor) -> bool:
    """What the evaluator does otherwise than kernels: signs in single precision, integers divided as real numbers."""
    of_integers = target.startswith("aten.div.") and not result.is_floating_point()
    return of_integers or (target in ("aten.sign", "aten.sgn") and result.dtype is torch.float64)


def gpt(layers: int) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    module = models.GPT(models.GPTConfig(vocab=64, context=32, layers=layers, heads=2, width=32))
    return module, (torch.randint(0, 64, (2, 32)), torch.randint(0, 64, (2, 32)))


def llama(layers: int) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    module = models.Llama(models.LlamaConfig(vocab=64, context=32, layers=layers, heads=4, groups=2, width=32))
    return module, (torch.randint(0, 64, (2, 12)),)


def on_cuda(make, layers):
    """A training step compiled for CUDA, and its regions. It does not get far: there is no cuBLAS."""
    module, args = make(layers)
    jitted = thunder.jit(module.cuda(), executors=[NVFUSER, ...], frontend="functional")
    with pytest.raises(Exception, match=r"(?i)cublas"):
        jitted(*[t.cuda() for t in args])
    return regions(jitted)


@needs_fake_cuda
@pytest.mark.parametrize("make", [gpt, llama])
def test_regions_of_models_compile(make):
    """By the library's planner and NVRTC, to results of the types of the trace."""
    found = on_cuda(make, 2)
    assert len(found) >= 4
    for region in found:
        inputs = [sample(param.type) for param in region.params]
        results = Fusion(region, library.load())(*inputs)
        for result, var in zip(results, region.result, strict=True):
            assert (tuple(result.shape), result.stride()) == (var.type.shape, var.type.stride)
            assert str(result.dtype) == f"torch.{var.type.dtype}"


def host_sample(type: TensorType) -> torch.Tensor:
    """Random numbers, and indices that are valid anywhere."""
    extent = 1 + sum((size - 1) * step for size, step in zip(type.shape, type.stride))
    dtype = getattr(torch, type.dtype)
    flat = torch.rand(extent).to(dtype) if dtype.is_floating_point else torch.zeros(extent, dtype=dtype)
    return flat.as_strided(type.shape, type.stride)


def sample(type: TensorType) -> torch.Tensor:
    return on_device(host_sample(type))


@needs_fake_cuda
@pytest.mark.parametrize("target", ["aten.clone", "aten._to_copy", "aten.cat", "aten.view", "aten.pow.Tensor_Scalar"])
def test_results_have_memory_of_their_own(target):
    """The library returns inputs, and views of them, where nothing is computed."""
    for _, region in taken(target):
        inputs = [on_device(t) for t in region.inputs]
        memory = {t.untyped_storage().data_ptr() for t in inputs}
        for result in Fusion(region.trace, library.load())(*inputs):
            assert result.untyped_storage().data_ptr() not in memory


@needs_fake_cuda
def test_the_fusions_of_a_gpt_of_12_layers_are_built_in_200_ms():
    found = on_cuda(gpt, 12)
    start = time.process_time()
    for region in found:
        Fusion(region, library.load())
    seconds = time.process_time() - start
    print(f"\n{len(found)} different regions of {sum(len(r.ops) for r in found)} operations: {seconds * 1e3:.0f} ms")
    assert seconds < 0.2


@needs_fake_cuda
def test_printed_fusions():
    """Those of ``rms_norm(x) * gelu(x) * sigmoid(x)``. UPDATE=1 writes them anew."""
    x, w = torch.zeros(8, 16, dtype=torch.bfloat16), torch.zeros(16, dtype=torch.bfloat16)
    jitted = thunder.jit(gated, executors=[NVFUSER], frontend="functional")
    jitted(x.cuda().requires_grad_(), w.cuda().requires_grad_())
    for region, name in zip(regions(jitted), ("forward", "backward"), strict=True):
        text = repr(Fusion(region, library.load()).definition).strip() + "\n"
        file = PRINTED / f"{name}.txt"
        if os.environ.get("UPDATE"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        assert text == file.read_text()
