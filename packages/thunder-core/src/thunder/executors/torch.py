"""The ``torch`` executor: runs every operation PyTorch has, so it claims nothing by name."""

from __future__ import annotations

from collections.abc import Iterable

from thunder.plugins.hookspecs import hookimpl
from thunder.plugins.needs import Distribution
from thunder.plugins.spec import Check, CheckResult, Executor

TORCH = Executor(
    name="torch",
    summary="PyTorch itself: runs everything that no other executor claims",
    needs=(Distribution("torch", ">=2.10"),),
    default=True,
)


@hookimpl
def thunder_executors() -> Iterable[Executor]:
    """The one executor."""
    return (TORCH,)


@hookimpl
def thunder_checks() -> Iterable[Check]:
    """That a program compiles and gives what it gives without Thunder, and what memory costs it on the CPU."""
    return (
        Check("compile and run a program", run="thunder.executors.torch:check_program"),
        Check("memory", run="thunder.observe.memory:check_memory"),
    )


def check_program() -> CheckResult:
    """Compile a small training step and compare its loss and gradient with eager PyTorch."""
    import torch

    import thunder

    def loss(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, weight).tanh().sum()

    x, weight = torch.linspace(-1, 1, 12).reshape(4, 3), torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
    expected, actual = loss(x, weight), thunder.jit(loss)(x, weight)
    (expected_grad,), (actual_grad,) = (torch.autograd.grad(out, weight) for out in (expected, actual))
    if torch.allclose(actual, expected) and torch.allclose(actual_grad, expected_grad):
        return CheckResult(True, f"torch {torch.__version__}: loss and gradient equal eager's")
    return CheckResult(False, "loss or gradient differ from eager's", "report this to the authors of thunder-core")
