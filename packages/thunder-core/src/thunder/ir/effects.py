"""State and effects: what an operation reads and changes besides its arguments and results.

A *sync token* is a state kind with a ``close`` symbol: when operations that survived to the end touched the state,
``passes.schedule`` owes its closer exactly once, after the last update and before the result. Nothing inserts one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from thunder.ir.types import Var


class Access(Enum):
    """How an operation touches a state. UPDATE commutes with UPDATE (an accumulation); WRITE is exclusive."""

    READ = "read"
    UPDATE = "update"
    WRITE = "write"


class Scope(Enum):
    """What one instance of a state belongs to: one call site, one trace, or the whole process."""

    CALLSITE = "callsite"
    TRACE = "trace"
    PROCESS = "process"


@dataclass(frozen=True, kw_only=True)
class StateKind:
    """A kind of state.

    name: dotted, under the prefix of the executor that owns it (``"mine.scales"``).
    init: ``"module:function"`` that makes a new instance, given the name of what it belongs to (a call site; empty for
        a whole function); None where the state is ambient (a process-wide generator). Instances with ``state_dict()``
        and ``load_state_dict(saved)`` are saved and restored with the jitted module.
    close: name of the symbol that closes the state; it is called with all touched handles and returns nothing.
    closes: who closes an instance, by phase: the ``"last"`` or the ``"first"`` that touches it, or ``"each"``.
    recompute: what recomputation in the backward phase may do with an operation that touches the state: ``"forbid"``
        it, ``"replay"`` it (touching the state again) or run it against the ``"same"`` snapshot without touching it.
        What is replayed is closed by each backward program that replays it; while none runs, it stays open.
    """

    name: str
    init: str | None = None
    scope: Scope = Scope.PROCESS
    close: str | None = None
    closes: Literal["last", "first", "each"] = "last"
    recompute: Literal["forbid", "replay", "same"] = "forbid"


@dataclass(frozen=True)
class Effect:
    """One access to one state. ``handle`` is the variable that holds the instance; None for ambient process state."""

    state: StateKind
    access: Access
    handle: Var | None = None

    @property
    def resource(self) -> tuple[str, Var | None]:
        """What two effects must share to be able to conflict."""
        return (self.state.name, self.handle)

    def conflicts(self, other: Effect) -> bool:
        """True if the two accesses must keep their order."""
        if self.resource != other.resource:
            return False
        return self.access is not other.access or self.access is Access.WRITE


RANDOM = StateKind(name="torch.random", recompute="forbid")
"""The random generators. Each draw moves them, and draws do not commute: two draws keep their order."""

MEMORY = StateKind(name="torch.memory", recompute="forbid")
"""The storage of a tensor argument: writing results back into the caller's tensors."""
