"""What a plugin is made of: frozen data, with heavy code named by ``"module:attribute"`` strings.

The strings are resolved on first use, so that a specification can be listed, validated, hashed and printed on a
machine where the code behind it does not import.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Hashable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from thunder.errors import PluginError
from thunder.ir.effects import Access, StateKind
from thunder.plugins.needs import Need

SUPPORTED_API = frozenset({1})
"""Versions of this contract that the core understands."""


@functools.cache
def resolve(text: str) -> Any:
    """The object that a ``"module:attribute"`` string names; the attribute may be dotted. Raises PluginError."""
    module, _, attribute = text.partition(":")
    try:
        return attrgetter(attribute)(importlib.import_module(module))
    except Exception as error:
        raise PluginError(
            f"{text!r} does not resolve",
            where=text,
            why=f"{type(error).__name__}: {error}",
            fix="make the string name an attribute of a module that imports here",
        ) from error


@dataclass(frozen=True)
class Yes:
    """The executor runs this call.

    detail: what it runs it with, if that varies; ``thunder.explain`` shows it.
    candidates: the names of the ways in which it can run it, if there are several, the likely best first. The rules
        get the chosen one as ``cx.choice``: the first, or under ``select="measure"`` the fastest.
    """

    detail: str = ""
    _: KW_ONLY
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True)
class No:
    """The executor does not run this call, because of ``reason``. Users read it in ``thunder.explain``."""

    reason: str


@dataclass(frozen=True)
class Touch:
    """An access of an operation to a state kind of its executor. Use one of the three subclasses."""

    kind: str
    access: ClassVar[Access]


class Reads(Touch):
    """The operation reads the state."""

    access = Access.READ


class Updates(Touch):
    """The operation accumulates into the state: updates commute with each other."""

    access = Access.UPDATE


class Writes(Touch):
    """The operation changes the state in a way that keeps its place among all other accesses."""

    access = Access.WRITE


@dataclass(frozen=True)
class Op:
    """A symbol that the executor can run.

    name: dotted, under the executor's name (``"example.gelu"``).
    impl: what runs: called with the arguments, and with ``states=(instance, ...)`` in the order of ``effects`` if it
        touches states that have instances. The closer of a state kind is called with all that were touched, and
        returns None.
    meta: what runs on fake tensors to find the types of the results; ``impl`` itself if absent.
    effects: the state kinds that it touches: the executor's own, and ``"torch.random"`` if it moves a generator.
    """

    name: str
    _: KW_ONLY
    impl: str
    meta: str | None = None
    effects: tuple[Touch, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Grad:
    """A pair of rules, written with torch calls and the executor's own symbols.

    forward: ``(*args, **kwargs) -> (out, saved)``; saved is a tuple of tensors and plain Python values. If it has a
        keyword-only parameter ``cx``, it is given what the check was given.
    backward: ``(saved, *grads) -> gradients``, one for each tensor argument, None where there is none.
    """

    forward: str
    backward: str


@dataclass(frozen=True)
class ClaimContext:
    """What a check and rules may depend on besides the arguments.

    options: the executor's own, by short name. needs_grad: one flag for each tensor argument.
    cache_key: the value of the executor's ``cache_key`` for this run.
    grad_mode: the program is compiled with grad mode on, whether or not this call needs gradients.
    measured: what can run the call is timed: what would refuse because it expects to be slower says yes.
    choice: for rules, which of the candidates that the check named is to run; empty if it named none.
    """

    _: KW_ONLY
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    needs_grad: tuple[bool, ...] = ()
    cache_key: Hashable = None
    grad_mode: bool = True
    measured: bool = False
    choice: str = ""

    @property
    def training(self) -> bool:
        """True if any argument needs a gradient."""
        return any(self.needs_grad)


@dataclass(frozen=True)
class Claim:
    """What the executor can run: calls of ``target`` that ``check`` accepts.

    target: a canonical torch symbol (``"torch.nn.functional.linear"``) or an ATen operator (``"aten.mm"``); or a
        *chain*, several torch symbols (``("torch.nn.functional.linear", "torch.nn.functional.gelu")``): calls of which
        each is all that reads what the one before it returned, as its first argument.
    check: ``(cx: ClaimContext, *args, **kwargs) -> Yes() | No(reason)``, with a TensorType for each tensor; absent:
        always yes. In a program for many sizes some are ``torch.SymInt``: what is asked about them becomes a condition
        of the program. Where the check raises for that, the program is compiled for each size on its own.
    lower: a function of the target's arguments (and ``cx``, as in ``Grad``), used when no gradient is needed; absent:
        the target runs as it is. Where the target draws random numbers, a derivative of its derivative is taken
        through ``lower``, which so draws the same numbers as the rules in ``grad``.
    grad: used when a gradient is needed; absent: the derivative is the target's own.

    A chain is one call where no gradient is needed and none of its calls has an effect. (A derivative reads the values
    between the calls, which are what it does without: in training its calls stay apart, each with its own.) It needs
    ``lower`` and has no ``grad``. Its rules take what ``thunder.prims.structural.chain`` takes: the first function
    before its arguments, and for the others ``then=((function, arguments but the first, keywords), ...)``. It comes
    before what the executor, or a later one, claims of its calls; what an earlier one claims stays apart.
    """

    target: str | tuple[str, ...]
    _: KW_ONLY
    check: str | None = None
    lower: str | None = None
    grad: Grad | None = None

    def ask(self, cx: ClaimContext, *args: Any, **kwargs: Any) -> Yes | No:
        """The answer of ``check`` to one call. Raises PluginError if it raises or answers anything else."""
        if self.check is None:
            return Yes()
        try:
            answer = resolve(self.check)(cx, *args, **kwargs)
        except Exception as error:
            raise self._bad_check(f"it raised {type(error).__name__}: {error}") from error
        if isinstance(answer, Yes) and isinstance(answer.candidates, tuple):
            return answer
        if isinstance(answer, No) and answer.reason:
            return answer
        raise self._bad_check(f"it returned {answer!r}")

    def _bad_check(self, why: str) -> PluginError:
        fix = 'return Yes() or No("the reason") for every call of the target'
        return PluginError(f"the check of the claim on {self.target} failed", where=self.check or "", why=why, fix=fix)


@dataclass(frozen=True, kw_only=True)
class Fuser:
    """What makes an executor a fuser: it runs regions of a program, several ATen operations, as one.

    The core finds the regions, asks ``pays`` about each, and has each *different* one compiled once in a process: a
    region's names are canonical, so that equal ones are equal traces whatever layer or program they come from.
    ``cx`` is the ``ClaimContext`` of the executor (``options``, ``cache_key``).

    supports: ``(cx, op: BoundSymbol) -> Yes() | No(reason)``: whether an operation may be part of a region. With
        ``cx.measured``: of one that is timed, which matters for what is refused without (a matrix product, say).
    compile: ``(cx, region: Trace) -> callable``, or a ``concurrent.futures.Future`` of one where it is compiled in the
        background: all regions of a program are started before the first is waited for. The callable takes the
        region's parameters by position and returns a tuple of its results. If either raises, the region runs unfused.
    pays: ``(cx, region: Trace) -> Yes() | No(reason)``: whether to fuse a region; absent: wherever the core would.
    alone: ``(cx, op: BoundSymbol) -> Yes() | No(reason)``: whether an operation that is in no region with others runs
        faster as a region of its own than by PyTorch; absent: none does. One that moves little is not worth it anyway.
    show: ``(cx, region: Trace) -> str``: what the region compiles to, for people; absent: nothing to see.
    absorbs: the names of the state kinds whose effects a region may hold; operations with others stay outside.
    symbolic: its regions may have sizes known only at run time; without it, operations on such sizes stay outside.
    overhead: microseconds that a call of what it compiles takes beyond a call of a PyTorch operator, without its work.

    What is asked of it: ``supports`` sees ATen operations (``op.sym.name`` is ``"aten.…"``), views included, and calls
    of the executor's own symbols, which count as cheap as arithmetic; their tensors have elements, and equal calls of
    a program are asked for once. A region holds its own views of what it reads
    and makes; its results are never views, and are distinct. Each has the type of its variable in
    ``region.result``, strides included, and owns its memory. Types in a region never say ``requires_grad``.
    The parameters in ``region.spent`` are dead after it: the callable may write into their memory, and return it, the
    argument itself or a tensor that is no view of it for autograd.
    Under ``select="measure"`` a region is timed against its operations one by one, and a region may be one operation.
    What ``supports`` accepts only with ``cx.measured`` makes no region: it may join the one that alone reads its
    results, and does where that is faster than the two apart.
    If it is ``symbolic``, sizes, strides and arguments may be ``Number``: an expression over the region's last
    parameters, of ``NumberType``, which are integers from 2 on. ``thunder.extend.stand_in`` makes symbolic integers of
    these (for ``supports``, of ``number_params()``), and fakes of the others. What is asked about symbolic integers
    until a region is compiled, and that its tensors have elements, is tested before each call of what it compiled to:
    for sizes that do not fit, it is compiled again.
    The core asks ``pays`` where its own model (bytes moved, calls, peak memory) says that the region is worth it.
    Each executor with a fuser has an integer option ``fuel``, which ``cx.options`` does not show: at most so many
    regions of a program are fused. What the callable raises when it runs is told as a warning, and from then on the
    region runs unfused, so that errors of the user's program stay what they are.
    """

    supports: str
    compile: str
    pays: str | None = None
    alone: str | None = None
    show: str | None = None
    absorbs: tuple[str, ...] = ()
    symbolic: bool = False
    overhead: float = 3.0


@dataclass(frozen=True)
class Option:
    """An option of an executor; users set it as ``"executor.name"``.

    A default of None means unset, and then None is also accepted as a value.
    """

    name: str
    type: type[bool] | type[int] | type[float] | type[str]
    default: Any
    help: str
    _: KW_ONLY
    choices: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Executor:
    """Something that can run operations.

    name: lower case letters, digits and underscores; the prefix of its symbols, state kinds and options.
    api: the version of this contract it is written for. summary: one line for ``thunder plugins``.
    needs: what must be there for it to be available.
    fuser: how it runs regions of what nobody before it claims; absent: it runs single operations only.
    cache_key: ``(options) -> hashable``, called at each run; its value is part of what a compilation depends on.
    default: active without being named; only for executors with ``numerics="exact"``.
    numerics: ``"exact"`` if results are within the usual tolerances of eager PyTorch.
    before: executors that it comes before in the default order; a user's order overrides it.
    """

    _: KW_ONLY
    name: str
    api: int = 1
    summary: str = ""
    needs: tuple[Need, ...] = ()
    symbols: tuple[Op, ...] = ()
    states: tuple[StateKind, ...] = ()
    claims: tuple[Claim, ...] = ()
    fuser: Fuser | None = None
    options: tuple[Option, ...] = ()
    cache_key: str | None = None
    default: bool = False
    numerics: Literal["exact", "approximate"] = "exact"
    before: tuple[str, ...] = ()

    def op(self, name: str) -> Op | None:
        """Its symbol of that full name, if it has one."""
        return self._ops.get(name)

    def state(self, kind: str) -> StateKind | None:
        """Its state kind of that full name, if it has one."""
        return self._states.get(kind)

    def claim(self, target: str | tuple[str, ...]) -> Claim | None:
        """Its claim on a target, if it has one."""
        return self._claims.get(target)

    def key(self, options: Mapping[str, Any]) -> Hashable:
        """The value of ``cache_key`` now; None if it has none."""
        return resolve(self.cache_key)(options) if self.cache_key else None

    @functools.cached_property
    def _ops(self) -> dict[str, Op]:
        return {op.name: op for op in self.symbols}

    @functools.cached_property
    def _states(self) -> dict[str, StateKind]:
        return {state.name: state for state in self.states}

    @functools.cached_property
    def _claims(self) -> dict[str | tuple[str, ...], Claim]:
        return {claim.target: claim for claim in self.claims}


@dataclass(frozen=True)
class Transform:
    """A pass that users ask for by name. apply: ``(Trace) -> Trace`` on the functional trace of a program."""

    name: str
    _: KW_ONLY
    summary: str
    apply: str


@dataclass(frozen=True)
class CheckResult:
    """The outcome of a health check: what was found, and what to do if it is not ok."""

    ok: bool
    message: str
    fix: str = ""


@dataclass(frozen=True)
class Check:
    """A health check for ``thunder doctor``. run: ``() -> CheckResult``."""

    name: str
    _: KW_ONLY
    run: str
