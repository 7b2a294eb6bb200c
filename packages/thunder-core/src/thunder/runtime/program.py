"""A compiled program: the generated functions, and how a call runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.checkpoint import get_device_states

from thunder.ir.trace import Trace
from thunder.passes.decisions import Decision
from thunder.runtime.codegen import explained
from thunder.runtime.library import CompiledRegion
from thunder.runtime.node import Origin, Piece, RandomState


@dataclass
class CompilationRecord:
    """What one compilation did. traces, backward_traces: every stage, first to last. times: seconds by pass.

    decisions: what measuring decided, each different call once. regions: those that are fused, with their numbers of
    calls.
    """

    name: str
    traces: list[Trace] = field(default_factory=list)
    backward_traces: list[Trace] = field(default_factory=list)
    times: dict[str, float] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    regions: Mapping[CompiledRegion, int] = field(default_factory=dict)


class Program:
    """A compiled program. Called with its inputs, it returns the flat list of what the user's program returned.

    numbers: the values of its number parameters, if it has any. written: positions of the inputs that it writes.
    """

    written: tuple[int, ...]
    record: CompilationRecord

    @property
    def needs_alias_guard(self) -> bool:
        """True if it writes into inputs, so that it is valid only while the same inputs share memory."""
        return bool(self.written)

    def __call__(self, tensors: Sequence[torch.Tensor], numbers: Sequence[int] = ()) -> list[Any]:
        raise NotImplementedError


@dataclass(frozen=True)
class PlainProgram(Program):
    """A program without gradients: one generated function.

    It takes its inputs, ``constants`` that were captured, its numbers, and what is ``bound``: states of executors.
    """

    run: Callable[..., list[Any]]
    bound: tuple[Any, ...]
    constants: tuple[torch.Tensor, ...]
    written: tuple[int, ...]
    record: CompilationRecord

    def __call__(self, tensors: Sequence[torch.Tensor], numbers: Sequence[int] = ()) -> list[Any]:
        try:
            return self.run(*tensors, *self.constants, *numbers, *self.bound)
        except Exception as error:
            raise explained(error)  # noqa: B904 (it is the error itself, or has it as its cause)


@dataclass(frozen=True)
class DifferentiableProgram(Program):
    """A program whose results carry autograd history.

    forward returns ``(roots, others, saved)``: results that carry gradients, the others, what backward needs.
    pieces: each with the positions of its roots and of what it saved. epilogue: from the inputs and all forward
    results to the final results, under the caller's autograd. random: positions of one tensor on each device but the
    CPU, if it draws random numbers, else None.
    """

    forward: Callable[..., Any]
    bound: tuple[Any, ...]
    constants: tuple[torch.Tensor, ...]
    pieces: tuple[tuple[Piece, tuple[int, ...], tuple[int, ...]], ...]
    epilogue: Callable[..., list[Any]]
    random: tuple[int, ...] | None
    written: tuple[int, ...]
    record: CompilationRecord

    def __call__(self, tensors: Sequence[torch.Tensor], numbers: Sequence[int] = ()) -> list[Any]:
        tensors = (*tensors, *self.constants)
        origin = Origin(tensors, numbers, self._random_state(tensors), self.written)
        grad_mode = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            roots, others, saved = self.forward(*tensors, *numbers, *self.bound)
            torch._C._set_grad_enabled(True)  # what it made in enable_grad has a history, whatever the caller's mode
            roots = self._attached(roots, saved, origin, tensors)
        except Exception as error:
            raise explained(error)  # noqa: B904 (it is the error itself, or has it as its cause)
        finally:
            torch._C._set_grad_enabled(grad_mode)
        return self.epilogue(*tensors, *numbers, *roots, *others)

    def _random_state(self, tensors: Sequence[torch.Tensor]) -> RandomState | None:
        if self.random is None:
            return None
        return torch.get_rng_state(), *get_device_states(*[tensors[place] for place in self.random])

    def _attached(
        self, roots: Sequence[Any], saved: Sequence[Any], origin: Origin, tensors: Sequence[torch.Tensor]
    ) -> Sequence[Any]:
        """The roots with their autograd nodes."""
        if len(self.pieces) == 1:
            piece = self.pieces[0][0]
            return piece.attach(roots, saved, origin, *[tensors[place] for place in piece.inputs])
        attached = list(roots)
        for piece, root_places, saved_places in self.pieces:
            own = tuple([roots[place] for place in root_places])
            kept = [saved[place] for place in saved_places]
            outs = piece.attach(own, kept, origin, *[tensors[place] for place in piece.inputs])
            for place, out in zip(root_places, outs):
                attached[place] = out
        return attached
