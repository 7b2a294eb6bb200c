"""What executor packages are written with. Everything here is stable; everything else is not."""

from collections.abc import Mapping
from typing import Any

from thunder.errors import OptionError, PluginError
from thunder.ir.effects import Scope, StateKind
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Trace
from thunder.ir.tree import leaves, map_tree
from thunder.ir.types import Number, NumberType, TensorType, Var, contiguous_strides
from thunder.plugins.hookspecs import hookimpl
from thunder.plugins.needs import Cuda, Distribution, Modules, Probe
from thunder.plugins.spec import (
    Check,
    CheckResult,
    Claim,
    ClaimContext,
    Executor,
    Fuser,
    Grad,
    No,
    Op,
    Option,
    Reads,
    Transform,
    Updates,
    Writes,
    Yes,
    resolve,
)
from thunder.plugins.symbols import ExecutorSymbol, recording, symbol

__all__ = [
    "BoundSymbol",
    "Check",
    "CheckResult",
    "Claim",
    "ClaimContext",
    "Cuda",
    "Distribution",
    "Executor",
    "ExecutorSymbol",
    "Fuser",
    "Grad",
    "Modules",
    "No",
    "Number",
    "NumberType",
    "Op",
    "Option",
    "OptionError",
    "PluginError",
    "Probe",
    "Reads",
    "Scope",
    "StateKind",
    "TensorType",
    "Trace",
    "Transform",
    "Updates",
    "Var",
    "Writes",
    "Yes",
    "contiguous_strides",
    "evaluated",
    "fake_mode",
    "hookimpl",
    "leaves",
    "map_tree",
    "number_params",
    "recording",
    "resolve",
    "stand_in",
    "symbol",
    "to_torch",
]


def to_torch(leaf: Any) -> Any:
    """What torch takes for an argument of a trace that is no variable: its dtypes, devices and layouts for theirs."""
    from thunder.lang import values  # imports torch, which plugins are listed without

    return values.to_torch(leaf)


def number_params() -> tuple[Var, ...]:
    """The parameters that are numbers: of the region that is compiled, or of the operation that is asked about."""
    from thunder.lang import numbers

    known = numbers.compiled()
    return tuple(known.params) if known is not None else ()


def stand_in(param: Var) -> Any:
    """What computes in place of a region's parameter while it is compiled, under ``fake_mode()``.

    A fake tensor of its type, or for a number ``torch.SymInt``: what is asked about that becomes a condition of the
    region.
    """
    from thunder.lang import values

    return values.stand_in(param)


def evaluated(number: Number, given: Mapping[str, Any]) -> Any:
    """What a number of a region is for values of the region's number parameters, which may be symbolic, by name."""
    from thunder.lang import numbers

    return numbers.evaluated(number, given)


def fake_mode() -> Any:
    """The mode of the fake tensors of the region that is being compiled, or of the operation that is asked about."""
    from thunder.lang import numbers

    return numbers.fake_mode()
