"""Definitions: when they are made and shared, casts, strides, what is shown."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import thunder
from tests.nvfuser.programs import NVFUSER_HERE, regions
from tests.nvfuser.regions import Region
from thunder.extend import ClaimContext
from thunder_nvfuser import fusion, library
from thunder_nvfuser.fuser import show
from thunder_nvfuser.fusion import Fusion

pytestmark = pytest.mark.usefixtures("on_stand_in")

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def compiled(fn, *inputs):
    """The one fusion of a function."""
    jitted = thunder.jit(fn, executors=[NVFUSER_HERE], frontend="functional")
    out = jitted(*inputs)
    (region,) = regions(jitted)
    return Fusion(region, library.load()), out


def test_one_definition_serves_all_inputs_of_a_description():
    region = Region("aten.add.Tensor", (torch.randn(4, 6), torch.randn(4, 6)), {})
    fused = Fusion(region.trace, library.load())
    first = fused.definition
    fused(*region.inputs)
    fused(torch.randn(4, 6), torch.randn(4, 6))
    assert fused._by_description.cache_info().misses == 1
    columns = torch.randn(6, 4).t()
    assert torch.equal(fused(columns, columns)[0], columns + columns)
    assert fused._by_description.cache_info().misses == 2
    wide, wider = torch.randn(4, 7)[:, :6], torch.randn(4, 9)[:, :6]
    assert torch.equal(fused(wide, wide)[0], wide + wide)
    assert torch.equal(fused(wider, wider)[0], wider + wider)
    assert fused._by_description.cache_info().misses == 3, "strides that differ in nothing that nvFuser is told"
    assert fused._by_strides((region.inputs[0].stride(),) * 2) is first


def test_definitions_are_bounded():
    region = Region("aten.add.Tensor", (torch.randn(2, 2, 2, 2), torch.randn(2, 2, 2, 2)), {})
    fused = Fusion(region.trace, library.load())
    for order in torch.tensor(list(__import__("itertools").permutations(range(4)))):
        fused(torch.randn(2, 2, 2, 2).permute(*order.tolist()), region.inputs[1])
    assert fused._by_description.cache_info().currsize == fusion.LIMIT


@given(st.lists(st.sampled_from(FLOATS), min_size=1, max_size=5), st.sampled_from(FLOATS))
def test_chains_of_casts_keep_their_values(chain, start):
    """Whatever casts are left out, the values are those of eager, to the bit."""
    x = (torch.randn(64, generator=torch.Generator().manual_seed(0)) * 1000).to(start)

    def fn(x):
        y = x * 1.5
        for dtype in chain:
            y = y.to(dtype)
        return y

    jitted = thunder.jit(fn, executors=[NVFUSER_HERE], frontend="functional")
    assert torch.equal(jitted(x), fn(x))


def test_a_cast_up_and_down_again_is_left_out():
    fused, _ = compiled(lambda x: (x.float().bfloat16() + x.float().bfloat16()).float(), torch.randn(8).bfloat16())
    casts = [line for line in fused.definition.lines if "fd.ops.cast(" in line]
    assert len(casts) == 3, "x up, once; the sum down to bfloat16, and up for the result"
    fused, _ = compiled(lambda x: (x * 2.0).bfloat16().float() * 3.0, torch.randn(8))
    casts = [line for line in fused.definition.lines if "fd.ops.cast(" in line]
    assert len(casts) == 2, "rounding to bfloat16 is no pair that can be left out"


def test_results_have_the_strides_of_the_trace():
    for x in (torch.randn(4, 6).t(), torch.randn(2, 1, 3, 4).permute(3, 1, 0, 2), torch.randn(5, 1)):
        region = Region("aten.mul.Scalar", (x, 2), {})
        (out,) = Fusion(region.trace, library.load())(*region.inputs)
        assert out.stride() == region.results[0].stride()
        assert not out._is_view()
    expanded = Region("aten.expand", (torch.randn(4, 1), [4, 6]), {})
    (out,) = Fusion(expanded.trace, library.load())(*expanded.inputs)
    assert out.stride() == (1, 0)
    assert torch.equal(out, expanded.results[0])


@pytest.mark.parametrize(
    ("target", "args", "kwargs"),
    [
        ("aten.clone", (torch.randn(4, 6),), {}),
        ("aten.clone", (torch.randn(4, 6).t(),), {"memory_format": torch.contiguous_format}),
        ("aten._to_copy", (torch.randn(4, 6),), {"dtype": torch.float32}),
        ("aten.pow.Tensor_Scalar", (torch.randn(4, 6), 1), {}),
    ],
)
def test_results_have_memory_of_their_own(target, args, kwargs):
    """nvFuser returns inputs, and views of them, where nothing is computed."""
    region = Region(target, args, kwargs)
    fused = Fusion(region.trace, library.load())
    (raw,) = fused.definition.execute(region.inputs)
    assert raw.untyped_storage().data_ptr() == region.inputs[0].untyped_storage().data_ptr()
    (result,) = fused(*region.inputs)
    assert result.untyped_storage().data_ptr() != region.inputs[0].untyped_storage().data_ptr()
    assert result.stride() == region.results[0].stride()
    assert torch.equal(result, region.results[0])


def test_factories_need_no_inputs():
    region = Region("aten.arange.start_step", (0, 6, 2), {"dtype": torch.float32, "device": torch.device("cpu")})
    (out,) = Fusion(region.trace, library.load())()
    assert torch.equal(out, torch.arange(0, 6, 2, dtype=torch.float32))


def test_what_is_shown_is_a_program():
    region = Region("aten.gelu", (torch.randn(4, 6).t(),), {})
    text = show(ClaimContext(), region.trace)
    compile(text, "shown", "exec")
    assert "fd.ops.erf(" in text
    assert "fd.execute(inputs)" in text
    assert "as_strided((6, 4), (1, 6))" in text
