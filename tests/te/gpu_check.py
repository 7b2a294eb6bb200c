"""Checks of the TransformerEngine engine on a GPU (Hopper or later): ``python -m tests.te.gpu_check``.

Needs CUDA and ``pip install "thunder-te[runtime]"``. Each check prints a line; the exit status counts failures.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable, Iterator

import torch
from torch import nn

import thunder
import thunder_te
from thunder_te import library
from thunder_te.plugin import TE

DEVICE = "cuda"
STEPS = 5


def recipes() -> Iterator[tuple[str, Callable[[], object]]]:
    """The recipes that the device runs."""
    for name in ("DelayedScaling", "Float8CurrentScaling", "MXFP8BlockScaling"):
        if not library.refusal(name):
            yield name, getattr(thunder_te, name)


def mlp(width: int = 256) -> nn.Module:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    return module.to(DEVICE, torch.bfloat16)


def trained(module: nn.Module, recipe: object, engine: str | None) -> tuple[list[float], nn.Module]:
    """Losses of a few steps of a copy of the module."""
    options = {"te.engine": engine} if engine else {}
    jitted = thunder.jit(copy.deepcopy(module), executors=[TE, ...], frontend="functional", options=options)
    optimizer = torch.optim.SGD(jitted.parameters(), lr=1e-2)
    losses = []
    for seed in range(STEPS):
        torch.manual_seed(seed)
        x = torch.randn(128, module[0].in_features, device=DEVICE, dtype=torch.bfloat16)
        optimizer.zero_grad()
        with thunder_te.autocast(recipe=recipe):
            loss = jitted(x).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, jitted


def engine_of(jitted: nn.Module) -> set[str]:
    ops = [
        op for trace in (thunder.last_traces(jitted)[-1], thunder.last_backward_traces(jitted)[-1]) for op in trace.ops
    ]
    return {op.sym.name.split(".")[1] for op in ops if op.sym.name.endswith(("linear_fwd", "linear_bwd"))}


def check_the_library_runs(name: str, recipe: object) -> None:
    """Chosen by itself for CUDA tensors, forward and backward."""
    _, jitted = trained(mlp(), recipe, None)
    assert engine_of(jitted) == {"transformer_engine"}, engine_of(jitted)


def check_engines_agree(name: str, recipe: object) -> None:
    """Both engines: losses within rounding of bfloat16, scales within that of what is fed to the layers."""
    (ours, first), (theirs, second) = (trained(mlp(), recipe, engine) for engine in ("reference", "transformer_engine"))
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=2e-2, atol=1e-4)
    torch.testing.assert_close(first.executor_state_dict(), second.executor_state_dict(), rtol=5e-2, atol=1e-4)


def check_losses_follow_bfloat16(name: str, recipe: object) -> None:
    losses, _ = trained(mlp(), recipe, None)
    plain = copy.deepcopy(mlp())
    optimizer = torch.optim.SGD(plain.parameters(), lr=1e-2)
    for seed, loss in enumerate(losses):
        torch.manual_seed(seed)
        x = torch.randn(128, 256, device=DEVICE, dtype=torch.bfloat16)
        optimizer.zero_grad()
        expected = plain(x).float().square().mean()
        expected.backward()
        optimizer.step()
        assert abs(loss / expected.item() - 1) < 0.15, (seed, loss, expected.item())


def check_weights_are_quantised_once(name: str, recipe: object) -> None:
    """Micro-batches share the quantised weight: the state holds the same object."""
    jitted = thunder.jit(mlp(), executors=[TE, ...], frontend="functional")
    x = torch.randn(128, 256, device=DEVICE, dtype=torch.bfloat16)
    kept = []
    for _ in range(2):
        with thunder_te.autocast(recipe=recipe):
            jitted(x).sum().backward()
        kept.append([id(w._quantised) for w in thunder.executor_state(jitted)["te.weights"].values()])
    assert kept[0] == kept[1]


def check_it_is_faster(name: str, recipe: object) -> None:
    """A layer of width 4096 against bfloat16 in eager mode."""
    torch.manual_seed(0)
    module = nn.Linear(4096, 4096, bias=False).to(DEVICE, torch.bfloat16)
    jitted = thunder.jit(module, executors=[TE, ...], frontend="functional")
    x = torch.randn(8192, 4096, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)

    def seconds(program: Callable[[torch.Tensor], torch.Tensor]) -> float:
        for _ in range(3):
            program(x).backward(x.detach())
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(20):
            program(x).backward(x.detach())
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / 20

    with thunder_te.autocast(recipe=recipe):
        fp8 = seconds(jitted)
    plain = seconds(module)
    print(f"    {name}: FP8 {fp8 * 1e3:.2f} ms, bfloat16 {plain * 1e3:.2f} ms", flush=True)
    assert fp8 < plain


CHECKS = (
    check_the_library_runs,
    check_engines_agree,
    check_losses_follow_bfloat16,
    check_weights_are_quantised_once,
    check_it_is_faster,
)


def main() -> int:
    if not torch.cuda.is_available() or library.missing():
        print(f"nothing to check here: {library.missing() or 'PyTorch sees no CUDA device'}")
        return 1
    failures = 0
    for name, make in recipes():
        for check in CHECKS:
            try:
                check(name, make())
            except Exception as error:
                failures += 1
                print(f"FAILED {check.__name__} [{name}]: {type(error).__name__}: {error}", flush=True)
            else:
                print(f"ok     {check.__name__} [{name}]", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
