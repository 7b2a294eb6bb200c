"""Train a GPT on English text in FP8, beside bfloat16 and float32:

    python -m examples.fp8_training --steps 300 --out fp8_out      (pip install "thunder-te[example]")

On a GPU with TransformerEngine its kernels run; elsewhere the reference engine, in the same arithmetic. Shown are the
losses, the end of the backward program, where scales are synchronised, and (as PNG) the loss curves and the scales of
one layer over time.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import thunder
import thunder_te
from examples.models import GPT, GPTConfig
from examples.train_char_gpt import CONTEXT, Text, batches

WARM_UP = 30
WATCHED = "blocks.0.mlp.up.weight"
RECIPE = thunder_te.DelayedScaling(amax_history_len=16)


@dataclass(frozen=True)
class Run:
    """losses: of each step. scales: of input, weight and gradient of the watched layer at each step, in FP8."""

    model: torch.nn.Module
    losses: list[float]
    scales: list[tuple[float, ...]]


PRECISIONS: dict[str, Callable[[str], AbstractContextManager[None]]] = {
    "float32": lambda device: contextlib.nullcontext(),
    "bfloat16": lambda device: torch.autocast(device, torch.bfloat16),
    "fp8": lambda device: thunder_te.autocast(recipe=RECIPE),
}
"""The contexts that forward runs in."""


def train(config: GPTConfig, text: Text, steps: int, precision: str, device: str = "cpu") -> Run:
    """Train a GPT from the same start on the same batches, whatever the precision.

    The learning rate is warmed up: delayed scales saturate gradients that grow by more than a few times within a step.
    """
    torch.manual_seed(0)
    model = thunder.jit(GPT(config).to(device), executors=["te", ...], frontend="functional")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.99), weight_decay=0.1)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / WARM_UP, 1.0))
    run = Run(model, [], [])
    for tokens, targets in batches(text.train, steps, seed=1):
        with PRECISIONS[precision](device):
            loss = model(tokens.to(device), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warm_up.step()
        run.losses.append(loss.item())
        run.scales.append(scales(model))
    return run


def scales(model: Any) -> tuple[float, ...]:
    """The scales of the watched layer: input, weight, gradient; nothing where it does not run in FP8."""
    state = model.executor_state_dict().get(WATCHED, {})
    kinds = [kind for kind in ("te.forward", "te.backward") if kind in state]
    return tuple(scale for kind in kinds for scale in state[kind]["scale"].tolist())


def final(run: Run) -> float:
    """The mean loss of the last tenth of the steps."""
    return statistics.mean(run.losses[-max(1, len(run.losses) // 10) :])


def end_of_backward(model: torch.nn.Module) -> str:
    """The backward program from the last FP8 operation to the return."""
    lines = str(thunder.last_backward_traces(model)[-1]).splitlines()
    end = max(n for n, line in enumerate(lines) if line.strip().startswith("return "))  # after those of fused regions
    start = max(n for n, line in enumerate(lines[:end]) if "linear_bwd(" in line)
    return "\n".join(line.strip() for line in lines[start : end + 1])


def plot(runs: dict[str, Run], folder: Path) -> None:
    """``loss.png`` and ``scales.png``."""
    plt: Any = import_module("matplotlib.pyplot")

    figure, axes = plt.subplots()
    for name, run in runs.items():
        axes.plot(run.losses, label=name, linewidth=1)
    axes.set(xlabel="step", ylabel="loss (nats per character)")
    axes.legend()
    figure.savefig(folder / "loss.png", dpi=150)
    figure, axes = plt.subplots()
    for name, values in zip(("input", "weight", "gradient"), zip(*runs["fp8"].scales)):
        axes.plot(values, label=name, linewidth=1)
    axes.set(xlabel="step", ylabel="scale", yscale="log", title=WATCHED)
    axes.legend()
    figure.savefig(folder / "scales.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("fp8_out"), help="folder for the plots")
    options = parser.parse_args()
    if find_spec("matplotlib") is None:
        parser.error('the plots need matplotlib: pip install "thunder-te[example]"')
    options.out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    text = Text.english()
    config = GPTConfig(vocab=-(-len(text.alphabet) // 16) * 16, context=CONTEXT, layers=options.layers)
    runs = {}
    for precision in PRECISIONS:
        runs[precision] = train(config, text, options.steps, precision, device)
        print(f"{precision}: final loss {final(runs[precision]):.4f} nats per character", flush=True)
    print(f"\nthe end of the backward program:\n{end_of_backward(runs['fp8'].model)}")
    plot(runs, options.out)
    print(f"\nplots: {options.out / 'loss.png'}, {options.out / 'scales.png'}")


if __name__ == "__main__":
    main()
