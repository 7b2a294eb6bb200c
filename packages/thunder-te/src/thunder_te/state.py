"""The scales of one call of a layer in one direction, and the operations that read and update them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thunder_te.precision import Rule
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
        self.rule: Rule | None = None
        self.reduction: Reduction | None = None
        self._start(trained=False)

    def _start(self, trained: bool) -> None:
        self.trained = trained
        self.pending: list[Tensor] | None = None
        self.scale: Tensor = torch.ones(self.scales)
        self.history: Tensor = torch.zeros(1, self.scales)

    def read(self, device: torch.device, training: bool) -> Tensor:
        """The scales for a call."""
        if training and not self.trained:
            return torch.ones(self.scales, device=device)
        return self.scale.to(device)

    def observe(self, amaxes: list[Tensor], rule: Rule, training: bool, reduction: Reduction) -> None:
        """Take note of the largest values of a call; of several calls in a step, the largest count.

        The first training step starts anew, so that no evaluation has a part in it; after it, none counts.
        """
        if self.trained and not training:
            return
        if training and not self.trained:
            self._start(trained=True)
        device, self.rule, self.reduction = amaxes[0].device, Rule(*rule), reduction
        self.scale, self.history = self.scale.to(device), resized(self.history.to(device), self.rule.steps)
        seen = self.pending
        self.pending = amaxes if seen is None else [torch.maximum(a, b) for a, b in zip(seen, amaxes)]

    def state_dict(self) -> dict[str, Any]:
        """Copies of the scales and histories. A step in progress is not part of it."""
        return {"scale": self.scale.clone(), "amax_history": self.history.clone(), "trained": self.trained}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore what ``state_dict`` gave; they move to the device of the next call."""
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
def scales(input: Tensor, training: bool, states: tuple[Scaling]) -> Tensor:
    return states[0].read(input.device, training)


@outside_modes
def observe(input: Tensor, weight: Tensor, rule: Rule, training: bool, states: tuple[Scaling, Reduction]) -> None:
    states[0].observe([input, weight], rule, training, states[1])


@outside_modes
def grad_scale(grad: Tensor, states: tuple[Scaling]) -> Tensor:
    return states[0].read(grad.device, training=True)


@outside_modes
def observe_grad(grad: Tensor, rule: Rule, states: tuple[Scaling, Reduction]) -> None:
    states[0].observe([grad], rule, True, states[1])
