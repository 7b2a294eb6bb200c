"""The intermediate representation: values, operations, effects, traces; their order, rules and text."""

from thunder.ir.deps import consumers, deps, last_uses, producers, reorder
from thunder.ir.effects import MEMORY, RANDOM, Access, Effect, Scope, StateKind
from thunder.ir.printer import program_text
from thunder.ir.symbol import BoundSymbol, Phase, Refusal, Selection, Source, Symbol
from thunder.ir.trace import Names, Stage, Trace
from thunder.ir.types import Const, Number, NumberType, OpaqueType, Ref, TensorType, Type, Var
from thunder.ir.verify import verify, verify_effects, verify_schedule

__all__ = [
    "MEMORY",
    "RANDOM",
    "Access",
    "BoundSymbol",
    "Const",
    "Effect",
    "Names",
    "Number",
    "NumberType",
    "OpaqueType",
    "Phase",
    "Ref",
    "Refusal",
    "Scope",
    "Selection",
    "Source",
    "Stage",
    "StateKind",
    "Symbol",
    "TensorType",
    "Trace",
    "Type",
    "Var",
    "consumers",
    "deps",
    "last_uses",
    "producers",
    "program_text",
    "reorder",
    "verify",
    "verify_effects",
    "verify_schedule",
]
