"""What executor packages are written with. Everything here is stable; everything else is not."""

from thunder.errors import OptionError, PluginError
from thunder.ir.effects import Scope, StateKind
from thunder.ir.types import TensorType
from thunder.plugins.hookspecs import hookimpl
from thunder.plugins.needs import Cuda, Distribution
from thunder.plugins.spec import (
    Check,
    CheckResult,
    Claim,
    ClaimContext,
    Executor,
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
    "Check",
    "CheckResult",
    "Claim",
    "ClaimContext",
    "Cuda",
    "Distribution",
    "Executor",
    "ExecutorSymbol",
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
    "Transform",
    "Updates",
    "Writes",
    "Yes",
    "hookimpl",
    "recording",
    "resolve",
    "symbol",
]
