"""Compiling in several threads: tracing is a state of the process, and nobody else may see it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch.fx._symbolic_trace import is_fx_symbolic_tracing

import thunder
from thunder_inductor.plugin import INDUCTOR

FUSER = replace(INDUCTOR, default=False)
pytestmark = pytest.mark.slow


def gradient(fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    leaf = x.clone().requires_grad_()
    fn(leaf).sum().backward()
    assert leaf.grad is not None
    return leaf.grad


@pytest.mark.parametrize("frontend", ["functional", "dynamo"])
def test_each_thread_compiles_its_own(frontend):
    failures: list[BaseException] = []

    def work(factor: int) -> None:
        def fn(x: torch.Tensor) -> torch.Tensor:
            return (x * factor).sin().sum(0) * x.exp()

        try:
            x = torch.randn(4, 5 + factor)
            compiled = thunder.jit(fn, executors=[FUSER], frontend=frontend)
            torch.testing.assert_close(gradient(compiled, x), gradient(fn, x))
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(factor,)) for factor in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert not is_fx_symbolic_tracing()


def test_another_thread_runs_what_is_compiled_meanwhile():
    compiled = torch.compile(lambda x: x * 2 + 1, backend="eager")
    compiled(torch.ones(3))
    failures: list[Exception] = []
    done = threading.Event()

    def run() -> None:
        while not done.is_set():
            try:
                compiled(torch.ones(3))
            except Exception as failure:
                failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    fused = thunder.jit(lambda x: (x * 7).cos().sum(0) * x.exp(), executors=[FUSER], frontend="functional")
    gradient(fused, torch.randn(6, 9))
    done.set()
    thread.join()
    assert failures == []
