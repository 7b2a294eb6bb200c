"""FP8 on the reference engine: a training step of a GPT of width 512 beside eager in float32, and what scales cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from unittest import mock

import torch
from torch import Tensor

import thunder
from benchmarks.harness import Case, Row, Table, in_child, interleaved, ratios
from benchmarks.workload import training_step
from examples.models import GPT, GPTConfig

SIZES = GPTConfig(vocab=1024, context=128, layers=4, heads=8, width=512)
BATCH = 4
BOOKKEEPING_TARGET = 0.03
RECIPES = ("DelayedScaling", "Float8CurrentScaling", "MXFP8BlockScaling")


def step(recipe: str | None) -> Callable[[], None]:
    """A training step in FP8 under a recipe; in eager float32 without one."""
    torch.manual_seed(0)
    module = GPT(SIZES)
    args = torch.randint(SIZES.vocab, (BATCH, SIZES.context)), torch.randint(SIZES.vocab, (BATCH, SIZES.context))
    if recipe is None:
        return training_step(module, module, args)
    jitted = thunder.jit(module, executors=["te"], frontend="functional", options={"te.recipe": recipe})
    return training_step(jitted, module, args)


def steps(rounds: int) -> dict[str, list[float]]:
    """Seconds of a training step of each subject. Runs in a child."""
    actions = {"eager float32": step(None), **{f"thunder te {recipe}": step(recipe) for recipe in RECIPES}}
    interleaved(actions, rounds=2)
    return interleaved(actions, rounds)


def bookkeeping(rounds: int) -> list[float]:
    """The part of each delayed scaling step that goes into reading, observing and closing scales. Runs in a child."""
    from thunder_te import state, sync

    spent = 0.0

    def timed(fn: Callable[..., Tensor | None]) -> Callable[..., Tensor | None]:
        def run(*args: object, **kwargs: object) -> Tensor | None:
            nonlocal spent
            start = time.perf_counter()
            result = fn(*args, **kwargs)
            spent += time.perf_counter() - start
            return result

        return run

    places = [(state, name) for name in ("scales", "observe", "grad_scale", "observe_grad")]
    places += [(sync, name) for name in ("sync_fp8_meta_fwd", "sync_fp8_meta_bwd")]
    for module, name in places:
        mock.patch.object(module, name, timed(getattr(module, name))).start()
    action, parts = step("DelayedScaling"), []
    action()
    for _ in range(rounds):
        spent, start = 0.0, time.perf_counter()
        action()
        parts.append(spent / (time.perf_counter() - start))
    return parts


def fp8(quick: bool) -> Iterable[Table]:
    rounds = 4 if quick else 12
    samples = in_child("benchmarks.fp8:steps", rounds=rounds)
    base = samples["eager float32"]
    rows = tuple(Row.of(name, [s * 1e3 for s in seconds]) for name, seconds in samples.items())
    yield Table(title="Training step of a GPT of width 512", unit="ms", rows=rows)
    over = tuple(
        Row.of(name, ratios(seconds, base), 1.0 if "Delayed" in name else None) for name, seconds in samples.items()
    )
    yield Table(title="Training step of a GPT of width 512 over eager float32's", unit="x", rows=over)
    parts = in_child("benchmarks.fp8:bookkeeping", rounds=rounds)
    row = Row.of("thunder te DelayedScaling", parts, BOOKKEEPING_TARGET)
    yield Table(title="Share of the step that goes into scales", unit="x", rows=(row,))


CASES = (Case("fp8", fp8),)
