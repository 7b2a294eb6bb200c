"""Which operations may be part of a region: those that Inductor writes a kernel for. It is asked once for each kind."""

from __future__ import annotations

import functools

from thunder.extend import (
    BoundSymbol,
    ClaimContext,
    No,
    TensorType,
    Trace,
    Var,
    Yes,
    leaves,
    map_tree,
    number_params,
)
from thunder_inductor import inductor
from thunder_inductor.decompositions import COMPARISONS
from thunder_inductor.graphs import dtype_of, graph_of, is_bool, operator, plain

_DEVICES = frozenset({"cpu", "cuda"})
_DTYPES = frozenset({"float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"})

_NARROW = frozenset({"int16", "int8", "uint8", "bool"})

_FASTER_IN_PYTORCH = frozenset({"aten.gelu", "aten.gelu_backward", "aten.native_group_norm", "aten.constant_pad_nd"})
"""On a CPU. Measured for 131072 elements, one thread: Inductor takes 1.2 to 3.7 times as long."""

_FASTER_ALONE = frozenset({
    "aten.binary_cross_entropy_with_logits", "aten.elu", "aten.exp", "aten.gelu", "aten.gelu_backward",
    "aten.mse_loss", "aten.native_layer_norm", "aten.relu", "aten.rsqrt", "aten.var_mean.correction",
    "aten.isnan", "aten.masked_fill.Scalar", "aten.masked_fill.Tensor", "aten.where.self",
    *(op.name().replace("::", ".") for op in COMPARISONS),
})  # fmt: skip
"""On a CPU. Measured likewise: Inductor takes at most 0.8 of the time in float32 or bfloat16, and never longer; of
comparisons a third of it, and of what takes a mask a twentieth."""

_PRODUCTS = frozenset({"aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm"})
"""Inductor calls PyTorch's kernels for them, but for some small ones: what is saved are calls."""

_SHORT = 1 << 16
"""Multiplications of a product on a CPU above which the 0.2 us of a call are less than a measurement can tell."""

_PLACES = frozenset({"aten.argmax", "aten.argmin"})
"""Without a dimension Inductor counts in the order of memory, and not in that of the elements."""

_UNDECLARED_VIEWS = frozenset({"aten._unsafe_view"})


def supports(cx: ClaimContext, op: BoundSymbol) -> Yes | No:
    """Whether an operation may be part of a region; what is expected to gain nothing by it, of one that is timed."""
    if reason := _unfit(op):
        return No(reason)
    if cx.measured and _is_short_product(op):
        return Yes()
    if not cx.measured and _is_faster_in_pytorch(op):
        return No("PyTorch's own kernel is faster")
    reason = _refusal(_Kind(op))
    return No(reason) if reason else Yes()


def alone(cx: ClaimContext, op: BoundSymbol) -> Yes | No:
    """Whether a region of one operation is faster than PyTorch's kernel."""
    if op.sym.name not in _FASTER_ALONE or not _makes_on_cpu(op) or _is_narrow(op):
        return No("PyTorch's own kernel is as fast")
    reason = _difference(_Kind(op))
    return No(reason) if reason else Yes()


def _is_narrow(op: BoundSymbol) -> bool:
    """True if all that an operation reads are tensors of elements of one or two bytes, and none are fractions."""
    return all(isinstance(v.type, TensorType) and v.type.dtype in _NARROW for v in op.inputs)


def pays(cx: ClaimContext, region: Trace) -> Yes | No:
    """Whether a region is worth it, of which the core says so."""
    tensors = [v for v in region.variables() if isinstance(v.type, TensorType)]
    return No("PyTorch's kernels for bools are faster") if all(map(is_bool, tensors)) else Yes()


def _is_short_product(op: BoundSymbol) -> bool:
    if op.sym.name not in _PRODUCTS:
        return False
    *_, first, second = op.args
    return first.type.device != "cpu" or first.type.numel * second.type.shape[-1] <= _SHORT


def _is_faster_in_pytorch(op: BoundSymbol) -> bool:
    return op.sym.name in _FASTER_IN_PYTORCH and _makes_on_cpu(op) and op.kwargs.get("approximate") != "tanh"


def _makes_on_cpu(op: BoundSymbol) -> bool:
    return all(isinstance(var.type, TensorType) and var.type.device == "cpu" for var in op.outputs)


def _unfit(op: BoundSymbol) -> str:
    """Why no region takes the operation, as far as its types and effects say; empty if they say nothing."""
    if not op.sym.name.startswith(("aten.", "prims.")):
        return "it is no operator of ATen"
    if op.effects:
        return f"it touches {', '.join(sorted({effect.state.name for effect in op.effects}))}"
    types = [var.type for var in (*op.inputs, *op.outputs)]
    if not all(isinstance(type, TensorType) for type in types) or not op.outputs:
        return "it takes or makes what is no tensor"
    tensors = [type for type in types if isinstance(type, TensorType)]
    devices = {type.device for type in tensors}
    if len(devices) > 1 or not _DEVICES.issuperset(device.partition(":")[0] for device in devices):
        return f"it runs on {' and '.join(sorted(devices))}"
    if op.sym.name in _PLACES and all(dim is None for dim in (*op.args[1:2], op.kwargs.get("dim"))):
        return "it counts in the order of memory"
    if any(type.layout != "strided" for type in tensors):
        return "it has tensors that are not strided"
    if unknown := sorted({type.dtype for type in tensors} - _DTYPES):
        return f"it computes with {' and '.join(unknown)}"
    if any(0 in type.shape for type in tensors):
        return "it has tensors without elements"
    return ""


class _Kind:
    """An operation; equal to all that differ in nothing but names."""

    def __init__(self, op: BoundSymbol) -> None:
        self.op = op
        number = {var: str(place) for place, var in enumerate(op.inputs)}

        def leaf(value: object) -> object:
            return (number[value], value.type) if isinstance(value, Var) else value

        made = [isinstance(leaf, Var) for leaf in leaves(op.outs)]
        self._key = repr((op.sym.name, map_tree(leaf, op.args), map_tree(leaf, op.kwargs), made))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kind) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@functools.lru_cache(maxsize=10_000)
def _difference(kind: _Kind) -> str:
    """How the results of an operation alone differ from PyTorch's in type; empty if they do not."""
    results = kind.op.outputs
    with plain():
        return graph_of((*kind.op.inputs, *number_params()), [kind.op], results).differs_from(results)


@functools.lru_cache(maxsize=10_000)
def _refusal(kind: _Kind) -> str:
    """Why Inductor has no kernel for an operation; empty if it has one."""
    op = kind.op
    results = [leaf for leaf in leaves(op.outs) if isinstance(leaf, Var)]
    try:
        with plain():
            graph = graph_of((*op.inputs, *number_params()), [op], results)
            if graph.shares_memory:  # a view that is declared stays inside of regions, without a kernel
                declared = operator(op)._schema.arguments[0].alias_info is not None
                return "" if declared or op.sym.name in _UNDECLARED_VIEWS else "its result is a view"
            if [t.dtype for t in graph.results] != [dtype_of(v.type) for v in results]:
                return "Inductor makes results of other dtypes"
            called = inductor.external(graph.module, graph.mode, graph.inputs)
    except Exception as error:
        return f"Inductor does not take it: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    return f"Inductor has no kernel of its own: it {called}" if called else ""
