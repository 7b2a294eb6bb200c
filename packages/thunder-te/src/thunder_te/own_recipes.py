"""Recipes with the names, fields and defaults of TransformerEngine's, for where that is not installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NamedTuple


class _Largest(NamedTuple):
    max_fwd: float
    max_bwd: float


class Format(Enum):
    """The 8-bit formats of forward values and of gradients, by their largest values. HYBRID: E4M3 and E5M2."""

    E4M3 = _Largest(448, 448)
    E5M2 = _Largest(57344, 57344)
    HYBRID = _Largest(448, 57344)


@dataclass(frozen=True)
class QParams:
    """How a scale follows from the largest absolute value: its lower bound, and whether scales are powers of two."""

    power_2_scale: bool = False
    amax_epsilon: float = 0.0


@dataclass
class DelayedScaling:
    """Scales from the largest values of the last steps.

    margin: scales are 2**margin smaller than they could be. amax_history_len: how many steps are remembered.
    amax_compute_algo: the largest of them, the most recent, or ``(history [steps, scales]) -> [scales]``.
    scaling_factor_compute_algo: ``(amax, old_scale, largest_fp8_value, recipe) -> scale`` instead of the usual one.
    reduce_amax: all processes of the group use the largest values among them.
    """

    margin: int = 0
    fp8_format: Format = Format.HYBRID
    amax_history_len: int = 1024
    amax_compute_algo: Literal["max", "most_recent"] | Callable[..., Any] = "max"
    scaling_factor_compute_algo: Callable[..., Any] | None = None
    reduce_amax: bool = True

    def __post_init__(self) -> None:
        _check_format(self.fp8_format)
        if self.amax_history_len < 1:
            raise ValueError("amax_history_len must be at least 1")
        if not callable(self.amax_compute_algo) and self.amax_compute_algo not in ("max", "most_recent"):
            raise ValueError(f'amax_compute_algo is "max", "most_recent" or a function, not {self.amax_compute_algo!r}')


@dataclass
class Float8CurrentScaling:
    """Scales from the largest value of the tensor itself."""

    fp8_format: Format = Format.HYBRID
    fp8_quant_fwd_inp: QParams = QParams()
    fp8_quant_fwd_weight: QParams = QParams()
    fp8_quant_bwd_grad: QParams = QParams()

    def __post_init__(self) -> None:
        _check_format(self.fp8_format)


@dataclass
class MXFP8BlockScaling:
    """A power of two for each block of 32 values along the dimension that is summed over."""

    margin: int = 0
    fp8_format: Format = Format.E4M3

    def __post_init__(self) -> None:
        _check_format(self.fp8_format)


@dataclass
class NVFP4BlockScaling:
    """Four-bit values. Linear layers do not run under it; it is here to be refused with the reason."""


def _check_format(fp8_format: Format) -> None:
    if fp8_format is Format.E5M2:
        raise ValueError("forward values do not fit into E5M2: use Format.HYBRID or Format.E4M3")
