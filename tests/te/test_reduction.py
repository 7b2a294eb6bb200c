"""Scales over processes: one reduction per direction and step, equal scales, no process waits for an unused layer."""

from __future__ import annotations

import datetime
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import thunder
import thunder.errors
import thunder_te
from tests.te.fp8 import History
from thunder_te.plugin import TE

ROWS, WIDTH, STEPS = 8, 16, 4
ROOT = Path(__file__).parents[2]


class Net(nn.Module):
    """Three layers, of which ``route`` says which run."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.route = (0, 1, 2)

    def forward(self, x):
        for n in self.route:
            x = self.layers[n](x).tanh()
        return x


def routes(scenario: str, rank: int, step: int) -> tuple[int, ...]:
    if scenario == "unused":
        return (0, 1, 2) if (rank + step) % 2 else (0, 2)
    if scenario == "late" and step >= 2 and rank == 0:
        return (0, 1, 2)
    return (0, 1) if scenario == "late" else (0, 1, 2)


def inputs(rank: int, step: int) -> torch.Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(100 * rank + step)) * (1 + rank)


def run(rank: int, world: int, scenario: str, frontend: str, folder: str) -> None:
    """What one process does; it leaves its findings in a file."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    module = Net()
    jitted = thunder.jit(module, executors=[TE, ...], frontend=frontend)
    groups = [dist.new_group(list(range(n, world, 2))) for n in range(2)]
    group = groups[rank % 2] if scenario == "group" else None
    recipe = thunder_te.DelayedScaling(amax_history_len=3, reduce_amax=scenario != "local")
    counts, found = [], []
    all_reduce = dist.all_reduce
    dist.all_reduce = lambda *args, **kwargs: counts.append(1) or all_reduce(*args, **kwargs)
    for step in range(STEPS):
        module.route = routes(scenario, rank, step)
        module.zero_grad()
        counts.clear()
        idle = scenario == "idle" and rank == 1 and step == 1  # it has no data of its own
        with thunder_te.autocast(recipe=recipe, amax_reduction_group=group):
            (jitted(inputs(0 if idle else rank, step)).square().mean() * (not idle)).backward()
            if rank == 0:
                with torch.no_grad():  # evaluation on one process alone
                    jitted(inputs(7, step))
        found.append((len(counts), jitted.executor_state_dict()))
        for p in module.parameters():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            all_reduce(p.grad)
        with torch.no_grad():
            for p in module.parameters():
                p -= 0.1 * p.grad
    Path(folder, f"rank{rank}").write_bytes(pickle.dumps(found))
    dist.destroy_process_group()


def leave_alone(rank: int, world: int, scenario: str, frontend: str, folder: str) -> None:
    """The first process trains, the others do not; it leaves the error that it gets."""
    timeout = datetime.timedelta(seconds=5)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=world, timeout=timeout)
    error = None
    if rank == 0:
        jitted = thunder.jit(Net(), executors=[TE, ...], frontend=frontend)
        try:
            with thunder_te.autocast(recipe=thunder_te.DelayedScaling()):
                jitted(inputs(0, 0))
        except thunder.errors.ExecutionError as caught:
            error = str(caught)
    Path(folder, f"rank{rank}").write_bytes(pickle.dumps(error))
    while not all(Path(folder, f"rank{other}").exists() for other in range(world)):
        time.sleep(0.1)
    os._exit(0)  # threads of a process group that failed may abort a regular exit


def processes(world: int, scenario: str, frontend: str, folder: Path, what: str = "run") -> list[Any]:
    code = (
        f"import sys; from tests.te.test_reduction import {what}; r, w, *a = sys.argv[1:]; {what}(int(r), int(w), *a)"
    )
    path = os.pathsep.join([str(ROOT), *sys.path])
    env = {**os.environ, "PYTHONPATH": path, "THUNDER_STRICT": "1", "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(rank), str(world), scenario, frontend, str(folder)],
            env=env,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        for process in running:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors[-3000:]
    finally:
        for process in running:
            process.kill()
    return [pickle.loads(Path(folder, f"rank{rank}").read_bytes()) for rank in range(world)]


def same(a, b) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize(("world", "frontend"), [(2, "functional"), (2, "dynamo"), (4, "functional")])
def test_scales_are_equal_everywhere(world, frontend, tmp_path):
    found = processes(world, "all", frontend, tmp_path)
    history = History(3, 448.0)
    for step in range(STEPS):
        assert [ranks[step][0] for ranks in found] == [2] * world
        for other in found[1:]:
            same(other[step][1], found[0][step][1])
        history.step(max(inputs(rank, step).abs().max().item() for rank in range(world)))
        first = found[0][step][1]["layers.0.weight"]["te.forward"]
        assert first["scale"][0].item() == history.scale
        assert first["amax_history"][:, 0].tolist() == history.values


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["unused", "late"])
def test_a_layer_that_is_unused_on_some_processes_hangs_none(scenario, tmp_path):
    found = processes(2, scenario, "functional", tmp_path)
    for step in range(STEPS):
        assert [ranks[step][0] for ranks in found] == [2, 2]
        for site in ("layers.0.weight",):
            same(found[0][step][1][site], found[1][step][1][site])
    assert "layers.2.weight" in found[0][-1][1]


@pytest.mark.slow
def test_a_process_without_data_takes_part(tmp_path):
    """With a loss that counts for nothing: its gradients are zero, and the largest of zero and others is theirs."""
    found = processes(2, "idle", "functional", tmp_path)
    for step in range(STEPS):
        assert [ranks[step][0] for ranks in found] == [2, 2]
        same(found[0][step][1], found[1][step][1])


@pytest.mark.slow
def test_a_process_that_is_left_alone_gets_an_error(tmp_path):
    error, _ = processes(2, "", "functional", tmp_path, "leave_alone")
    assert "the scales of the forward step were not reduced over 2 processes" in error
    assert "multiply the loss by zero" in error


@pytest.mark.slow
def test_scales_of_groups(tmp_path):
    found = processes(4, "group", "functional", tmp_path)
    same(found[0], found[2])
    same(found[1], found[3])
    assert found[0][-1][0] == 2
    scales = [ranks[-1][1]["layers.0.weight"]["te.forward"]["scale"][0].item() for ranks in found]
    assert scales[0] != scales[1]


@pytest.mark.slow
def test_without_reduction_there_is_no_collective(tmp_path):
    found = processes(2, "local", "functional", tmp_path)
    assert [count for ranks in found for count, _ in ranks] == [0] * (2 * STEPS)
    scales = [ranks[-1][1]["layers.0.weight"]["te.forward"]["scale"][0].item() for ranks in found]
    assert scales[0] != scales[1]
