"""Train a character-level GPT on English text with thunder, and look inside: ``make demo``, or

    python -m examples.train_char_gpt --steps 300 --out demo_out

The text is the reference manual that comes with Python (``pydoc_data.topics``). The model is compiled with
``thunder.jit`` and trained as any module is; then its traces, its claims and its speed beside eager's are shown.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from textwrap import dedent
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.rule import Rule
from rich.syntax import Syntax
from torch import Tensor, nn

import thunder
from examples.models import GPT, GPTConfig
from thunder.ir import Trace
from thunder.ir.printer import render

CONTEXT, BATCH = 128, 16
LAYER_SHOWN = 2


@dataclass(frozen=True)
class Text:
    """A text as numbers. ``train`` and ``held_out`` are int64 (characters,), indices into ``alphabet``."""

    alphabet: str
    train: Tensor
    held_out: Tensor

    @classmethod
    def english(cls) -> Text:
        """The reference manual of Python; its last tenth is held out."""
        text = "\n\n".join(topics.values())
        alphabet = "".join(sorted(set(text)))
        index = {character: i for i, character in enumerate(alphabet)}
        data = torch.tensor([index[character] for character in text])
        cut = len(data) * 9 // 10
        return cls(alphabet, data[:cut], data[cut:])

    def decode(self, tokens: Tensor) -> str:
        return "".join(self.alphabet[i] for i in tokens.tolist())

    def prompt(self) -> Tensor:
        """The first CONTEXT characters of a held-out paragraph of prose, int64 (CONTEXT,)."""
        start = self.decode(self.held_out).index("\n\nThe ") + 2
        return self.held_out[start : start + CONTEXT]


def batches(data: Tensor, count: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """``count`` random windows of the text: inputs and next characters, each (BATCH, CONTEXT)."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,), generator=generator)
        windows = torch.stack([data[start : start + CONTEXT + 1] for start in starts])
        yield windows[:, :-1], windows[:, 1:]


def train(model: nn.Module, text: Text, steps: int, console: Console) -> None:
    """Train ``model`` in place: AdamW, warm-up, then a cosine to zero."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.99), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 30, 0.5 * (1 + math.cos(math.pi * step / steps)))
    )
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]:.3f}"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task("train", total=steps, loss=float("nan"))
        for tokens, targets in batches(text.train, steps, seed=1):
            optimizer.zero_grad(set_to_none=True)
            loss = model(tokens, targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            progress.update(task, advance=1, loss=loss.item())


@torch.no_grad()
def held_out_loss(model: nn.Module, text: Text) -> float:
    """Mean loss per character, in nats, on a fixed sample of the held-out text."""
    return statistics.mean(model(*batch).item() for batch in batches(text.held_out, 8, seed=2))


@torch.no_grad()
def continue_text(model: nn.Module, prompt: Tensor, length: int) -> Tensor:
    """Draw ``length`` characters after a prompt of CONTEXT tokens, from a window that keeps its shape and strides."""
    generator = torch.Generator().manual_seed(3)
    window, drawn = prompt, []
    for _ in range(length):
        logits = model(window[None])[0, -1]
        drawn.append(torch.multinomial((logits / 0.7).softmax(0), 1, generator=generator))
        window = torch.cat((window[1:], drawn[-1]))
    return torch.cat(drawn)


def seconds(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def training_step(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Callable[[], None]:
    """Forward and backward, without the optimizer: what a compiler can change."""

    def step() -> None:
        model.zero_grad(set_to_none=True)
        model(*batch).backward()

    return step


def side_by_side(jitted: nn.Module, model: nn.Module, batch: tuple[Tensor, Tensor], rounds: int = 20) -> str:
    """Median time of a training step of both, measured in turns."""
    steps = training_step(jitted, batch), training_step(model, batch)
    times = [(seconds(steps[0]), seconds(steps[1])) for _ in range(rounds)]
    ours, eager = (statistics.median(column) for column in zip(*times))
    ratio = statistics.median(a / b for a, b in times)
    return f"training step: thunder {ours * 1e3:.1f} ms, eager {eager * 1e3:.1f} ms, ratio {ratio:.3f}"


def fastest() -> list[Any]:
    """The default executors, after the one that may have faster matrix products, where it can be used."""
    return ["onednn", ...] if "onednn" in thunder.available_executors() else [...]


def layer_of(trace: Trace, layer: int) -> str:
    """The lines of a program from the first to the last call that reads a parameter of one layer of the model."""
    program = render(trace)
    reads = [n for n, op in program.lines.items() if any(v.name.startswith(f"blocks_{layer}_") for v in op.inputs)]
    return dedent("\n".join(program.text.splitlines()[min(reads) - 1 : max(reads)]))


def write_programs(traces: dict[str, list[Trace]], folder: Path) -> None:
    """Write each trace as a Python program, named after the pass that made it: ``forward_03_lower.py``."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.py"):
        old.unlink()
    for phase, stages in traces.items():
        for number, trace in enumerate(stages):
            (folder / f"{phase}_{number:02d}_{trace.made_by or trace.stage.value}.py").write_text(str(trace))


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a character-level GPT with thunder, and look inside.")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path("demo_out"), help="folder for the programs (its *.py go)")
    options = parser.parse_args()
    console = Console()

    text = Text.english()
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab=len(text.alphabet), context=CONTEXT))
    size = sum(p.numel() for p in model.parameters())
    console.print(f"{len(text.train):,} characters to learn from, {len(text.alphabet)} different; {size:,} parameters")

    jitted = thunder.jit(model, executors=fastest(), options={"select": "measure"})
    batch = next(batches(text.train, 1, seed=0))
    step = training_step(jitted, batch)
    first, second = seconds(step), seconds(step)
    console.print(f"compiled in {first - second:.2f} s (first step {first:.2f} s, second {second:.2f} s)")
    traces = {"forward": thunder.last_traces(jitted), "backward": thunder.last_backward_traces(jitted)}
    claims = str(thunder.explain(jitted)(*batch))

    before = held_out_loss(jitted, text)
    train(jitted, text, options.steps, console)
    console.print(f"held-out loss: {before:.3f} before, {held_out_loss(jitted, text):.3f} after (nats per character)")

    prompt = text.prompt()
    console.print(Rule("a sample"))
    console.print(text.decode(prompt), style="dim", end="", markup=False, highlight=False)
    console.print(text.decode(continue_text(jitted, prompt, 400)), markup=False, highlight=False)

    for phase, stages in traces.items():
        console.print(Rule(f"layer {LAYER_SHOWN} of the final {phase} trace"))
        console.print(Syntax("", "python").highlight(layer_of(stages[-1], LAYER_SHOWN)), soft_wrap=True)
    console.print(Rule("who runs what"))
    console.print(claims, markup=False, highlight=False, soft_wrap=True)

    console.print(Rule("speed"))
    console.print(side_by_side(jitted, model, batch))
    write_programs(traces, options.out)
    console.print(f"every stage as a Python program: {options.out}/")


if __name__ == "__main__":
    main()
