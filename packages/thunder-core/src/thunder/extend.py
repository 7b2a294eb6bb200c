"""What executor packages are written with. Everything here is stable; everything else is not."""

from thunder.errors import OptionError, PluginError
from thunder.ir.effects import Scope, StateKind
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Trace
from thunder.ir.types import TensorType, Var
from thunder.plugins.hookspecs import hookimpl
from thunder.plugins.needs import Cuda, Distribution
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
    "No",
    "Op",
    "Option",
    "OptionError",
    "PluginError",
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
    "recording",
    "resolve",
    "symbol",
]
