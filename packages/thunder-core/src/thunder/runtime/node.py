"""Autograd nodes: where a compiled program hangs in the caller's graph."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

from thunder.runtime.codegen import explained

BackwardFunction = Callable[[list[torch.Tensor]], tuple[torch.Tensor | None, ...]]
"""Takes saved tensors and arriving gradients in a list, which it empties."""

_UNSEEN = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
"""Dynamo compiles neither the function nor what it calls."""


RandomState = tuple[torch.Tensor, list[int], list[torch.Tensor]]
"""State of the CPU's random generator; other devices, and the states of theirs."""


class Origin:
    """What a program ran on, to run it again: tensors, numbers, and the state of the random generator if it drew.

    Tensors with a history are kept, like parameters; others are not kept alive by the graph, as in eager. Of those that
    the program itself writes (``written``: statistics of batch norm), what they were before is kept.
    """

    __slots__ = ("_before", "_references", "_versions", "numbers", "random_state")

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        numbers: Sequence[int],
        random_state: RandomState | None,
        written: Sequence[int] = (),
    ) -> None:
        self.numbers = numbers
        before = {place: tensors[place].clone() for place in written if not tensors[place].requires_grad}
        tensors = [before.get(place, t) for place, t in enumerate(tensors)] if before else tensors
        self._before = tuple(before.values())
        self._references = [t if t.requires_grad else weakref.ref(t) for t in tensors]
        self._versions = [None if t.is_inference() else t._version for t in tensors]
        self.random_state = random_state

    def tensors(self) -> list[torch.Tensor]:
        """The tensors. Raises RuntimeError if one is gone, or has been written into since."""
        kept = (ref() if isinstance(ref, weakref.ref) else ref for ref in self._references)
        found = [t for t in kept if t is not None]
        if len(found) < len(self._references):
            raise RuntimeError(
                "an input of a compiled program was freed before its backward was differentiated: keep the inputs alive"
            )
        versions = [None if t.is_inference() else t._version for t in found]
        if versions != self._versions:
            raise RuntimeError(
                "an input of a compiled program has been modified by an inplace operation, so its backward cannot be "
                "differentiated: clone the input before it is changed"
            )
        return found


class Piece:
    """One independently differentiable part of a program.

    attach(outs, saved, origin, *inputs): the outs with a node behind them that runs the compiled backward program.
    backward: the compiled backward for all gradients; ``partial`` finds the one for some, None if there is none for
    these numbers. replay: the outs, computed again from their origin under the caller's autograd, for derivatives of
    the backward itself. strides: of each out's expected gradient, from the numbers. inputs: positions (among the
    program's tensors) of those that gradients flow to. spent: positions of the saved tensors that backward overwrites.
    """

    def __init__(
        self,
        *,
        backward: BackwardFunction,
        partial: Callable[[tuple[bool, ...], Sequence[int]], tuple[BackwardFunction, Sequence[int]] | None],
        replay: Callable[[Sequence[torch.Tensor], Origin], Sequence[torch.Tensor]],
        inputs: Sequence[int],
        strides: Callable[..., Sequence[tuple[int, ...] | None]],
        spent: Sequence[int] = (),
    ) -> None:
        self.inputs = tuple(inputs)
        self._backward = backward
        self._partial = partial
        self._replay = replay
        self._strides = strides
        self._spent = tuple(spent)
        self.attach = self._node()

    def _node(self) -> Callable[..., tuple[torch.Tensor, ...]]:
        """The ``apply`` of an autograd function, without the checks of its Python wrapper."""
        piece = self

        class Thunder(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, outs: Any, saved: Any, origin: Origin, *inputs: torch.Tensor) -> Any:
                ctx.save_for_backward(*saved)
                ctx.set_materialize_grads(False)
                ctx.origin = origin
                hooked = torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
                ctx.strides = [_stride(t) for t in saved] if hooked else None
                return outs

            @staticmethod
            def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
                if torch.is_grad_enabled():
                    return (None, None, None, *piece.rerun(ctx.origin, gradients))
                box = list(ctx.saved_tensors)
                ctx.maybe_clear_saved_tensors()  # unless the graph is retained; each is then freed as it is consumed
                if ctx.strides is not None:  # hooks may lay tensors out as they like
                    box = [_laid_out(t, stride) for t, stride in zip(box, ctx.strides, strict=True)]
                if ctx.strides is not None or torch._C._autograd._get_current_graph_task_keep_graph():
                    piece.keep(box)
                return (None, None, None, *piece.run(box, gradients, ctx.origin))

        set_code_exec_strategy(Thunder.backward.__code__, _UNSEEN)  # Dynamo may run what calls ``backward()``
        return super(torch.autograd.Function, Thunder).apply

    def keep(self, box: list[Any]) -> None:
        """Replace the saved tensors that backward overwrites, for which others have use, by copies."""
        for place in self._spent:
            box[place] = box[place].clone()

    def run(self, box: list[Any], gradients: Sequence[torch.Tensor | None], origin: Origin) -> Any:
        """The gradients of the inputs, from what was saved and the gradients of the outs (None where none arrived)."""
        backward, saved = self._backward, len(box)
        for gradient, stride in zip(gradients, self._strides(*origin.numbers)):
            if gradient is not None:
                box.append(_laid_out(gradient, stride))
        if len(box) - saved < len(gradients):
            found = self._partial(tuple([g is not None for g in gradients]), origin.numbers)
            if found is None:
                return self.rerun(origin, gradients)
            backward, places = found
            box[:saved] = [box[place] for place in places]
        box.extend(origin.numbers)
        try:
            return backward(box)
        except Exception as error:
            raise explained(error)  # noqa: B904 (it is the error itself, or has it as its cause)

    def rerun(self, origin: Origin, gradients: Sequence[torch.Tensor | None]) -> Any:
        """The same by autograd: the program is run again, so that its own history can be differentiated."""
        differentiable, tensors = torch.is_grad_enabled(), origin.tensors()
        inputs = [tensors[place] for place in self.inputs]
        with torch.enable_grad():
            outs = self._replay(tensors, origin)
            pairs = [(out, g) for out, g in zip(outs, gradients) if g is not None]
            return torch.autograd.grad(
                [out for out, _ in pairs], inputs, [g for _, g in pairs], create_graph=differentiable, allow_unused=True
            )


def _stride(t: torch.Tensor) -> tuple[int, ...] | None:
    return t.stride() if t.layout is torch.strided else None


def _laid_out(t: torch.Tensor, stride: tuple[int, ...] | None) -> torch.Tensor:
    """The tensor with these strides, copied unless it has them; None leaves it as it is."""
    if stride is None or t.stride() == stride:
        return t
    out = torch.empty_strided(t.shape, stride, dtype=t.dtype, device=t.device)
    single = tuple([slice(None) if step else slice(1) for step in stride])  # expanded elements are one in memory
    out[single].copy_(t[single])
    return out
