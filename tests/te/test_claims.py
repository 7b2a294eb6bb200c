"""When linear layers run in FP8, and what is said where they do not."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import thunder
import thunder_te
from thunder.errors import OptionError, PluginError
from thunder.observe.explain import rows
from thunder_te import library, own_recipes, recipes
from thunder_te.plugin import RECIPES, TE
from thunder_te.precision import Precision

FRONT_ENDS = ("functional", "dynamo")


def jit(module, frontend="functional", **options):
    return thunder.jit(module, executors=[TE, ...], frontend=frontend, options=options)


def runs_fp8(jitted, *args) -> bool:
    count = len(jitted._thunder_records)
    jitted(*args)
    record = jitted._thunder_records[-1] if len(jitted._thunder_records) > count else None
    assert record is not None, "nothing was compiled"
    return any(op.sym.name == "te.reference.linear_fwd" for op in record.traces[-1].ops)


def reason(recipe, rows=32, inputs=32, outputs=32, **kwargs) -> str:
    """Why a linear layer is refused; empty if it is not."""
    jitted = jit(nn.Linear(inputs, outputs, **kwargs))
    with thunder_te.autocast(recipe=recipe):
        jitted(torch.zeros(rows, inputs, **kwargs))
    (op,) = [op for op in selected(jitted).ops if op.sym.name == "torch.nn.functional.linear"]
    return "; ".join(refusal.reason for refusal in op.selection.refusals)


def selected(jitted):
    return next(t for t in reversed(thunder.last_traces(jitted)) if t.made_by == "select")


@pytest.mark.parametrize("recipe", ["DelayedScaling", thunder_te.DelayedScaling, 3])
def test_what_is_no_recipe_is_told(recipe):
    with pytest.raises(PluginError, match="as recipe"), thunder_te.autocast(recipe=recipe):
        pass


def test_an_engine_that_is_asked_for_and_missing_is_told(monkeypatch):
    monkeypatch.setattr(library, "missing", lambda: "it is not installed")
    jitted, x = jit(nn.Linear(16, 16), **{"te.engine": "transformer_engine"}), torch.randn(8, 16)
    jitted(x)  # not in FP8
    with thunder_te.autocast(), pytest.raises(PluginError, match="it is not installed"):
        jitted(x)


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_the_context_decides(frontend):
    jitted, x = jit(nn.Linear(16, 16), frontend), torch.randn(8, 16)
    assert not runs_fp8(jitted, x)
    with thunder_te.autocast():
        assert runs_fp8(jitted, x)
        with thunder_te.autocast(enabled=False):
            compiled = len(jitted._thunder_records)
            jitted(x)
        with thunder_te.autocast(recipe=thunder_te.DelayedScaling()):  # equal to the first
            jitted(x)
        assert len(jitted._thunder_records) == compiled
        with thunder_te.autocast(recipe=thunder_te.DelayedScaling(margin=1)):
            assert runs_fp8(jitted, x)
    jitted(x)
    assert len(jitted._thunder_records) == compiled + 1


def explained():
    (record,) = thunder.explain(jit(nn.Linear(16, 16)))(torch.randn(8, 16)).records
    return rows(record)


def test_the_reason_is_explained():
    (row,) = explained()
    assert "no FP8 recipe is in force" in row.refusals[0].reason
    with thunder_te.autocast(recipe=thunder_te.Float8CurrentScaling()):
        (row,) = explained()
    assert row.executor == "te (reference, Float8CurrentScaling)"


def test_a_context_inside_of_a_program_is_refused():
    layer = nn.Linear(16, 16)

    def program(x):
        with thunder_te.autocast():
            return layer(x)

    with pytest.raises(PluginError, match="around the call"):
        thunder.jit(program, executors=[TE, ...], frontend="functional")(torch.randn(8, 16))


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_option_instead_of_a_context(recipe):
    jitted = jit(nn.Linear(32, 32), **{"te.recipe": recipe})
    assert runs_fp8(jitted, torch.randn(32, 32))
    with thunder_te.autocast(enabled=False):
        assert not runs_fp8(jitted, torch.randn(32, 32))


def test_an_option_that_does_not_exist():
    with pytest.raises(OptionError, match="DelayedScaling"):
        jit(nn.Linear(16, 16), **{"te.recipe": "DelayedScalin"})


def test_contexts_of_the_library_are_honoured(monkeypatch):
    manager = SimpleNamespace(
        is_fp8_enabled=lambda: manager.on, get_fp8_recipe=thunder_te.Float8CurrentScaling, get_fp8_group=lambda: None
    )
    module = SimpleNamespace(FP8GlobalStateManager=manager)
    monkeypatch.setitem(sys.modules, "transformer_engine.pytorch.quantization", module)
    jitted = jit(nn.Linear(16, 16))
    manager.on = False
    assert not runs_fp8(jitted, torch.randn(8, 16))
    manager.on = True
    assert runs_fp8(jitted, torch.randn(8, 16))


@pytest.mark.parametrize("recipe", ["DelayedScaling", "Float8CurrentScaling"])
@pytest.mark.parametrize(
    ("sizes", "fits"),
    [((8, 16, 16), True), ((4, 16, 16), False), ((8, 8, 16), False), ((8, 16, 8), False), ((24, 48, 80), True)],
)
def test_shapes_for_scales_of_whole_tensors(recipe, sizes, fits):
    why = reason(getattr(thunder_te, recipe)(), *sizes)
    assert (why == "") == fits
    assert fits or "divisible by 8 and columns divisible by 16" in why


@pytest.mark.parametrize(
    ("sizes", "fits"), [((32, 32, 32), True), ((16, 32, 32), False), ((32, 48, 32), False), ((96, 64, 32), True)]
)
def test_shapes_for_blocks(sizes, fits):
    why = reason(thunder_te.MXFP8BlockScaling(), *sizes)
    assert (why == "") == fits
    assert fits or "divisible by 32" in why


def test_what_does_not_fit_runs_on_torch():
    module = nn.Linear(12, 16)
    x = torch.randn(8, 12)
    with thunder_te.autocast():
        assert torch.equal(jit(module)(x), module(x))


def test_other_refusals():
    assert "no FP8 from float64" in reason(thunder_te.DelayedScaling(), dtype=torch.float64)
    assert "NVFP4BlockScaling is not supported" in reason(thunder_te.NVFP4BlockScaling())
    assert "empty" in reason(thunder_te.DelayedScaling(), rows=0)


def test_recipes_have_the_fields_of_the_library():
    assert recipes.DelayedScaling is own_recipes.DelayedScaling or "transformer_engine" in sys.modules
    recipe = thunder_te.DelayedScaling()
    fields = (recipe.margin, recipe.amax_history_len, recipe.amax_compute_algo, recipe.reduce_amax)
    assert fields == (0, 1024, "max", True)
    assert recipe.fp8_format is thunder_te.Format.HYBRID
    assert thunder_te.MXFP8BlockScaling().fp8_format is thunder_te.Format.E4M3
    with pytest.raises((ValueError, AssertionError)):
        thunder_te.DelayedScaling(fp8_format=thunder_te.Format.E5M2)


def test_keys():
    first, same = Precision(thunder_te.DelayedScaling()), Precision(thunder_te.DelayedScaling())
    assert first == same
    assert hash(first) == hash(same)
    for other in (
        Precision(thunder_te.DelayedScaling(margin=1)),
        Precision(thunder_te.Float8CurrentScaling()),
        Precision(thunder_te.DelayedScaling(), group=object()),
        Precision(thunder_te.DelayedScaling(amax_compute_algo=max)),
    ):
        assert first != other
