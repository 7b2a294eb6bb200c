"""The scales of one call of a layer in one direction, and the operations that read and update them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thunder_te.context import Precision
from thunder_te.reduction import Reduction
from thunder_te.scaling import resized


class Scaling:
    """Delayed scales: of input and weight in forward, of the gradient in backward.

    scale: float32 [scales]; a new tensor each step, so that what was read stays what it was. history: float32
    [steps, scales], as ``scaling.advance`` describes. pending: the largest values seen since the last step, one for
    each scale, or None. trained: a training step has used it; until then inference calibrates it.
    """

    def __init__(self, of: str, scales: int) -> None:
        self.of = of
        self.scales = scales
        self.precision: Precision | None = None
        self.reduction: Reduction | None = None
        self._start(trained=False)

    def _start(self, trained: bool) -> None:
        self.trained = trained
        self.pending: list[Tensor] | None = None
        self.scale: Tensor = torch.ones(self.scales)
        self.history: Tensor = torch.zeros(1, self.scales)

    def prepare(self, precision: Precision, device: torch.device, training: bool) -> Tensor:
        """The scales for a call. The first training step starts anew, so that no evaluation has a part in it."""
        if training and not self.trained:
            self._start(trained=True)
        steps = precision.recipe.amax_history_len
        if len(self.history) != steps:
            self.history = resized(self.history, steps)
        if self.scale.device != device:
            self.scale, self.history = self.scale.to(device), self.history.to(device)
        return self.scale

    def observe(self, amaxes: list[Tensor], precision: Precision, reduction: Reduction) -> None:
        """Take note of the largest values of a call; of several calls in a step, the largest count."""
        self.precision, self.reduction = precision, reduction
        seen = self.pending
        self.pending = amaxes if seen is None else [torch.maximum(a, b) for a, b in zip(seen, amaxes)]

    def state_dict(self) -> dict[str, Any]:
        """Copies of the scales and histories. A step in progress is not part of it."""
        return {"scale": self.scale.clone(), "amax_history": self.history.clone(), "trained": self.trained}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore what ``state_dict`` gave; device and number of steps follow at the next call."""
        self.scale, self.history = saved["scale"].clone(), saved["amax_history"].clone()
        self.trained, self.pending = saved["trained"], None


def forward_scaling(of: str) -> Scaling:
    return Scaling(of, scales=2)


def backward_scaling(of: str) -> Scaling:
    return Scaling(of, scales=1)


def outside_modes(fn: Any) -> Any:
    """State outlives the call: its tensors must not be those of inference mode, nor carry history."""
    return torch.inference_mode(False)(torch.no_grad()(fn))


@outside_modes
def scales(input: Tensor, precision: Precision, training: bool, states: tuple[Scaling]) -> Tensor:
    return states[0].prepare(precision, input.device, training)


@outside_modes
def observe(
    input: Tensor, weight: Tensor, precision: Precision, training: bool, states: tuple[Scaling, Reduction]
) -> None:
    if training or not states[0].trained:
        states[0].observe([input, weight], precision, states[1])


@outside_modes
def grad_scale(grad: Tensor, precision: Precision, states: tuple[Scaling]) -> Tensor:
    return states[0].prepare(precision, grad.device, training=True)


@outside_modes
def observe_grad(grad: Tensor, precision: Precision, states: tuple[Scaling, Reduction]) -> None:
    states[0].observe([grad], precision, states[1])
