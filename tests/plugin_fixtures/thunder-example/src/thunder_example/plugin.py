"""What the package is: data only, so that it is listed without importing torch."""

from thunder.extend import Check, Claim, Distribution, Executor, Grad, Op, Option, hookimpl

EXAMPLE = Executor(
    name="example",
    summary="gelu and sin, written again",
    needs=(Distribution("torch", ">=2.10"),),
    symbols=(
        Op("example.gelu", impl="thunder_example.kernels:gelu"),
        Op("example.gelu_backward", impl="thunder_example.kernels:gelu_backward"),
    ),
    claims=(
        Claim(
            "torch.nn.functional.gelu",
            check="thunder_example.rules:check_gelu",
            lower="thunder_example.rules:gelu",
            grad=Grad(forward="thunder_example.rules:gelu_forward", backward="thunder_example.rules:gelu_backward"),
        ),
        Claim(
            "torch.sin",
            grad=Grad(forward="thunder_example.rules:sin_forward", backward="thunder_example.rules:sin_backward"),
        ),
    ),
    options=(Option("double", bool, True, "whether to run float64, too"),),
)


@hookimpl
def thunder_executors():
    return [EXAMPLE]


@hookimpl
def thunder_checks():
    return [Check("gelu of zero", run="thunder_example.checks:gelu_of_zero")]
