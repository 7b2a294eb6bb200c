"""Where Thunder declines or differs from eager, or where comparing says nothing, with a reason each."""

from __future__ import annotations

from dataclasses import dataclass

UNINITIALISED = frozenset(
    {
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    }
)
"""Operators that return memory as it is: there are no values to compare."""


@dataclass(frozen=True)
class Known:
    """A difference of these kinds is expected of an operator."""

    operator: str
    kinds: frozenset[str]
    reason: str


# PyTorch does not say how a gradient is laid out; what it accumulates into a leaf is laid out like the leaf.
_SUBCLASS = (
    "PyTorch has another formula for tensor subclasses, which fakes are: it joins columns instead of writing them"
)
_COPIED = "what a program writes into an argument is copied there: for autograd, zeros (contiguous) for what was there"
_RERUN = "a derivative that cannot be recorded is run as it is, and its gradients are laid out like the inputs"
_CONJUGATE = "PyTorch sets the conjugate bit of out=, as no other operator does; a program copies the values there"

KNOWN = (
    Known("baddbmm", frozenset({"gradient stride"}), _COPIED),
    Known("linalg.qr", frozenset({"gradient stride"}), _RERUN),
    Known("qr", frozenset({"gradient stride"}), _RERUN),
    Known("ormqr", frozenset({"gradient stride"}), _SUBCLASS),
    Known("as_strided_scatter", frozenset({"gradient stride"}), _RERUN),
    Known("linalg.lu_solve", frozenset({"result conj", "argument conj"}), _CONJUGATE),
)

_SHAPE = "the shape of the result depends on data"
_VALUE = "a number in the program, or a branch inside of the operator, depends on data"
_SIZES = "its in-place form changes the sizes of an argument, which the caller would see"
_CHECKS = (
    "the derivative of a complex decomposition checks its data, and the call, which draws at random, cannot be rerun"
)
_OUT = "on tensors without data PyTorch does not write into out="

DECLINED = {
    "allclose": _VALUE,
    "argwhere": _SHAPE,
    "as_strided": _SIZES,
    "as_strided.partial_views": _SIZES,
    "bincount": _SHAPE,
    "combinations": _SHAPE,
    "corrcoef": _VALUE,
    "cov": _VALUE,
    "empty": _OUT,
    "equal": _VALUE,
    "fft.ihfftn": _OUT,
    "istft": _VALUE,
    "item": _VALUE,
    "linalg.lstsq": _SHAPE,
    "linalg.lstsq.grad_oriented": _SHAPE,
    "linalg.matrix_rank": _OUT,
    "linalg.matrix_rank.hermitian": _OUT,
    "masked_select": _SHAPE,
    "narrow": _VALUE,
    "nn.functional.ctc_loss": _SHAPE,
    "nn.functional.gaussian_nll_loss": _VALUE,
    "nn.functional.one_hot": _VALUE,
    "nonzero": _SHAPE,
    "pca_lowrank": _CHECKS,
    "repeat_interleave": _SHAPE,
    "resize_": "it gives an argument another size and storage",
    "squeeze": _SIZES,
    "squeeze.multiple": _SIZES,
    "svd_lowrank": _CHECKS,
    "t": _SIZES,
    "tensor_split": _VALUE,
    "transpose": _SIZES,
    "unique": _SHAPE,
    "unique_consecutive": _SHAPE,
    "unsqueeze": _SIZES,
}
"""Operators that the functional front end may decline, and why; the dynamo front end must be right on them."""


def explained(operator: str, kind: str) -> bool:
    """True if a difference of this kind is expected of the operator."""
    return any(known.operator == operator and kind in known.kinds for known in KNOWN)
