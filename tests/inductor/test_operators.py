"""Each operator that may be in a region computes there what it computes in eager PyTorch, forward and backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

from tests.inductor.regions import Call, Calls
from thunder.extend import ClaimContext, Yes
from thunder.lang.values import tensor_type
from thunder.passes.costs import views as is_view
from thunder_inductor.regions import compile
from thunder_inductor.supports import supports

CX = ClaimContext(cache_key=1)
SAMPLES, FORMS = 3, 2
"""How many samples of one entry of the database are tried, and how many forms of one operator."""

ROUNDED = {("aten.grid_sampler_2d", torch.bfloat16)}
"""Eager rounds positions to bfloat16, and is up to a pixel off; a region keeps them in float32."""

TOLERANCE = {torch.float32: (2e-4, 2e-4), torch.bfloat16: (3e-2, 3e-2), torch.float64: (1e-7, 1e-7)}


def calls(dtype: torch.dtype, entries: Iterable[OpInfo], cx: ClaimContext = CX) -> list[Call]:
    """The calls that the samples of PyTorch's database of operators dispatch, forward and backward."""
    seen: Counter[str] = Counter()
    found = []
    for info in entries:
        if dtype not in info.supported_dtypes("cpu") or info.name.startswith("jiterator"):  # those are for CUDA only
            continue
        gradients = info.supports_autograd and dtype.is_floating_point
        for sample in list(info.sample_inputs("cpu", dtype, requires_grad=gradients))[:SAMPLES]:
            for call in dispatched(info, sample):
                name = call.op.sym.name
                makes = "empty" not in name and not is_view(call.op)  # values, and of its own
                known = (name, dtype) in ROUNDED
                if makes and not known and seen[name] < FORMS and isinstance(supports(cx, call.op), Yes):
                    seen[name] += 1
                    found.append(call)
    return found


def dispatched(info, sample) -> list[Call]:
    with Calls() as calls:
        try:
            out = info(sample.input, *sample.args, **sample.kwargs)
            outs = [t for t in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(t, torch.Tensor)]
            outs = [t for t in outs if t.grad_fn is not None]
            if outs:
                torch.autograd.backward(outs, [torch.ones_like(t) for t in outs])
        except (RuntimeError, NotImplementedError):  # some samples are of what has no derivative
            pass
    return calls.made


def check(calls: list[Call]) -> None:
    compiled = [compile(CX, call.region) for call in calls]
    faults = [fault for call, future in zip(calls, compiled, strict=True) if (fault := difference(call, future))]
    assert not faults, "\n".join(faults)


def difference(call: Call, compiled: Future) -> str:
    """What is wrong with the results of a call; empty if nothing is."""
    try:
        results = compiled.result()(*call.inputs)
    except Exception as error:
        return f"{call}: {type(error).__name__}: {error}"
    if [(t.dtype, t.shape, t.stride()) for t in results] != [(t.dtype, t.shape, t.stride()) for t in call.expected]:
        return f"{call}: {[tensor_type(t) for t in results]}"
    memory = [t.data_ptr() for t in (*call.inputs, *results)]
    if any(memory.count(t.data_ptr()) > 1 for t in results):
        return f"{call}: results share memory"
    for got, want in zip(results, call.expected, strict=True):
        rtol, atol = TOLERANCE.get(want.dtype, (0, 0))
        if not torch.allclose(got, want, rtol=rtol, atol=atol, equal_nan=True):
            return f"{call}: {got} instead of {want}"
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_sample_of_operators(dtype):
    found = calls(dtype, op_db[::24])
    assert len({call.op.sym.name for call in found}) > 20
    check(found)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("part", range(12))
def test_all_operators(dtype, part):
    check(calls(dtype, op_db[part::12]))
