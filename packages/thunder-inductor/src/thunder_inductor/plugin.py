"""What the package is: data only, so that it is listed without importing torch."""

from __future__ import annotations

from collections.abc import Iterable

from thunder.extend import Check, Claim, Distribution, Executor, Fuser, Grad, Probe, hookimpl
from thunder_inductor.compiler import INSTALL

CONVOLUTIONS = tuple(
    Claim(
        f"torch.nn.functional.{function}",
        check=f"thunder_inductor.convolutions:{kind}.check",
        lower=f"thunder_inductor.convolutions:{kind}.lower",
        grad=Grad(
            forward=f"thunder_inductor.convolutions:{kind}.forward",
            backward="thunder_inductor.convolutions:backward",
        ),
    )
    for function, kind in (
        ("conv2d", "DIRECT"),
        ("conv3d", "DIRECT"),
        ("conv_transpose2d", "TRANSPOSED"),
        ("conv_transpose3d", "TRANSPOSED"),
    )
)
GELU = Claim(
    "torch.nn.functional.gelu",
    check="thunder_inductor.gelu:check",
    grad=Grad(forward="thunder_inductor.gelu:forward", backward="thunder_inductor.gelu:backward"),
)
EMBEDDING_BAG = Claim(
    "torch.nn.functional.embedding_bag",
    check="thunder_inductor.embedding_bags:check",
    lower="thunder_inductor.embedding_bags:lower",
    grad=Grad(forward="thunder_inductor.embedding_bags:forward", backward="thunder_inductor.embedding_bags:backward"),
)

INDUCTOR = Executor(
    name="inductor",
    summary="regions of a program, compiled by PyTorch's Inductor",
    needs=(
        Distribution("torch", ">=2.10,<2.15"),  # what ``inductor`` relies on is checked for these
        Probe(run="thunder_inductor.compiler:missing", fix=INSTALL),
    ),
    claims=(GELU, EMBEDDING_BAG, *CONVOLUTIONS),
    fuser=Fuser(
        supports="thunder_inductor.supports:supports",
        compile="thunder_inductor.regions:compile",
        pays="thunder_inductor.supports:pays",
        alone="thunder_inductor.supports:alone",
        show="thunder_inductor.regions:show",
        symbolic=True,
        overhead=0.0,  # on a CPU a call takes 0.5 us where torch.add takes 0.9 us
    ),
    cache_key="thunder_inductor.regions:threads",
    default=True,
    numerics="exact",
)


@hookimpl
def thunder_executors() -> Iterable[Executor]:
    return [INDUCTOR]


@hookimpl
def thunder_checks() -> Iterable[Check]:
    return [Check("C++ compiler", run="thunder_inductor.compiler:doctor")]
