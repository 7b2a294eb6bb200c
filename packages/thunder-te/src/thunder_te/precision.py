"""A recipe in force, and what it means for operations: plain values, which the text of a trace can show."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, NamedTuple

from thunder_te import recipes

Role = Literal["input", "weight", "grad"]
Direction = Literal["forward", "backward"]

How = tuple[Any, ...]
"""How a tensor becomes FP8: ``("delayed", format)`` with a scale that is given, ``("current", format, epsilon,
power_2_scale)``, or ``("mxfp8", format)``; the format is ``"E4M3"`` or ``"E5M2"``."""

LARGEST = {"E4M3": 448.0, "E5M2": 57344.0}
"""The largest values of the formats."""

_SCHEMES = {"DelayedScaling": "delayed", "Float8CurrentScaling": "current", "MXFP8BlockScaling": "mxfp8"}
_PARAMETERS = {"input": "fp8_quant_fwd_inp", "weight": "fp8_quant_fwd_weight", "grad": "fp8_quant_bwd_grad"}


class Rule(NamedTuple):
    """How delayed scales follow from histories.

    largest: value of the format. steps: length of histories. amax: ``"max"``, ``"most_recent"`` or a function of the
    history. scale: a function of amax, old scale and largest, or None for the usual one. reduce: over the processes of
    ``group`` (None: all).
    """

    largest: float
    steps: int
    margin: int
    amax: Any
    scale: Callable[..., Any] | None
    reduce: bool
    group: Any


@dataclass(frozen=True)
class Precision:
    """A recipe, and the process group over which its largest values are reduced (None: all processes).

    Two are equal if the recipes have the same fields and the groups are the same, so that it can be a cache key.
    """

    recipe: Any = field(compare=False)
    group: Any = None
    key: Hashable = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", _fingerprint(self.recipe))

    @cached_property
    def name(self) -> str:
        """The name of the recipe."""
        return recipes.name_of(self.recipe)

    @property
    def delayed(self) -> bool:
        """True if scales are state."""
        return self.name == "DelayedScaling"

    def how(self, role: Role) -> How:
        """How an operand of a linear layer becomes FP8."""
        scheme, form = _SCHEMES[self.name], self._format("backward" if role == "grad" else "forward")
        if scheme != "current":
            return scheme, form
        given = getattr(self.recipe, _PARAMETERS[role])
        return scheme, form, given.amax_epsilon, given.power_2_scale

    def rule(self, direction: Direction) -> Rule:
        """How scales follow from histories, for delayed scaling."""
        recipe = self.recipe
        largest, custom = LARGEST[self._format(direction)], recipe.scaling_factor_compute_algo

        def scaling_factor(amax: Any, scale: Any, largest: float) -> Any:
            return custom(amax, scale, largest, recipe)

        scale = scaling_factor if custom is not None else None
        steps, algorithm = recipe.amax_history_len, recipe.amax_compute_algo
        return Rule(largest, steps, recipe.margin, algorithm, scale, recipe.reduce_amax, self.group)

    def _format(self, direction: Direction) -> str:
        largest = self.recipe.fp8_format.value
        return "E4M3" if (largest.max_fwd if direction == "forward" else largest.max_bwd) == LARGEST["E4M3"] else "E5M2"


def _fingerprint(recipe: Any) -> Hashable:
    values = [(item.name, getattr(recipe, item.name)) for item in fields(recipe)]
    return (type(recipe), *[(name, value if _hashable(value) else repr(value)) for name, value in values])


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
