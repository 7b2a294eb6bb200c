"""Types and values of the IR. Nothing in ``thunder.ir`` imports torch: dtypes and devices are plain strings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

_SHORT_DTYPE = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "b8",
    "complex64": "c64", "complex128": "c128",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorType:
    """The type of a tensor value. Strides are in elements; ``device`` is the text of a torch device (``"cuda:0"``).

    Sizes and strides are integers; in a program for many sizes, some are ``Number``.
    ``stride`` is None for layouts that have none (``layout="sparse_coo"`` and relatives).
    """

    shape: tuple[Any, ...]
    stride: tuple[Any, ...] | None
    dtype: str
    device: str
    requires_grad: bool = False
    layout: str = "strided"

    def __str__(self) -> str:
        grad = " grad" if self.requires_grad else ""
        layout = "" if self.layout == "strided" else f" {self.layout}"
        return f"{self.device} {_SHORT_DTYPE.get(self.dtype, self.dtype)}{list(self.shape)}{layout}{grad}"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        """Number of elements."""
        n = 1
        for extent in self.shape:
            n *= extent
        return n

    @property
    def detached(self) -> TensorType:
        """The type of the same tensor that does not require grad."""
        return replace(self, requires_grad=False) if self.requires_grad else self

    @property
    def is_symbolic(self) -> bool:
        """True if a size or stride is known only at run time."""
        return any(isinstance(n, Number) for n in (*self.shape, *(self.stride or ())))

    @property
    def is_contiguous(self) -> bool:
        """True if the elements are in row-major order without gaps; dimensions of extent 1 may have any stride."""
        wanted = contiguous_strides(self.shape)
        if self.stride is None or not self.numel:
            return self.stride is not None
        return all(n == 1 or step == want for n, step, want in zip(self.shape, self.stride, wanted))


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides of a shape, in elements."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class OpaqueType:
    """The type of a value that is neither a tensor nor a number: a state handle, a generator.

    of: for the handle of a state that belongs to one call site, the name of that call site.
    """

    name: str
    of: str = ""

    def __str__(self) -> str:
        return f"{self.name} of {self.of}" if self.of else self.name


@dataclass(frozen=True, slots=True)
class NumberType:
    """The type of a number that a program takes: ``"int"``. example: one value that it may have."""

    name: str
    example: int

    def __str__(self) -> str:
        return self.name


Type = TensorType | OpaqueType | NumberType


@dataclass(frozen=True, slots=True, eq=False)
class Var:
    """An IR value. Two variables are the same value iff they have the same name; names are unique in a trace."""

    name: str
    type: Type

    @property
    def requires_grad(self) -> bool:
        """True for a tensor that requires grad."""
        return isinstance(self.type, TensorType) and self.type.requires_grad

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Var) and self.name == other.name and self.type == other.type)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Number:
    """A number known only at run time: ``text`` is a Python expression over the number parameters of the trace.

    value: what computes in its place while the program is compiled. Numbers of equal text are equal.
    """

    text: str
    value: Any = field(compare=False, repr=False)

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Const:
    """A value spelt by an expression over importable names, such as ``torch.float32`` or ``torch.device('cpu')``."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, eq=False)
class Ref:
    """A Python object that no expression spells (a generator, a user's class). Equal only to the same object."""

    name: str
    value: Any = field(repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return self.name
