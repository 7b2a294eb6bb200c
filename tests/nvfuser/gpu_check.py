"""Checks of nvFuser's kernels on a GPU: ``python -m tests.nvfuser.gpu_check``.

Needs CUDA and nvFuser. Each check prints a line; the exit status counts failures.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F

import thunder
from examples import models
from tests.nvfuser import philox
from tests.nvfuser.programs import PROGRAMS, gated, regions
from tests.nvfuser.regions import DTYPES, TOLERANCE, calls
from thunder_nvfuser import library, random
from thunder_nvfuser.fusion import Fusion
from thunder_nvfuser.lowerings import TABLE
from thunder_nvfuser.plugin import NVFUSER
from thunder_nvfuser.table import refusal

DEVICE = "cuda:0"


def check_operator(target: str) -> None:
    """Results of its kernels are those of PyTorch on a CPU."""
    for dtype in DTYPES:
        for region in calls(target, dtype, DEVICE):
            if refusal(TABLE[target], region.op, library.load().device_types):
                continue
            fused = Fusion(region.trace, library.load())
            results = fused(*[t.to(DEVICE) for t in region.inputs])
            for found, want in zip(results, region.results, strict=True):
                if want.dtype is torch.uint64:
                    continue  # the state of a random generator
                tolerance = TOLERANCE.get(dtype, {"rtol": 1e-5, "atol": 1e-5}) if want.is_floating_point() else {}
                torch.testing.assert_close(found.cpu(), want, equal_nan=True, check_stride=False, **tolerance)


def check_program(program: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    """Results and gradients are those of eager."""
    x, w = (torch.randn(s, device=DEVICE, dtype=dtype, requires_grad=True) for s in ((48, 64), (64,)))
    jitted = thunder.jit(program, executors=[NVFUSER], frontend="functional")
    found, expected = (_step(fn, x, w) for fn in (jitted, program))
    tolerance = {"rtol": 5e-2, "atol": 5e-2} if dtype is torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(found, expected, **tolerance)
    assert regions(jitted)


def _step(fn: Callable[..., torch.Tensor], x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    out = fn(x, w)
    return [out, *torch.autograd.grad(out, (x, w), torch.ones_like(out))]


def check_attention_in_a_region() -> None:
    """Forward and backward are those of eager."""
    q, k, v = (torch.randn(2, 4, 128, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))

    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.silu(F.scaled_dot_product_attention(q * 2, k, v, is_causal=True)) * q

    jitted = thunder.jit(program, executors=[NVFUSER], frontend="functional", options={"nvfuser.sdpa": True})
    outs = [fn(q, k, v) for fn in (jitted, program)]
    gradients = [torch.autograd.grad(out, (q, k, v), torch.ones_like(out)) for out in outs]
    torch.testing.assert_close([outs[0], *gradients[0]], [outs[1], *gradients[1]], rtol=5e-2, atol=5e-2)
    names = [{op.sym.name for op in region.ops} for region in regions(jitted)]
    assert all(any("flash_attention" in name for name in group) for group in names), names


def check_random_numbers() -> None:
    """They are Philox's of the seed and the offset, so that what is fused and what is not see the same."""
    seed, offset = torch.tensor(2**40 + 3), torch.tensor(2**33 + 5)
    found = random.uniform((33, 65), seed, offset, torch.float32, torch.device(DEVICE))
    want = philox.uniform((33, 65), seed.item(), offset.item(), torch.float32)
    torch.testing.assert_close(found.cpu(), want, rtol=1e-6, atol=1e-6)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for make, mean, variance in ((random.uniform, 0.5, 1 / 12), (random.normal, 0.0, 1.0)):
            numbers = make((1000, 1000), seed, offset, dtype, torch.device(DEVICE)).double()
            assert abs(numbers.mean().item() - mean) < 0.01, (make, dtype)
            assert abs(numbers.var().item() - variance) < 0.02, (make, dtype)
            assert make is random.normal or 0 <= numbers.min() <= numbers.max() < 1, dtype


def check_dropout_in_regions() -> None:
    """The mask of backward is that of forward, whatever is fused, and comes again with the seed."""
    x = torch.randn(512, 1024, device=DEVICE, requires_grad=True)

    def program(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.dropout(x * 2, 0.3)) * x.sigmoid()

    results = []
    for fuel in (0, 2):
        options = {"nvfuser.rng": True, "nvfuser.fuel": fuel}
        jitted = thunder.jit(program, executors=[NVFUSER], frontend="functional", options=options)
        torch.manual_seed(0)
        out = jitted(x)
        y = x.detach().requires_grad_()
        want = F.gelu(y * 2 * (out != 0) / 0.7) * y.sigmoid()
        results += [out, *torch.autograd.grad(out.sum(), x), want, *torch.autograd.grad(want.sum(), y)]
        torch.testing.assert_close((out != 0).float().mean().item(), 0.7, rtol=0, atol=0.01)
    for place in (2, 4, 6):
        torch.testing.assert_close(results[place : place + 2], results[:2], rtol=1e-4, atol=1e-5)


def check_a_gpt_trains_as_in_eager() -> None:
    losses = []
    for compiled in (True, False):
        torch.manual_seed(0)
        module = models.GPT(models.GPTConfig(vocab=256, context=64, layers=4, heads=4, width=128)).to(DEVICE)
        model = thunder.jit(module, executors=[NVFUSER, ...]) if compiled else module
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses.append([])
        for _ in range(10):
            tokens = torch.randint(0, 256, (4, 64), device=DEVICE)
            optimizer.zero_grad()
            loss = model(tokens, tokens)
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(losses[1]), rtol=1e-3, atol=1e-3)


def check_it_is_faster() -> None:
    """``rms_norm(x) * gelu(x) * sigmoid(x)`` on 64 MiB, forward and backward, against eager mode."""
    x = torch.randn(8192, 4096, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    w = torch.randn(4096, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    fused, eager = (
        _milliseconds(lambda fn=fn: fn(x, w).backward(x.detach()))
        for fn in (thunder.jit(gated, executors=[NVFUSER], frontend="functional"), gated)
    )
    print(f"    nvFuser {fused:.2f} ms, eager {eager:.2f} ms", flush=True)
    assert fused < 0.7 * eager


def check_a_region_runs_in_little_time_on_the_host() -> None:
    x = torch.randn(16, 16, device=DEVICE)
    fused = thunder.jit(lambda x: (x * 2 + 1).relu(), executors=[NVFUSER], frontend="functional")
    fused(x)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(1000):
        fused(x)
    print(f"    {(time.perf_counter() - start) * 1e3:.0f} us a call", flush=True)


def _milliseconds(run: Callable[[], object]) -> float:
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / 20 * 1e3


def checks() -> Iterator[tuple[str, Callable[[], None]]]:
    operators = (target for target, row in TABLE.items() if not row.by_value)
    yield from ((f"operator {target}", partial(check_operator, target)) for target in operators)
    for program in PROGRAMS:
        for dtype in (torch.float32, torch.bfloat16):
            yield f"program {program.__name__} {dtype}", partial(check_program, program, dtype)
    for check in (
        check_attention_in_a_region,
        check_random_numbers,
        check_dropout_in_regions,
        check_a_gpt_trains_as_in_eager,
        check_it_is_faster,
        check_a_region_runs_in_little_time_on_the_host,
    ):
        yield check.__name__, check


def main() -> int:
    if not torch.cuda.is_available():
        print("nothing to check here: PyTorch sees no CUDA device")
        return 1
    failures = 0
    for name, check in checks():
        try:
            check()
        except Exception as error:
            failures += 1
            print(f"FAILED {name}: {type(error).__name__}: {str(error).strip()[:500]}", flush=True)
        else:
            print(f"ok     {name}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
