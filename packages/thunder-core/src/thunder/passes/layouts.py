"""Copies that change nothing but the memory format, where fusing makes them free.

A region reads and writes any format at the same cost. So a copy that only regions read is never made: each takes its
own of what was copied, as it does of a view. And where a region makes a value that others need in another format, that
is what it writes, and other regions take the value from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.trace import Names, Trace
from thunder.ir.types import Const, TensorType, Type, Var, contiguous_strides
from thunder.passes.borders import Asks, read_from_afar, read_outside

_CLONES = ("torch.clone", "aten.clone")
_ROW_MAJOR = Const("torch.contiguous_format")
_CHANNELS_LAST = {4: Const("torch.channels_last"), 5: Const("torch.channels_last_3d")}


def is_relayout(op: BoundSymbol) -> bool:
    """True if an operation does nothing but copy a tensor from one memory format to another."""
    if op.sym.name not in _CLONES or not isinstance(op.outs, Var):
        return False
    formats = _format(op.inputs[0].type), _format(op.outs.type)
    return None not in formats and formats[0] != formats[1]


def undone(op: BoundSymbol, source: Var) -> BoundSymbol:
    """The copy back: it makes of the result of ``op`` what that copied, as the variable ``source``."""
    return replace(op, args=(op.outs,), kwargs={"memory_format": _format(source.type)}, outs=source)


def relayout(maker: BoundSymbol, source: Var, format: Const, names: Names) -> BoundSymbol:
    """A copy in a memory format of what an operation makes. maker: that operation; the copy belongs beside it."""
    assert isinstance(source.type, TensorType)
    type = replace(source.type, stride=_channels_last_strides(source.type.shape), requires_grad=False)
    result = names.var(source.name, type)
    kwargs = {"memory_format": format}
    return replace(maker, sym=Symbol("torch.clone"), args=(source,), kwargs=kwargs, outs=result, effects=())


def formats_around(ops: Iterable[BoundSymbol], is_cheap: Asks) -> dict[Var, Const]:
    """The other memory format of each row-major value that regions make from values in that format."""
    formats: dict[Var, Const] = {}
    for op in ops:
        copies = is_relayout(op)
        if not (formats or copies) or not is_cheap(op):
            continue
        around = {_shape(v): formats[v] for v in op.inputs if v in formats}
        if copies and (found := _format(op.inputs[0].type)) not in (None, _ROW_MAJOR):
            around[_shape(op.inputs[0])] = found
        rows = (v for v in op.outputs if _format(v.type) == _ROW_MAJOR)
        formats |= {v: around[_shape(v)] for v in rows if _shape(v) in around}
    return formats


def relaid(trace: Trace, is_cheap: Asks, is_view: Asks, names: Names) -> tuple[Trace, frozenset[Var]]:
    """The trace in which regions read what is written to memory anyway, and the copies that are for regions alone.

    is_cheap, is_view: as for ``read_outside``.
    """
    if not any(map(is_relayout, trace.ops)):
        return trace, frozenset()
    cheap = {id(op) for op in trace.ops if is_cheap(op)}

    def inside(op: BoundSymbol) -> bool:
        return id(op) in cheap

    copies = [op for op in trace.ops if is_relayout(op) and inside(op)]
    outside = read_outside(trace, inside, lambda op: not inside(op) and is_view(op))
    makers = {v: op for op in trace.ops if inside(op) for v in op.outputs if v not in outside}
    swapped = {op.inputs[0]: op for op in copies if op.outs in outside and op.inputs[0] in makers}
    formats = formats_around(trace.ops, inside)
    for v in dict.fromkeys(v for afar in read_from_afar(trace.ops, inside) for v in afar or ()):
        if v in formats and v in makers and v not in swapped and not is_relayout(makers[v]):
            swapped[v] = relayout(makers[v], v, formats[v], names)
    moved = {id(op) for op in swapped.values()}
    again = {v: names.var(v.name, v.type) for v in swapped}
    ops: list[BoundSymbol] = []
    for op in trace.ops:
        if id(op) not in moved:
            ops.append(op.with_inputs(again))
        for v in op.outputs:
            if v in swapped:
                ops += [swapped[v], undone(swapped[v], again[v])]
    return trace.with_ops(ops), frozenset({op.outs for op in copies} - outside).union(again.values())


def _shape(var: Var) -> tuple[int, ...]:
    assert isinstance(var.type, TensorType)
    return var.type.shape


def _format(type: Type) -> Const | None:
    """The memory format of a tensor; None if it has none that has a name, or a size that is known only at run time."""
    if not isinstance(type, TensorType) or type.is_symbolic:
        return None
    if type.stride == contiguous_strides(type.shape):
        return _ROW_MAJOR
    last = _CHANNELS_LAST.get(type.ndim)
    return last if last is not None and type.stride == _channels_last_strides(type.shape) else None


def _channels_last_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor of these sizes, channels second, whose channels lie side by side."""
    first, channels, *space = shape
    first, *space, channels = contiguous_strides((first, *space, channels))
    return (first, channels, *space)
