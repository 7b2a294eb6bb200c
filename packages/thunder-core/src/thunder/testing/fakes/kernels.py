"""What runs, and the state that it keeps."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch


@dataclass(eq=False)
class Scales:
    """What one call of a layer has seen: ``pending`` since it was last closed, the largest of each step in ``history``.

    of: the name of the call. updates, closes: how often it was updated and closed. read: what the backward saw of the
    forward's updates.
    """

    of: str = ""
    updates: int = 0
    closes: int = 0
    read: int = 0
    pending: list[float] = field(default_factory=list)
    history: list[float] = field(default_factory=list)

    def update(self, *seen: torch.Tensor) -> None:
        """See some tensors."""
        self.updates += 1
        self.pending.append(max((t.abs().max().item() for t in seen if t.numel()), default=0.0))

    def close(self) -> None:
        """End a step. Raises RuntimeError if nothing was seen in it."""
        if not self.pending:
            raise RuntimeError("a state was closed that no operation had touched")
        self.closes += 1
        self.history.append(max(self.pending))
        self.pending.clear()


CALLS: list[tuple[str, tuple[Scales, ...]]] = []
"""Every call of a closer, with the states that it closed."""


def linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return torch.nn.functional.linear(input, weight, bias)


def linear_fwd(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, states: tuple[Scales]
) -> torch.Tensor:
    states[0].update(input, weight)
    return linear(input, weight, bias)


def linear_gradients(
    grad: torch.Tensor, input: torch.Tensor, weight: torch.Tensor, wanted: tuple[bool, bool, bool]
) -> list[torch.Tensor | None]:
    """The gradients of input, weight and bias; None for those not wanted."""
    rows, columns = grad.reshape(-1, weight.shape[0]), input.reshape(-1, weight.shape[1])
    return [
        (rows @ weight).reshape(input.shape) if wanted[0] else None,
        rows.t() @ columns if wanted[1] else None,
        rows.sum(0) if wanted[2] else None,
    ]


def linear_bwd(
    grad: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    wanted: tuple[bool, bool, bool],
    states: tuple[Scales, Scales],
) -> list[torch.Tensor | None]:
    forward, backward = states
    backward.update(grad)
    backward.read = forward.updates
    return linear_gradients(grad, input, weight, wanted)


def sync_forward(*states: Scales) -> None:
    _close("fake.sync_forward", states)


def sync_backward(*states: Scales) -> None:
    _close("fake.sync_backward", states)


def _close(name: str, states: tuple[Scales, ...]) -> None:
    CALLS.append((name, states))
    for state in states:
        state.close()
