"""What the package is: data only, so that it is listed without importing torch."""

from __future__ import annotations

from collections.abc import Iterable

from thunder.extend import Check, Claim, Executor, Grad, Modules, Op, Option, hookimpl

INSTALL = (
    "APEX_CPP_EXT=1 APEX_CUDA_EXT=1 APEX_XENTROPY=1 "
    "pip install -v --no-build-isolation git+https://github.com/NVIDIA/apex.git"
)


def _op(name: str) -> Op:
    return Op(f"apex.{name}", impl=f"thunder_apex.kernels:{name}", meta=f"thunder_apex.meta:{name}")


def _claim(target: str, module: str) -> Claim:
    """A function that runs on a pair of kernels; rules and check have its name."""
    name = target.rpartition(".")[2]
    rules = f"thunder_apex.{module}:{name}"
    return Claim(
        target,
        check=f"thunder_apex.checks:{name}",
        lower=f"{rules}_lower",
        grad=Grad(forward=f"{rules}_forward", backward=f"{rules}_backward"),
    )


APEX = Executor(
    name="apex",
    summary="Apex's fused cross entropy, layer norm and RMS norm",
    needs=(Modules(any_of=("fused_layer_norm_cuda", "xentropy_cuda"), install=INSTALL),),
    symbols=(
        _op("cross_entropy_fwd"),
        _op("cross_entropy_bwd"),
        _op("layer_norm_fwd"),
        _op("layer_norm_bwd"),
        _op("rms_norm_fwd"),
        _op("rms_norm_bwd"),
    ),
    claims=(
        _claim("torch.nn.functional.cross_entropy", "cross_entropy"),
        _claim("torch.nn.functional.layer_norm", "norms"),
        _claim("torch.nn.functional.rms_norm", "norms"),
        _claim("torch.rms_norm", "norms"),  # what Dynamo records of the one before
    ),
    options=(
        Option("memory_efficient", bool, False, "backward of a norm starts from its result, so its input can be freed"),
    ),
    before=("inductor", "nvfuser"),
)


@hookimpl
def thunder_executors() -> Iterable[Executor]:
    return [APEX]


@hookimpl
def thunder_checks() -> Iterable[Check]:
    return [Check("Apex extensions", run="thunder_apex.checks:doctor")]
