"""What executor packages are written with. Everything here is stable; everything else is not."""

from typing import Any

from thunder.errors import OptionError, PluginError
from thunder.ir.effects import Scope, StateKind
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Trace
from thunder.ir.tree import leaves, map_tree
from thunder.ir.types import TensorType, Var
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
    "hookimpl",
    "leaves",
    "map_tree",
    "recording",
    "resolve",
    "symbol",
    "to_torch",
]


def to_torch(leaf: Any) -> Any:
    """What torch takes for an argument of a trace that is no variable: its dtypes, devices and layouts for theirs."""
    from thunder.lang import values  # imports torch, which plugins are listed without

    return values.to_torch(leaf)
