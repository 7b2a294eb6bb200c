"""Symbols and bound symbols: what is called, and one call of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from thunder.ir import tree
from thunder.ir.effects import RANDOM, Effect
from thunder.ir.types import Number, TensorType, Var

if TYPE_CHECKING:
    from thunder.ir.trace import Trace


class Phase(Enum):
    """When an operation runs: with the call, with back-propagation, or after the call under the caller's autograd."""

    FORWARD = "forward"
    BACKWARD = "backward"
    EPILOGUE = "epilogue"


@dataclass(frozen=True, slots=True)
class Symbol:
    """The name of an operation: ``torch.nn.functional.linear`` (a composite), ``aten.mm`` (a prim), ``mine.linear``."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Source:
    """A line of the user's program."""

    file: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An executor that was asked to run an operation and said no."""

    executor: str
    reason: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Who runs an operation, and who was asked before.

    executor: name of the executor.
    claim: the executor's claim (``thunder.plugins.spec.Claim``), or None where it runs the operation as it stands.
    site: the name of the claimed call: what the executor's states belong to. It is the same in every specialisation of
        the program.
    context: what the claim was asked with (``thunder.plugins.spec.ClaimContext``). detail: what it answered beyond yes.
    """

    executor: str
    claim: Any = None
    refusals: tuple[Refusal, ...] = ()
    site: str = ""
    context: Any = None
    detail: str = ""

    @property
    def unclaimed(self) -> Selection:
        """Who runs the operations that a claimed call is made of: no longer the call that the claim is about."""
        return replace(self, claim=None) if self.claim is not None else self


@dataclass(frozen=True)
class BoundSymbol:
    """One call: a symbol bound to arguments and results.

    args, kwargs: trees of variables and constants, bound to the symbol's signature.
    outs: tree of variables (and None where a result is not a tensor).
    effects: what it touches besides; every effect with a handle has that handle among the arguments.
    call: ``"module:attribute"`` of the callable that runs this line; set when the operation is lowered.
    region: the activation-checkpointing region it was recorded in, if any.
    fused: the operations that it runs as one, for a call of a fuser: from its arguments to a tuple of its results.
    """

    sym: Symbol
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    outs: Any = None
    effects: tuple[Effect, ...] = ()
    phase: Phase = Phase.FORWARD
    selection: Selection | None = None
    call: str | None = None
    source: Source | None = None
    region: str | None = None
    fused: Trace | None = None

    @cached_property
    def inputs(self) -> tuple[Var, ...]:
        """The different variables it reads."""
        return tree.variables((self.args, self.kwargs))

    @cached_property
    def is_symbolic(self) -> bool:
        """True if an argument, or a size of a tensor, is a number known only at run time."""
        if any(isinstance(v.type, TensorType) and v.type.is_symbolic for v in (*self.inputs, *self.outputs)):
            return True
        return any(isinstance(leaf, Number) for leaf in tree.leaves((self.args, self.kwargs)))

    @property
    def is_claimed(self) -> bool:
        """True if an executor has a claim on it, so that it does not run as it stands."""
        return self.selection is not None and self.selection.claim is not None

    @property
    def draws(self) -> bool:
        """True if it draws random numbers."""
        return any(effect.state is RANDOM for effect in self.effects)

    @cached_property
    def outputs(self) -> tuple[Var, ...]:
        """The different variables it makes."""
        return tree.variables(self.outs)

    def with_facts(self, **facts: Any) -> BoundSymbol:
        """The same call on the same arguments, with other facts about it: its phase, selection, call or region.

        As ``dataclasses.replace``, but keeps what was found out about arguments and results.
        """
        same = object.__new__(BoundSymbol)
        same.__dict__.update(self.__dict__, **facts)
        return same

    def with_inputs(self, variables: Mapping[Var, Var]) -> BoundSymbol:
        """The call on other variables, by those in whose place they stand; the identical object if it reads none."""
        if variables.keys().isdisjoint(self.inputs):
            return self
        args, kwargs = tree.substitute(self.args, variables), tree.substitute(self.kwargs, variables)
        effects = tuple(replace(e, handle=variables.get(e.handle, e.handle)) if e.handle else e for e in self.effects)
        return replace(self, args=args, kwargs=kwargs, effects=effects)

    def __hash__(self) -> int:
        return hash((self.sym, self.outputs))
