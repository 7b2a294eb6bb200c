"""Checks of Apex's kernels on a GPU: ``python -m tests.apex.gpu_check``.

Needs CUDA and Apex's extensions. Each check prints a line; the exit status counts failures. The tests of this folder
run on the kernels, too, wherever they are (``python -m pytest tests/apex``); this adds sizes of real models, and times.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from tests.apex.programs import close, executors, jit, step, wide
from thunder_apex import checks, extensions

DEVICE = "cuda"
ERROR = {torch.float32: 1e-4, torch.float16: 2**-7, torch.bfloat16: 2**-4}
ROWS, VOCABULARIES, WIDTH = 2048, (32000, 50257), 4096


def check_cross_entropy(dtype: torch.dtype) -> None:
    """Vocabularies whose rows are aligned, and not; rows to ignore; smoothing."""
    for classes, smoothing, reduction in itertools.product(VOCABULARIES, (0.0, 0.1), ("mean", "sum", "none")):
        logits = torch.randn(ROWS, classes, device=DEVICE).to(dtype).requires_grad_()
        target = torch.randint(0, classes, (ROWS,), device=DEVICE)
        target[::7] = -100

        def loss(logits: Tensor, target: Tensor, smoothing: float = smoothing, reduction: str = reduction) -> Tensor:
            return F.cross_entropy(logits, target, reduction=reduction, label_smoothing=smoothing)

        grad = torch.ones(ROWS if reduction == "none" else (), device=DEVICE)
        jitted = jit(loss)
        actual = step(jitted, logits, target, grad=grad)
        assert executors(jitted)["cross_entropy"] == "apex"
        close(actual, step(loss, wide(logits), target, grad=grad), ERROR[dtype])


def check_norms(dtype: torch.dtype) -> None:
    for name, efficient in itertools.product(("layer_norm", "rms_norm"), (False, True)):
        x = torch.randn(ROWS, WIDTH, device=DEVICE).to(dtype).requires_grad_()
        weight = (torch.rand(WIDTH, device=DEVICE) + 0.5).to(dtype).requires_grad_()

        def norm(x: Tensor, weight: Tensor, name: str = name) -> Tensor:
            return getattr(F, name)(x, (WIDTH,), weight, eps=1e-5)

        grad = torch.randn(ROWS, WIDTH, device=DEVICE).to(dtype)
        jitted = jit(norm, memory_efficient=efficient)
        actual = step(jitted, x, weight, grad=grad)
        assert executors(jitted)[name].startswith("apex")
        close(actual, step(norm, wide(x), wide(weight), grad=grad.double()), ERROR[dtype])


def check_times(dtype: torch.dtype) -> None:
    """Of forward and backward, beside eager; printed, with no promise."""
    logits = torch.randn(ROWS, VOCABULARIES[1], device=DEVICE).to(dtype).requires_grad_()
    target = torch.randint(0, VOCABULARIES[1], (ROWS,), device=DEVICE)
    x = torch.randn(ROWS, WIDTH, device=DEVICE).to(dtype).requires_grad_()
    weight = torch.ones(WIDTH, device=DEVICE).to(dtype).requires_grad_()
    programs: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
        "cross_entropy": (F.cross_entropy, (logits, target)),
        "layer_norm": (lambda x, w: F.layer_norm(x, (WIDTH,), w, w).sum(), (x, weight)),
        "rms_norm": (lambda x, w: F.rms_norm(x, (WIDTH,), w).sum(), (x, weight)),
    }
    for name, (fn, inputs) in programs.items():
        eager, apex = (seconds(program, inputs) for program in (fn, jit(fn)))
        print(f"    {name}: eager {eager * 1e6:.0f} us, apex {apex * 1e6:.0f} us", flush=True)


def seconds(fn: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> float:
    for _ in range(3):
        fn(*inputs).backward()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20):
        fn(*inputs).backward()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / 20


def main() -> int:
    missing = [name for name in (extensions.CROSS_ENTROPY, extensions.NORM) if extensions.find(name) is None]
    if missing or not torch.cuda.is_available():
        print(f"nothing to check here: {checks.doctor().message if missing else 'PyTorch sees no CUDA device'}")
        return 1
    failures = 0
    for dtype, check in itertools.product(ERROR, (check_cross_entropy, check_norms, check_times)):
        try:
            check(dtype)
        except Exception as error:
            failures += 1
            print(f"FAILED {check.__name__} [{dtype}]: {type(error).__name__}: {error}", flush=True)
        else:
            print(f"ok     {check.__name__} [{dtype}]", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
