"""An executor with state that runs anywhere: linear layers with exact results, and scales as FP8 kernels keep them.

Each call of a linear layer has two states: what it saw forward and what it saw backward. Each is closed once per step.
"""

from thunder.extend import Claim, Executor, Grad, Op, Reads, Scope, StateKind, Updates

_HERE = "thunder.testing.fakes"

FAKE = Executor(
    name="fake",
    summary="linear layers with scales like those of FP8, exact, for tests",
    symbols=(
        Op(
            "fake.linear_fwd",
            impl=f"{_HERE}.kernels:linear_fwd",
            meta=f"{_HERE}.kernels:linear",
            effects=(Updates("fake.forward"),),
        ),
        Op(
            "fake.linear_bwd",
            impl=f"{_HERE}.kernels:linear_bwd",
            meta=f"{_HERE}.kernels:linear_gradients",
            effects=(Reads("fake.forward"), Updates("fake.backward")),
        ),
        Op("fake.sync_forward", impl=f"{_HERE}.kernels:sync_forward"),
        Op("fake.sync_backward", impl=f"{_HERE}.kernels:sync_backward"),
    ),
    states=(
        StateKind(name="fake.forward", init=f"{_HERE}.kernels:Scales", scope=Scope.CALLSITE, close="fake.sync_forward"),
        StateKind(
            name="fake.backward", init=f"{_HERE}.kernels:Scales", scope=Scope.CALLSITE, close="fake.sync_backward"
        ),
    ),
    claims=(
        Claim(
            "torch.nn.functional.linear",
            check=f"{_HERE}.rules:check",
            lower=f"{_HERE}.rules:lower",
            grad=Grad(forward=f"{_HERE}.rules:forward", backward=f"{_HERE}.rules:backward"),
        ),
    ),
)
