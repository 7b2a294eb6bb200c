"""TransformerEngine itself, on a CPU: run by ``tests/te/real.sh``, which builds an environment that has it.

Its kernels need a GPU. What runs here: its recipes and contexts, the update of histories and scales, the reduction over
processes, and its linear layer with the quantizers that it keeps in Python as a reference.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

import thunder
import thunder_te
from tests.te.test_reference import largest_error, usual_error
from thunder_te import recipes
from thunder_te.context import current
from thunder_te.library import engine
from thunder_te.plugin import TE
from thunder_te.precision import Precision
from thunder_te.scaling import advance

te = pytest.importorskip("transformer_engine.pytorch")

from transformer_engine.common import recipe as library_recipes  # noqa: E402 (skipped above where there is none)
from transformer_engine.pytorch import quantization  # noqa: E402
from transformer_engine.pytorch.cpp_extensions import gemm  # noqa: E402
from transformer_engine.pytorch.custom_recipes.reference_current_scaling import CurrentScalingQuantizerRef  # noqa: E402

ROOT = Path(__file__).parents[2]


def test_recipes_are_those_of_the_library():
    assert thunder_te.DelayedScaling is library_recipes.DelayedScaling
    first, second = Precision(thunder_te.DelayedScaling()), Precision(thunder_te.DelayedScaling())
    assert first == second
    assert hash(first) == hash(second)
    assert first != Precision(thunder_te.DelayedScaling(margin=2))
    assert first.how("grad") == ("delayed", "E5M2")
    assert Precision(thunder_te.Float8CurrentScaling()).how("weight")[:2] == ("current", "E4M3")
    assert Precision(thunder_te.MXFP8BlockScaling()).how("grad") == ("mxfp8", "E4M3")
    for name in ("NVFP4BlockScaling", "Float8BlockScaling"):
        assert "not supported" in recipes.refusal(getattr(library_recipes, name)())


def test_contexts_of_the_library_are_honoured():
    assert current({}) is None
    supported = mock.patch.object(quantization, "check_fp8_support", return_value=(True, ""))
    with supported, te.autocast(enabled=True, recipe=thunder_te.DelayedScaling(amax_history_len=7)):
        precision = current({})
        assert precision is not None
        assert precision.rule("forward").steps == 7
        jitted = thunder.jit(torch.nn.Linear(16, 16), executors=[TE, ...], frontend="functional")
        jitted(torch.randn(8, 16))
    assert any(op.sym.name == "te.reference.linear_fwd" for op in thunder.last_traces(jitted)[-1].ops)


@pytest.mark.parametrize("algorithm", ["max", "most_recent"])
@pytest.mark.parametrize("margin", [0, 1, 3])
def test_histories_and_scales_are_updated_alike(algorithm, margin):
    """To the bit, up to the division: the library's Python path multiplies by the reciprocal, its kernel divides."""
    recipe = thunder_te.DelayedScaling(amax_history_len=5, margin=margin, amax_compute_algo=algorithm)
    rule = Precision(recipe).rule("forward")
    generator = torch.Generator().manual_seed(0)
    ours = theirs = (torch.zeros(5, 64), torch.ones(64))
    for _ in range(20):
        newest = torch.rand(64, generator=generator).exp() * 2.0 ** torch.randint(-20, 20, (64,), generator=generator)
        ours = advance(*ours, newest, rule)
        history, scale = theirs[0].clone(), theirs[1].clone()
        history[0] = newest
        quantization._amax_and_scale_update(history, scale, rule.largest, recipe)
        theirs = history, scale
        assert torch.equal(ours[0], theirs[0])
        assert ((ours[1] - theirs[1]).abs() <= theirs[1] * 2.0**-23).all()


def reference_quantizer(t, scale, how):
    dtype = {"E4M3": torch.float8_e4m3fn, "E5M2": torch.float8_e5m2}[how[1]]
    return CurrentScalingQuantizerRef(dtype=dtype), None


@pytest.mark.parametrize("bias", [False, True])
def test_its_linear_layer_is_called_as_it_wants(bias, monkeypatch):
    """The operations of the engine, with the library's own quantizers for a CPU."""
    monkeypatch.setattr(gemm, "get_cublas_workspace", lambda *args, **kwargs: torch.empty(0, dtype=torch.uint8))
    monkeypatch.setattr(engine, "_quantizer", reference_quantizer)
    torch.manual_seed(0)
    x, w, g = torch.randn(64, 128), torch.randn(32, 128) * 0.05, torch.randn(64, 32) * 1e-2
    b = torch.randn(32) if bias else None
    how = Precision(thunder_te.Float8CurrentScaling())
    weight = (engine._quantizer(w, None, how.how("weight"))[0](w),)
    out, parts, _ = engine.linear_fwd(x, weight, None, None, how.how("input"))
    if b is not None:
        try:
            with_bias, _, _ = engine.linear_fwd(x, weight, b, None, how.how("input"))
        except NotImplementedError as error:  # of the reference quantizers alone
            pytest.skip(str(error))
        torch.testing.assert_close(with_bias, out + b)
    of_input, of_weight, _ = engine.linear_bwd(g, parts, weight, None, how.how("grad"))
    for actual, left, right, forms in (
        (out, x, w.t(), ("E4M3", "E4M3")),
        (of_input, g, w, ("E5M2", "E4M3")),
        (of_weight, g.t(), x, ("E5M2", "E4M3")),
    ):
        exact = left @ right
        error = (actual - exact).abs()
        assert (error <= largest_error(left, right, forms) + 1e-6).all()
        assert 0.5 < error.norm() / exact.norm() / usual_error(forms) < 1.2


def test_the_reduction_of_the_library_and_ours_agree(tmp_path):
    """Two gloo processes: the same amaxes give the same histories and scales."""
    code = "import sys; from tests.te.real_library import reduce; reduce(int(sys.argv[1]), sys.argv[2])"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "NVTE_UNFUSED_FP8_UPDATE": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(rank), str(tmp_path)], env=env, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    for process in running:
        _, errors = process.communicate(timeout=180)
        assert process.returncode == 0, errors[-3000:]


def reduce(rank: int, folder: str) -> None:
    """What one process of the test above does."""
    import torch.distributed as dist

    from thunder_te.reduction import Reduction
    from thunder_te.state import backward_scaling, forward_scaling
    from thunder_te.sync import sync_fp8_meta_bwd, sync_fp8_meta_fwd

    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    recipe = thunder_te.DelayedScaling(amax_history_len=4, margin=1)
    manager = quantization.FP8GlobalStateManager
    cpu = torch.device("cpu")
    create = quantization.RecipeState.create
    forward = create(recipe, mode="forward", num_quantizers=2, device=cpu)
    backward = create(recipe, mode="backward", num_quantizers=2, device=cpu)
    meta = {"recipe": recipe, "fp8_group": None, "scaling_fwd": forward, "scaling_bwd": backward}
    manager.autocast_enter(enabled=False, fp8_recipe=recipe)
    manager.add_fp8_tensors_to_global_buffer(meta)
    forward.amax_history[0] = torch.tensor([1.0 + rank, 4.0 - rank])
    backward.amax_history[0] = torch.tensor([7.0 * (rank + 1), 0.0])
    manager.reduce_and_update_fp8_tensors(forward=True)
    manager.reduce_and_update_fp8_tensors(forward=False)

    precision, reduction = Precision(recipe), Reduction("")
    ours, of_grad = forward_scaling("layer"), backward_scaling("layer")
    ours.observe([torch.tensor(1.0 + rank), torch.tensor(4.0 - rank)], precision.rule("forward"), True, reduction)
    of_grad.observe([torch.tensor(7.0 * (rank + 1))], precision.rule("backward"), True, reduction)
    sync_fp8_meta_fwd(ours)
    sync_fp8_meta_bwd(of_grad)
    assert torch.equal(ours.scale, forward.scale), (ours.scale, forward.scale)
    assert torch.equal(ours.history, forward.amax_history)
    assert torch.equal(of_grad.scale, backward.scale[:1])
    assert torch.equal(of_grad.history, backward.amax_history[:, :1])
    dist.destroy_process_group()
