"""Fuzzing from the command line: ``python -m tests.fuzz --seconds 60``."""

from __future__ import annotations

import argparse
import logging
import os
import time
import warnings
from collections import Counter
from pathlib import Path
from random import Random

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from tests.fuzz.check import fails_like, verdict
from tests.fuzz.generate import generate
from tests.fuzz.minimise import minimise


def main() -> int:
    """Run programs for a while; each new kind of failure is minimised, printed and written as a test."""
    options = _options()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("torch._subclasses.fake_tensor").disabled = True
    tally: Counter[str] = Counter()
    declined: Counter[str] = Counter()
    kinds: set[str] = set()
    start, seed = time.monotonic(), options.seed
    while time.monotonic() - start < options.seconds and tally.total() < options.programs:
        program = generate(Random(seed))
        outcome, reason = verdict(program, options.frontend)
        tally[outcome] += 1
        if outcome == "declined":
            declined[reason.split("\n")[0]] += 1
        if outcome == "wrong" and len(kinds) < options.failures:
            small = minimise(program, fails_like(reason, options.frontend))
            _, reason = verdict(small, options.frontend)
            if (kind := "\n".join(small.body)) not in kinds:
                kinds.add(kind)
                text = small.as_test(reason.split("\n")[0])
                print(f"# seed {seed}\n{text}", flush=True)
                _write(options.out, seed, text)
        seed += 1
    seconds = time.monotonic() - start
    print(f"{tally.total()} programs in {seconds:.0f} s: " + ", ".join(f"{n} {what}" for what, n in tally.items()))
    for reason, count in declined.most_common(15):
        print(f"  declined {count}: {reason}")
    return 1 if tally["wrong"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after this long")
    parser.add_argument("--programs", type=int, default=10**9, help="stop after this many")
    parser.add_argument("--seed", type=int, default=0, help="the first program's seed; the next has the next number")
    parser.add_argument("--frontend", default="functional", choices=["functional", "dynamo"])
    parser.add_argument("--failures", type=int, default=20, help="minimise at most this many")
    parser.add_argument("--out", type=Path, help="folder for the failing programs, as test files")
    return parser.parse_args()


def _write(folder: Path | None, seed: int, text: str) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"test_program_{seed}.py").write_text(text)


if __name__ == "__main__":
    raise SystemExit(main())
