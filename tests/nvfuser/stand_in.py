"""A stand-in for ``nvfuser_direct`` that runs on a CPU and takes nothing that the real one refuses.

It holds calls to the recorded signatures and to the recorded dtypes (``operators.json``), checks what inputs claim of
their layout, and evaluates fusions with torch.
"""

from __future__ import annotations

import enum
import functools
import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tests.nvfuser.kernels import KERNELS
from tests.nvfuser.record import FILE, ungrouped


class DataType(enum.Enum):
    Double = 0
    Float = 1
    Half = 2
    BFloat16 = 3
    Int32 = 11
    Int = 12
    UInt64 = 16
    Bool = 18
    Null = 23


TORCH = {
    DataType.Double: torch.float64,
    DataType.Float: torch.float32,
    DataType.Half: torch.float16,
    DataType.BFloat16: torch.bfloat16,
    DataType.Int32: torch.int32,
    DataType.Int: torch.int64,
    DataType.UInt64: torch.uint64,
    DataType.Bool: torch.bool,
}
_THEIRS = {theirs: ours for ours, theirs in TORCH.items()}


class Val:
    """A scalar of a fusion: a constant, or (None) an input."""

    def __init__(self, value: Any, dtype: DataType) -> None:
        self.value = value
        self._dtype = dtype

    def __repr__(self) -> str:
        return f"c{id(self)}" if self.value is None else repr(self.value)


class TensorView:
    """A value of a fusion: its dtype, and how torch computes it from the inputs."""

    def __init__(self, dtype: DataType, compute: Callable[[dict[Any, Any]], torch.Tensor]) -> None:
        self.name = ""
        self.order: list[int] | None = None
        self._dtype = dtype
        self._compute = compute

    def __repr__(self) -> str:
        return self.name

    def dtype(self) -> DataType:
        return self._dtype

    def evaluate(self, known: dict[Any, Any]) -> torch.Tensor:
        if self not in known:
            known[self] = self._compute(known)
        return known[self]


@functools.cache
def facts(section: str) -> dict[str, Any]:
    """What is recorded, by operator."""
    found = ungrouped(json.loads(FILE.read_text())[section])
    if section == "signatures":
        return found
    return {
        name: {kinds: made for made, operands in table.items() for kinds in operands} for name, table in found.items()
    }


@dataclass(frozen=True)
class Parameter:
    name: str
    kind: str
    default: str | None
    keyword_only: bool


@functools.cache
def overloads(name: str) -> list[list[Parameter]]:
    """The signatures of an operator."""
    found = []
    for line in facts("signatures")[name]:
        inside = re.fullmatch(r"\((.*)\) -> .*", line).group(1)
        keyword_only, parameters = False, []
        for text in re.split(r", (?=\w+: |\*)", inside):
            if text == "*":
                keyword_only = True
                continue
            declared, _, default = text.partition(" = ")
            label, _, kind = declared.partition(": ")
            parameters.append(Parameter(label, kind, default or None, keyword_only))
        found.append(parameters)
    return found


def bound(parameters: list[Parameter], args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments by name; None if this overload does not take them."""
    positional = [p for p in parameters if not p.keyword_only]
    if len(args) > len(positional):
        return None
    given = {p.name: arg for p, arg in zip(positional, args)}
    named = {p.name for p in parameters if not re.fullmatch(r"arg\d", p.name)}
    if not (kwargs.keys() <= named) or given.keys() & kwargs.keys():
        return None
    given.update(kwargs)
    for p in parameters:
        if p.name not in given and p.default is None:
            return None
        if p.name in given and not accepts(p, given[p.name]):
            return None
    return given


def accepts(parameter: Parameter, value: Any) -> bool:
    """Whether pybind converts a value to what a parameter is declared as."""
    if value is None:
        return parameter.default == "None" or parameter.kind == "Scalar"
    kind = parameter.kind.removesuffix(" | None")
    if kind.startswith("Sequence["):
        inner = Parameter("", kind.removeprefix("Sequence[").removesuffix("]"), None, False)
        return isinstance(value, (list, tuple)) and all(accepts(inner, item) for item in value)
    plain = (bool, int, float)
    types: dict[str, tuple[type, ...]] = {
        "TensorView": (TensorView,),
        "Scalar": (Val, *plain),
        "Val": (Val, *plain),
        "DataType": (DataType,),
        "SupportsInt": (int,),
        "bool": (bool,),
        "list": (list,),
        "tuple": (tuple,),
    }
    return isinstance(value, types[kind])


class Ops:
    """``fd.ops``."""

    def __init__(self, definition: FusionDefinition) -> None:
        self._definition = definition

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in facts("signatures"):
            raise AttributeError(f"nvFuser has no operator {name}")
        return functools.partial(self._call, name)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        given = next((g for p in overloads(name) if (g := bound(p, args, kwargs)) is not None), None)
        if given is None:
            raise TypeError(f"{name}(): incompatible function arguments: {args}, {kwargs}")
        kernel, values = KERNELS[name], list(given.items())
        views = [v for _, v in values if isinstance(v, TensorView)]
        views += [
            v for _, group in values if isinstance(group, (list, tuple)) for v in group if isinstance(v, TensorView)
        ]
        dtypes = result_dtypes(name, given, views)

        def compute(known: dict[Any, Any]) -> Any:
            def value(v: Any) -> Any:
                if isinstance(v, TensorView):
                    return v.evaluate(known)
                if isinstance(v, (list, tuple)):
                    return [value(item) for item in v]
                return TORCH.get(v) if isinstance(v, DataType) else known.get(v, v.value) if isinstance(v, Val) else v

            return kernel(**{key: value(v) for key, v in values})

        outs = _several(compute, dtypes)
        self._definition.note(name, values, outs)
        if name == "stride_order":
            outs[0].order = list(given["stride_order"])
        return outs[0] if len(outs) == 1 else tuple(outs)


def _missing(known: dict[Any, Any]) -> torch.Tensor:
    raise AssertionError("an input of the fusion was not given")


def _several(compute: Callable[..., Any], dtypes: list[DataType]) -> list[TensorView]:
    shared = object()

    def one(index: int, dtype: DataType) -> Callable[[dict[Any, Any]], torch.Tensor]:
        def run(known: dict[Any, Any]) -> torch.Tensor:
            if shared not in known:
                out = compute(known)
                known[shared] = out if isinstance(out, tuple) else (out,)
            return known[shared][index].to(TORCH[dtype])

        return run

    return [TensorView(dtype, one(index, dtype)) for index, dtype in enumerate(dtypes)]


def result_dtypes(name: str, given: dict[str, Any], views: list[TensorView]) -> list[DataType]:
    """What the library makes of operands of these dtypes. Raises RuntimeError where it refuses them."""
    results = facts("results").get(name)
    if isinstance(given.get("dtype"), DataType) and given["dtype"] is not DataType.Null:
        return [given["dtype"]]
    if results is None:
        dtypes = {view.dtype() for view in views}
        return UNCHANGED[name](given) if name in UNCHANGED else [_single(name, dtypes)]
    operands = [v for v in given.values() if isinstance(v, (TensorView, Val, bool, int, float))]
    if "dims" in given or "arg" in given:
        operands = [given["arg"]]
    key = " ".join(map(kind, operands))
    if key not in results:
        raise RuntimeError(f"nvFuser refuses {name}({key}), as far as is recorded")
    return [DataType[text] if text != "Index" else DataType.Int for text in results[key].split(",")]


def _single(name: str, dtypes: set[DataType]) -> DataType:
    if len(dtypes) != 1:
        raise RuntimeError(f"{name} of {dtypes}")
    return next(iter(dtypes))


UNCHANGED: dict[str, Callable[[dict[str, Any]], list[DataType]]] = {
    **dict.fromkeys(
        ("gather", "index_select", "take_along_axis", "pad", "scatter"), lambda given: [given["arg"].dtype()]
    ),
    "embedding_fwd": lambda given: [given["weight"].dtype()],
    "iota": lambda given: [DataType.Int],
    "sdpfa_fwd": lambda given: [given["query"].dtype(), DataType.Float, DataType.UInt64, DataType.UInt64],
    "sdpfa_bwd": lambda given: [given["query"].dtype()] * 3,
}
"""Results of operators that do not just keep the one dtype of their operands."""


def kind(operand: Any) -> str:
    """How the record names an operand."""
    if isinstance(operand, TensorView):
        return operand.dtype().name
    return f"scalar:{operand._dtype.name}" if isinstance(operand, Val) else type(operand).__name__


def compute_tensor_descriptor(sizes: Sequence[int], strides: Sequence[int]) -> tuple[list[bool | None], list[int]]:
    """Contiguity (of the dimensions from the largest stride to the smallest), and the rank of each stride."""
    dims = sorted(range(len(sizes)), key=lambda d: (-strides[d], d))
    contiguity: list[bool | None] = []
    expected = 1
    for d in reversed(dims):
        if sizes[d] == 1 or strides[d] == 0:
            contiguity.append(None)
            continue
        contiguity.append(strides[d] == expected)
        expected = strides[d] * sizes[d]
    return contiguity[::-1], [len(sizes) - 1 - dims.index(d) for d in range(len(sizes))]


class FusionDefinition:
    """A fusion: defined in a ``with`` block, then executed."""

    def __init__(self) -> None:
        self.ops = Ops(self)
        self.fusion = self
        self.lines: list[str] = []
        self._serial = itertools.count()
        self._inputs: list[tuple[Any, dict[str, Any]]] = []
        self._outputs: list[TensorView] = []
        self._open = False

    def __enter__(self) -> FusionDefinition:
        self._open = True
        return self

    def __exit__(self, *raised: Any) -> None:
        self._open = False

    def define_tensor(
        self,
        *,
        shape: Sequence[int],
        contiguity: Sequence[bool | None],
        dtype: DataType,
        is_cpu: bool = False,
        stride_order: Sequence[int] = (),
    ) -> TensorView:
        assert self._open
        assert len(shape) == len(contiguity) == len(stride_order)
        assert sorted(stride_order) == list(range(len(shape)))
        by_stride = sorted(range(len(shape)), key=lambda d: -stride_order[d])
        for dim, contiguous in zip(by_stride, contiguity):
            if shape[dim] == 1 and contiguous is not None:
                raise RuntimeError("The contiguity of a broadcast/reduction dimension must be None.")
        if is_cpu:
            raise NotImplementedError("tensors on a CPU are fused in no lowering")
        view = TensorView(dtype, _missing)
        view.name = f"tv{next(self._serial)}"
        described = f"shape={shape}, contiguity={contiguity}, dtype={dtype}, stride_order={stride_order}"
        self.lines.append(f"{view.name} = fd.define_tensor({described})")
        self._inputs.append((view, {"shape": list(shape), "contiguity": list(contiguity), "order": list(stride_order)}))
        return view

    def note(self, name: str, values: list[tuple[str, Any]], outs: list[TensorView]) -> None:
        """Write down a call."""
        for out in outs:
            out.name = f"tv{next(self._serial)}"
        arguments = ", ".join(repr(v) if re.fullmatch(r"arg\d", k) else f"{k}={v}" for k, v in values)
        self.lines.append(f"{', '.join(out.name for out in outs)} = fd.ops.{name}({arguments})")

    def define_scalar(self, value: Any, dtype: DataType) -> Val:
        val = Val(value, dtype)
        if value is None:
            self._inputs.append((val, {}))
            self.lines.append(f"{val} = fd.define_scalar(None, dtype={dtype})")
        return val

    def add_output(self, output: TensorView) -> None:
        assert self._open
        self._outputs.append(output)
        self.lines.append(f"fd.add_output({output.name})")

    def outputs(self) -> list[TensorView]:
        return list(self._outputs)

    def print_math(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        return "def nvfuser_fusion(fd):\n" + "".join(f"    {line}\n" for line in self.lines)

    def execute(self, inputs: list[Any], *, device: Any = None) -> list[torch.Tensor]:
        assert not self._open
        assert len(inputs) == len(self._inputs)
        known: dict[Any, Any] = {}
        for t, (view, described) in zip(inputs, self._inputs):
            if isinstance(view, Val):
                assert isinstance(t, int)
                known[view] = t
                continue
            assert _THEIRS[t.dtype] is view.dtype(), f"{t.dtype} for {view.dtype()}"
            assert [1 if n == 1 else -1 for n in t.shape] == described["shape"]
            contiguity, order = compute_tensor_descriptor(t.shape, t.stride())
            assert (contiguity, order) == (described["contiguity"], described["order"])
            known[view] = t
        memory = {t.untyped_storage().data_ptr() for t in inputs if isinstance(t, torch.Tensor)}
        return [_stored(view, view.evaluate(known), memory) for view in self._outputs]


def _stored(view: TensorView, t: torch.Tensor, memory: set[int]) -> torch.Tensor:
    """A new tensor, in the order of strides that was asked for. Elements that are only moved stay where they are."""
    if view.order is None and t.untyped_storage().data_ptr() in memory and 0 not in t.stride():
        return t
    order = view.order or list(reversed(range(t.ndim)))
    dims = sorted(range(t.ndim), key=lambda d: -order[d])
    step, strides = 1, [0] * t.ndim
    for d in reversed(dims):
        strides[d], step = step, step * t.shape[d]
    return torch.empty_strided(t.shape, strides, dtype=t.dtype).copy_(t)


class Generator:
    """The generator of the CPU, as one that counts: what it draws is where it is."""

    def initial_seed(self) -> int:
        return torch.initial_seed()

    def get_offset(self) -> int:
        return 4 * torch.randint(2**40, ()).item()

    def set_offset(self, offset: int) -> None:
        assert offset % 4 == 0
