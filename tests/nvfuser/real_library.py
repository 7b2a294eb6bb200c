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
import torch.nn.functional as F

import thunder
from examples import models
from tests.nvfuser import record
from tests.nvfuser.evaluate import evaluate, on_device
from tests.nvfuser.programs import PROGRAMS, gated, regions
from tests.nvfuser.regions import DTYPES, TOLERANCE, calls, unfused
from tests.nvfuser.stand_in import compute_tensor_descriptor
from thunder.extend import TensorType
from thunder_nvfuser import library, random
from thunder_nvfuser.fusion import Fusion
from thunder_nvfuser.lowerings import TABLE
from thunder_nvfuser.plugin import NVFUSER
from thunder_nvfuser.table import refusal

nvfuser = pytest.importorskip("nvfuser_direct")

FLASH = "aten._scaled_dot_product_flash_attention"
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
def test_kernels_compile(target):
    """By the library's planner and NVRTC, a call of each kind of dtype, to results of the types of the trace."""
    calls = {dtype: region for dtype, region in taken(target) if dtype in KINDS and target not in CUBLAS}
    for dtype, region in calls.items():
        results = Fusion(region.trace, library.load())(*[on_device(t) for t in region.inputs])
        for result, var in zip(results, region.trace.result, strict=True):
            found = (tuple(result.shape), result.stride(), f"{result.dtype}".removeprefix("torch."))
            assert found == (var.type.shape, var.type.stride, var.type.dtype), dtype


@needs_fake_cuda
@pytest.mark.parametrize("target", TABLE)
def test_the_evaluator_finds_what_eager_finds(target):
    for dtype, region in taken(target):
        if misjudged(target, region.results[0]):
            EVALUATED["misjudged"] += 1
            continue
        fused = Fusion(region.trace, library.load())
        try:
            found = evaluate(fused, region.inputs, region.results)
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
            found = evaluate(Fusion(region, library.load()), inputs, expected)
        except RuntimeError as error:
            if not any(text in str(error) for text in CANNOT):
                raise
            EVALUATED["regions that cannot be"] += 1
            continue
        torch.testing.assert_close(found, expected, check_stride=False, rtol=1e-4, atol=1e-5)
        EVALUATED["equal regions"] += 1


KINDS = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
CUBLAS = ("aten.mm", "aten.bmm", "aten.linear", "aten.addmm")
"""What is no kernel of nvFuser's own."""

CANNOT = (
    "Unexpected operator type",  # the evaluator lacks the operator
    "dynamic_type.h",
    "wrong index for variant",
    "from the 'CPU' backend",  # flash attention
    "expression RNGOp is not defined",
)


def misjudged(target: str, result: torch.Tensor) -> bool:
    """What the evaluator does otherwise than kernels: signs in single precision, integers divided as real numbers."""
    of_integers = target.startswith("aten.div.") and not result.is_floating_point()
    return of_integers or (target in ("aten.sign", "aten.sgn") and result.dtype is torch.float64)


def attention(q, k, v, w):
    return F.silu(F.scaled_dot_product_attention(q * w, k, v, is_causal=True)) * q


def dropped(q, k, v, w):
    return F.gelu(F.dropout(q * w, 0.3)) + torch.randn_like(k) * torch.bernoulli(v.sigmoid())


@needs_fake_cuda
@pytest.mark.parametrize(
    ("program", "option", "forward", "backward"),
    [
        (attention, "sdpa", FLASH, f"{FLASH}_backward"),
        (dropped, "rng", "nvfuser.uniform", "nvfuser.uniform"),
    ],
)
def test_what_options_allow_is_in_regions(program, option, forward, backward):
    """From PyTorch's functions to results and gradients of their types, by way of the library's own choice."""
    shapes = [(2, 3, 128, 64)] * 3 + [(64,)]
    given = [torch.zeros(shape, dtype=torch.bfloat16).cuda().requires_grad_() for shape in shapes]
    jitted = thunder.jit(program, executors=[NVFUSER], frontend="functional", options={f"nvfuser.{option}": True})
    out = jitted(*given)
    first, last = ([op.sym.name for op in region.ops] for region in regions(jitted))
    assert forward in first
    assert backward in last
    gradients = torch.autograd.grad(out, given, torch.zeros_like(out), allow_unused=True)
    assert [(g.shape, g.dtype) for g in gradients if g is not None] == [
        (t.shape, t.dtype) for t, g in zip(given, gradients) if g is not None
    ]


@needs_fake_cuda
def test_draws_move_the_generator_of_the_device():
    generator = torch.cuda.default_generators[0]
    generator.manual_seed(2**64 - 7)
    pairs = [tuple(value.item() for value in random.draw(torch.device(name))) for name in ("cuda", "cuda:0")]
    assert pairs == [(2**63 - 7, 0), (2**63 - 7, 1)]
    assert generator.get_offset() == 8


def gpt(layers: int) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    module = models.GPT(models.GPTConfig(vocab=64, context=32, layers=layers, heads=2, width=32))
    return module, (torch.randint(0, 64, (2, 32)), torch.randint(0, 64, (2, 32)))


def llama(layers: int) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    module = models.Llama(models.LlamaConfig(vocab=64, context=32, layers=layers, heads=4, groups=2, width=32))
    return module, (torch.randint(0, 64, (2, 12)),)


def step(make, layers):
    """A training step compiled for CUDA. It does not get far: there is no cuBLAS."""
    module, args = make(layers)
    jitted = thunder.jit(module.cuda(), executors=[NVFUSER, ...], frontend="functional")
    with pytest.raises(Exception, match=r"(?i)cublas"):
        jitted(*[t.cuda() for t in args])
    return jitted


def on_cuda(make, layers):
    """The different regions of a training step."""
    return regions(step(make, layers))


def compiled(make, layers):
    """How many regions the forward and the backward of a training step have, and what is saved between the two."""
    jitted = step(make, layers)
    traces = thunder.last_traces(jitted)[-1], thunder.last_backward_traces(jitted)[-1]
    forward, backward = (sum(op.fused is not None for op in trace.ops) for trace in traces)
    _, _, saved = traces[0].result
    return forward, backward, len(set(saved).difference(traces[0].params))


LIGHTNING = {"gpt": (gpt, 37, 61, 222), "llama": (llama, 61, 61, 219)}
"""Of the models with 12 layers, Lightning Thunder 0.2.6 on this nvFuser: regions, forward and backward; what it saves
beside parameters and inputs."""


@needs_fake_cuda
@pytest.mark.parametrize(("make", "forward", "backward", "saved"), LIGHTNING.values(), ids=LIGHTNING)
def test_regions_are_as_good_as_those_of_lightning_thunder(make, forward, backward, saved):
    first, last, kept = compiled(make, 12)
    print(f"\n{make.__name__}: {first} and {last} regions ({forward}, {backward}), {kept} values saved ({saved})")
    assert first <= forward
    assert last <= backward
    assert kept <= saved


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
