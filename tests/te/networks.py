"""Random networks of linear layers for FP8: shared, branching, unused, frozen, checkpointed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

LAYERS, WIDTH, ROWS = 3, 16, 8
STEPS = [*("layer0", "layer1", "layer2") * 2, "tanh", "again", "restart", "dead", "detach"]


@dataclass(frozen=True)
class Block:
    """steps: what happens to the running value. kept: its result is one of the network's. checkpointed: recomputed."""

    steps: tuple[str, ...]
    kept: bool
    checkpointed: bool


@dataclass(frozen=True)
class Spec:
    """frozen: layers whose parameters need no gradient. wanted: which results are back-propagated.

    first: whether the input needs a gradient.
    """

    blocks: tuple[Block, ...]
    frozen: frozenset[int]
    wanted: tuple[bool, ...]
    first: bool

    @property
    def live(self) -> list[int]:
        """The layer of each call whose value reaches a result, in program order."""
        running: list[tuple[int, int, int]] = []
        live: set[tuple[int, int, int]] = set()
        for at, block in enumerate(self.blocks):
            for then, step in enumerate(block.steps):
                if step.startswith("layer"):
                    running.append((at, then, int(step[-1])))
                elif step == "restart":
                    running = []
            if block.kept or at == len(self.blocks) - 1:
                live.update(running)
        return [layer for _, _, layer in sorted(live)]


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    steps = st.lists(st.sampled_from(STEPS), min_size=1, max_size=4).map(tuple)
    blocks = tuple(draw(st.lists(st.builds(Block, steps, st.booleans(), st.booleans()), min_size=1, max_size=3)))
    results = sum(block.kept for block in blocks[:-1]) + 1
    return Spec(
        blocks,
        frozen=frozenset(draw(st.sets(st.integers(0, LAYERS - 1), max_size=2))),
        wanted=tuple(draw(st.lists(st.booleans(), min_size=results, max_size=results))),
        first=draw(st.booleans()),
    )


class Network(nn.Module):
    """Runs a spec: (rows, WIDTH) to a tuple of (rows, WIDTH)."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=n != 1) for n in range(LAYERS))
        for n in spec.frozen:
            self.layers[n].requires_grad_(False)
        self.blocks = spec.blocks

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        value, results = x * 1, []
        for at, block in enumerate(self.blocks):
            if block.checkpointed:
                value = checkpoint(self.run, block.steps, value, x, use_reentrant=False)
            else:
                value = self.run(block.steps, value, x)
            if block.kept and at < len(self.blocks) - 1:
                results.append(value)
        return (*results, value + 0)

    def run(self, steps: tuple[str, ...], value: Tensor, x: Tensor) -> Tensor:
        for step in steps:
            if step.startswith("layer"):
                value = self.layers[int(step[-1])](value)
            elif step == "again":
                value = value + x
            elif step == "restart":
                value = x * 2
            elif step == "dead":
                self.layers[0](value).relu()
            else:
                value = getattr(value, step)()
        return value


def train(module: nn.Module, spec: Spec, seed: int = 1) -> list[Tensor]:
    """Results and gradients (of the input and every parameter; zeros where there is none) of one training step."""
    x = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed)).requires_grad_(spec.first)
    module.zero_grad()
    results = module(x)
    loss = [r.square().sum() for r, wanted in zip(results, spec.wanted, strict=True) if wanted and r.requires_grad]
    if loss:
        sum(loss).backward()
    gradients = [t.grad if t.grad is not None else torch.zeros(()) for t in (x, *module.parameters())]
    return [*(r.detach() for r in results), *gradients]
