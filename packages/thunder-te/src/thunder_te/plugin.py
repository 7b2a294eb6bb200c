"""What the package is: data only, so that it is listed without importing torch."""

from __future__ import annotations

from collections.abc import Iterable

from thunder.extend import (
    Check,
    Claim,
    Executor,
    Grad,
    Op,
    Option,
    Reads,
    Scope,
    StateKind,
    Updates,
    hookimpl,
)

RECIPES = ("DelayedScaling", "Float8CurrentScaling", "MXFP8BlockScaling")
ENGINES = ("reference", "transformer_engine")


def _engine(name: str, module: str, metas: str) -> tuple[Op, ...]:
    """What an engine runs: the same three symbols for each."""
    return (
        Op(
            f"te.{name}.quantize_weight",
            impl=f"{module}:quantize_weight",
            meta=f"{metas}:weight_parts",
            effects=(Updates("te.weights"),),
        ),
        Op(f"te.{name}.linear_fwd", impl=f"{module}:linear_fwd", meta=f"{metas}:linear_fwd"),
        Op(f"te.{name}.linear_bwd", impl=f"{module}:linear_bwd", meta=f"{metas}:linear_bwd"),
    )


TE = Executor(
    name="te",
    summary="linear layers in FP8, through TransformerEngine or a reference engine",
    symbols=(
        Op(
            "te.scales",
            impl="thunder_te.state:scales",
            meta="thunder_te.meta:scales",
            effects=(Reads("te.forward"),),
        ),
        Op(
            "te.observe",
            impl="thunder_te.state:observe",
            meta="thunder_te.meta:nothing",
            effects=(Updates("te.forward"), Updates("te.reduction")),
        ),
        Op(
            "te.grad_scale",
            impl="thunder_te.state:grad_scale",
            meta="thunder_te.meta:grad_scale",
            effects=(Reads("te.backward"),),
        ),
        Op(
            "te.observe_grad",
            impl="thunder_te.state:observe_grad",
            meta="thunder_te.meta:nothing",
            effects=(Updates("te.backward"), Updates("te.reduction")),
        ),
        Op("te.sync_fp8_meta_fwd", impl="thunder_te.sync:sync_fp8_meta_fwd"),
        Op("te.sync_fp8_meta_bwd", impl="thunder_te.sync:sync_fp8_meta_bwd"),
        *_engine("reference", "thunder_te.reference.engine", "thunder_te.reference.engine"),
        *_engine("transformer_engine", "thunder_te.library.engine", "thunder_te.library.meta"),
    ),
    states=(
        StateKind(
            name="te.forward",
            init="thunder_te.state:forward_scaling",
            scope=Scope.CALLSITE,
            close="te.sync_fp8_meta_fwd",
        ),
        StateKind(
            name="te.backward",
            init="thunder_te.state:backward_scaling",
            scope=Scope.CALLSITE,
            close="te.sync_fp8_meta_bwd",
        ),
        StateKind(name="te.weights", init="thunder_te.weights:Weights", scope=Scope.CALLSITE),
        StateKind(name="te.reduction", init="thunder_te.reduction:Reduction", scope=Scope.TRACE),
    ),
    claims=(
        Claim(
            "torch.nn.functional.linear",
            check="thunder_te.claims:linear",
            lower="thunder_te.rules:lower",
            grad=Grad(forward="thunder_te.rules:forward", backward="thunder_te.rules:backward"),
        ),
    ),
    options=(
        Option("recipe", str, None, "the FP8 recipe where no autocast context says otherwise", choices=RECIPES),
        Option("engine", str, None, "what runs FP8 layers; chosen for each device if unset", choices=ENGINES),
    ),
    cache_key="thunder_te.context:current",
    numerics="approximate",
    before=("inductor", "nvfuser"),
)


@hookimpl
def thunder_executors() -> Iterable[Executor]:
    return [TE]


@hookimpl
def thunder_checks() -> Iterable[Check]:
    return [Check("FP8 engine", run="thunder_te.claims:doctor")]
