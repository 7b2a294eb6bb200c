"""What the package is: data only, so that it is listed without importing torch."""

from __future__ import annotations

from collections.abc import Iterable

from thunder.extend import Claim, Executor, Grad, Op, Option, Probe, hookimpl

ONEDNN = Executor(
    name="onednn",
    summary="matrix products and attention on CPUs, through the oneDNN that PyTorch brings",
    needs=(
        Probe(
            run="thunder_onednn.library:missing",
            fix="use a PyTorch for which that is there, on Linux and such a CPU, or run without this executor",
        ),
    ),
    symbols=(
        Op(
            "onednn.linear",
            impl="torch:ops.mkldnn._linear_pointwise.default",
            meta="thunder_onednn.kernels:linear_type",
        ),
        Op("onednn.packed_linear", impl="thunder_onednn.weights:linear", meta="thunder_onednn.kernels:linear_type"),
        Op("onednn.matmul", impl="thunder_onednn.kernels:matmul", meta="thunder_onednn.kernels:product_type"),
        Op("onednn.addmatmul", impl="thunder_onednn.kernels:addmatmul", meta="thunder_onednn.kernels:sum_type"),
        Op("onednn.attention", impl="thunder_onednn.attention:forward", meta="thunder_onednn.attention:result_type"),
        Op(
            "onednn.attention_backward",
            impl="thunder_onednn.attention:backward",
            meta="thunder_onednn.attention:gradient_types",
        ),
    ),
    claims=(
        Claim(
            "torch.nn.functional.linear",
            check="thunder_onednn.products:check_linear",
            lower="thunder_onednn.products:alone",
            grad=Grad(
                forward="thunder_onednn.products:linear_forward", backward="thunder_onednn.products:linear_backward"
            ),
        ),
        *(
            Claim(
                ("torch.nn.functional.linear", activation),
                check="thunder_onednn.activations:check",
                lower="thunder_onednn.activations:lower",
            )
            for activation in (
                "torch.nn.functional.gelu",
                "torch.nn.functional.relu",
                "torch.relu",
                "torch.nn.functional.silu",
            )
        ),
        *(
            Claim(target, check="thunder_onednn.products:check_product", lower="thunder_onednn.products:product")
            for target in ("aten.mm", "aten.bmm")
        ),
        *(
            Claim(target, check="thunder_onednn.products:check_sum", lower="thunder_onednn.products:sum_with_product")
            for target in ("aten.addmm", "aten.baddbmm")
        ),
        Claim(
            "torch.nn.functional.scaled_dot_product_attention",
            check="thunder_onednn.attending:check",
            lower="thunder_onednn.attending:lower",
            grad=Grad(forward="thunder_onednn.attending:forward", backward="thunder_onednn.attending:backward"),
        ),
    ),
    options=(
        Option(
            "when",
            str,
            "faster",
            "take the calls that are expected to be faster than PyTorch's, or all that can be run",
            choices=("faster", "always"),
        ),
        Option(
            "pack",
            bool,
            False,
            "keep a second, packed copy of the weights that are multiplied by few rows without gradients",
        ),
    ),
    before=("inductor", "nvfuser", "torch"),
)


@hookimpl
def thunder_executors() -> Iterable[Executor]:
    return [ONEDNN]
