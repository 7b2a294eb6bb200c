"""Models under executors that run other kernels than eager's: first steps, steady steps, inference, saved bytes."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence

import torch

from benchmarks.harness import Case, Row, Table, in_child, interleaved, ratios, seconds
from benchmarks.models import MODELS
from benchmarks.steady import held_bytes
from benchmarks.subjects import EXECUTORS
from benchmarks.workload import training_step, warm_up

Samples = dict[str, list[float]]
FUSED = (
    "gpt 12 d128",
    "gpt 48 d128",
    "llama 4 d256",
    "llama 4 d256 bf16",
    "llama 16 d256",
    "llama 16 d256 bf16",
    "resnet",
    "dlrm",
)
QUICK = ("gpt 12 d128", "llama 4 d256 bf16")
MEASURED = {
    "gpt 12 d128": (0.70, 0.72),
    "llama 4 d256": (0.65, 0.70),
    "llama 2 d512": (0.55, 0.60),
    "llama 4 d256 bf16": (0.80, 0.85),
}
"""What measured selection must reach: the training step over eager's, and over torch.compile's."""
PROCESSES = 3
"""In how many a model is measured: by glibc's defaults it depends on where something else lies in memory whether a step
must ask the system again for what it has freed, so that the same program takes 26 ms in one and 37 ms in the next."""
MEDIUM = "eager, medium float32 precision"


def first_step(subject: str, model: str) -> float:
    """Seconds from the untouched module to the end of its first training step. Runs in a child."""
    warm_up()
    module, args = MODELS[model]()
    return seconds(lambda: training_step(EXECUTORS[subject](module), module, args)())


def steps(model: str, subjects: Sequence[str], rounds: int, training: bool) -> Samples:
    """Seconds of a training step, or of a forward call without gradients, of each subject. Runs in a child."""
    actions = {name: _action(model, name, training) for name in subjects}
    interleaved(actions, rounds=3)
    return interleaved(actions, rounds)


def _action(model: str, subject: str, training: bool) -> Callable[[], object]:
    module, args = MODELS[model]()
    program = EXECUTORS[subject.replace(MEDIUM, "eager")](module.train(training))
    action = training_step(program, module, args) if training else torch.no_grad()(lambda: program(*args))
    return _in_medium_precision(action) if subject == MEDIUM else action


def _in_medium_precision(action: Callable[[], object]) -> Callable[[], object]:
    def run() -> None:
        torch.set_float32_matmul_precision("medium")
        action()
        torch.set_float32_matmul_precision("highest")

    return run


def saved(subject: str, model: str) -> int:
    """Bytes that autograd holds after a forward call, without parameters and inputs. Runs in a child."""
    module, args = MODELS[model]()
    return held_bytes(EXECUTORS[subject](module), module, args)


def _environment(folder: str, threads: int = 1) -> dict[str, str]:
    """One or more threads, and a folder for everything that is kept between processes."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "THUNDER_CACHE_DIR": f"{folder}/thunder",
    }


def first(quick: bool) -> Iterable[Table]:
    """First training steps with nothing on disk."""
    models = ("gpt 12 d128",) if quick else ("gpt 12 d128", "gpt 48 d128")
    found: dict[tuple[str, str], float] = {}
    for subject, model in [("torch.compile", models[0]), *(("thunder inductor", model) for model in models)]:
        with tempfile.TemporaryDirectory() as folder:
            found[subject, model] = in_child(
                "benchmarks.executors:first_step", environment=_environment(folder), subject=subject, model=model
            )
    rows = tuple(Row.of(f"{subject}, {model}", [value]) for (subject, model), value in found.items())
    yield Table(title="First training step with cold caches on disk", unit="s", rows=rows)
    ours, theirs = found["thunder inductor", models[0]], found["torch.compile", models[0]]
    over = [Row.of("thunder inductor over torch.compile, 12 layers", [ours / theirs], 0.5)]
    over += [Row.of("48 layers over 12", [found["thunder inductor", m] / ours], 1.3) for m in models[1:]]
    yield Table(title="First training step, ratios", unit="x", rows=tuple(over))


def fused(quick: bool) -> Iterable[Table]:
    """Steady training steps and inference of fused programs, beside eager and torch.compile."""
    names = ("eager", "torch.compile", "thunder inductor")
    for training, title in ((True, "Training step"), (False, "Inference")):
        samples = _samples(QUICK if quick else FUSED, names, 10 if quick else 30, training)
        yield _over(samples, "thunder inductor", "eager", title, {"llama 4 d256 bf16": 0.88} if training else {})
        worst = dict.fromkeys(samples, 1.03 if training else 1.0)
        yield _over(samples, "thunder inductor", "torch.compile", title, worst, mean=0.97 if training else 1.0)


def measured(quick: bool) -> Iterable[Table]:
    """Measured selection among all executors that gain on a CPU: training with one thread and with two, inference."""
    models = QUICK if quick else tuple(MEASURED)
    names = ("eager", MEDIUM, "torch.compile", "thunder measured")
    for threads in (1, 2):
        samples = _samples(models, names, 10 if quick else 30, True, threads)
        for place, base in enumerate(("eager", "torch.compile")):
            targets = {model: MEASURED[model][place] * (1 if threads == 1 else 1.1) for model in models}
            yield _over(samples, "thunder measured", base, f"Training step, threads: {threads}", targets)
        yield _over(samples, MEDIUM, "eager", f"Training step, threads: {threads}", {})
    samples = _samples(models, ("eager", "thunder measured"), 10 if quick else 30, False)
    yield _over(samples, "thunder measured", "eager", "Inference, threads: 1", dict.fromkeys(models, 1.0))


def memory(quick: bool) -> Iterable[Table]:
    """Bytes saved for backward by fused programs."""
    for model in QUICK if quick else FUSED:
        sizes = {}
        with tempfile.TemporaryDirectory() as folder:
            for name in ("eager", "torch.compile", "thunder inductor"):
                arguments = {"subject": name, "model": model}
                size = in_child("benchmarks.executors:saved", environment=_environment(folder), **arguments)
                sizes[name] = size / 2**20
        limit = min(sizes["eager"], sizes["torch.compile"])
        rows = tuple(Row.of(n, [size], limit if n.startswith("thunder") else None) for n, size in sizes.items())
        yield Table(title=f"Saved for backward, {model}", unit="MiB", rows=rows)


def _samples(
    models: Sequence[str], names: Sequence[str], rounds: int, training: bool, threads: int = 1
) -> dict[str, Samples]:
    """The samples of each model, from several processes."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            model: _pooled(
                in_child(
                    "benchmarks.executors:steps",
                    environment=_environment(folder, threads),
                    model=model,
                    subjects=names,
                    rounds=math.ceil(rounds / PROCESSES),
                    training=training,
                )
                for _ in range(PROCESSES)
            )
            for model in models
        }


def _pooled(runs: Iterable[Samples]) -> Samples:
    pooled: Samples = {}
    for run in runs:
        for name, samples in run.items():
            pooled.setdefault(name, []).extend(samples)
    return pooled


def _over(
    samples: dict[str, Samples],
    subject: str,
    base: str,
    title: str,
    targets: dict[str, float],
    mean: float | None = None,
) -> Table:
    """The subject's times over the base's, by model, with their geometric mean."""
    over = {model: ratios(times[subject], times[base]) for model, times in samples.items()}
    rows = [Row.of(model, values, targets.get(model)) for model, values in over.items()]
    rows.append(Row.of("geometric mean", [statistics.geometric_mean([row.median for row in rows])], mean))
    return Table(title=f"{title}: {subject} over {base}", unit="x", rows=tuple(rows))


CASES = (
    Case("fused_first", first),
    Case("fused", fused),
    Case("fused_memory", memory),
    Case("measured", measured),
)
