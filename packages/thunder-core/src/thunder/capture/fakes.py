"""Running single operations on fake tensors, to learn the types of their results."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    run_fallback_kernel,
)
from torch.utils import _pytree
from torch.utils._python_dispatch import _disable_current_modes

from thunder.ir import tree
from thunder.ir.symbol import BoundSymbol
from thunder.ir.types import TensorType, Var
from thunder.lang.names import resolve_symbol
from thunder.lang.numbers import fake_mode
from thunder.lang.values import empty, tensor_type, to_torch


def needs_values(error: RuntimeError) -> bool:
    """True if a call failed on fake tensors because a value or a size depends on data."""
    known = isinstance(error, (DataDependentOutputException, DynamicOutputShapeException))
    return known or "its data is not allocated yet" in str(error)  # a kernel that reads memory by itself


def by_real_kernel(op: Any, args: Any, kwargs: Any, error: RuntimeError) -> Any:
    """What an operator returns that fails on fake tensors: some fake kernels refuse what the real ones take.

    The real kernel runs on zeros. Raises ``error`` again if it fails as well, or if the result depends on values.
    """
    mode = detect_fake_mode((args, kwargs))
    if mode is None or needs_values(error) or isinstance(error, UnsupportedFakeTensorException):
        raise error
    leaves, structure = _pytree.tree_flatten((args, kwargs))
    try:
        return run_fallback_kernel(mode, op, leaves, structure, error)
    except RuntimeError:
        raise error from None


_NORMS = frozenset(
    {
        torch.ops.aten.native_batch_norm.default,
        torch.ops.aten.native_group_norm.default,
        torch.ops.aten.native_layer_norm.default,
    }
)


_OTHER_STRIDES = frozenset(
    {
        torch.ops.aten._log_softmax_backward_data.default,
        torch.ops.aten._native_batch_norm_legit.no_stats,
        torch.ops.aten._weight_norm_interface.default,
        torch.ops.aten.batch_norm_backward.default,
        torch.ops.aten.binary_cross_entropy_backward.default,
        torch.ops.aten.channel_shuffle.default,
        torch.ops.aten.copysign.Tensor,
        torch.ops.aten.elu_backward.default,
        torch.ops.aten.float_power.Scalar,
        torch.ops.aten.floor_divide.default,
        torch.ops.aten.hardsigmoid_backward.default,
        torch.ops.aten.hardswish_backward.default,
        torch.ops.aten.hardtanh_backward.default,
        torch.ops.aten.huber_loss_backward.default,
        torch.ops.aten.isin.Tensor_Scalar,
        torch.ops.aten.isin.Tensor_Tensor,
        torch.ops.aten.log_sigmoid_forward.default,
        torch.ops.aten.logit_backward.default,
        torch.ops.aten.max_unpool2d.default,
        torch.ops.aten.mse_loss_backward.default,
        torch.ops.aten.native_batch_norm.default,
        torch.ops.aten.native_batch_norm_backward.default,
        torch.ops.aten.native_dropout_backward.default,
        torch.ops.aten.native_group_norm_backward.default,
        torch.ops.aten.native_layer_norm_backward.default,
        torch.ops.aten.nll_loss2d_forward.default,
        torch.ops.aten.pow.Scalar,
        torch.ops.aten.reflection_pad2d_backward.default,
        torch.ops.aten.reflection_pad3d.default,
        torch.ops.aten.reflection_pad3d_backward.default,
        torch.ops.aten.replication_pad2d_backward.default,
        torch.ops.aten.replication_pad3d.default,
        torch.ops.aten.replication_pad3d_backward.default,
        torch.ops.aten.smooth_l1_loss_backward.default,
        torch.ops.aten.softplus_backward.default,
        torch.ops.aten.special_xlog1py.default,
        torch.ops.aten.xlogy.Tensor,
    }
)
"""Operators of which the fake kernels lay results out in another way, on a CPU, if an argument is not row-major."""

_DRAWS = frozenset(
    {
        torch.ops.aten._standard_gamma.default,
        torch.ops.aten.normal.Tensor_Tensor,
        torch.ops.aten.normal.Tensor_float,
        torch.ops.aten.normal.float_Tensor,
        torch.ops.aten.poisson.default,
    }
)
"""Operators whose real kernels draw into row-major memory, and whose fake kernels follow their arguments."""


def as_real(op: Any, args: Sequence[Any], out: Any) -> Any:
    """The result of a call on fakes with the dtypes and strides of the real kernel's; some fake kernels give others.

    On a CPU, norms of bfloat16 with parameters of float32 (as under autocast) have statistics of float32.
    """
    if op in _OTHER_STRIDES and _on_cpu_beyond_rows(args):
        out = _pytree.tree_map(_laid_out_as, out, _of_zeros(op, args))
    if op in _DRAWS:
        return out.contiguous()
    if op is torch.ops.aten.native_group_norm_backward.default and out[0] is not None:
        return (out[0].to(args[1].dtype), *out[1:])
    if op not in _NORMS or args[0].device.type != "cpu":
        return out
    dtypes = {t.dtype for t in args if isinstance(t, torch.Tensor)}
    return out if len(dtypes) == 1 else (out[0], *[t.to(torch.float32) for t in out[1:]])


def _on_cpu_beyond_rows(args: Sequence[Any]) -> bool:
    """True for tensors on a CPU that are not all row-major."""
    tensors = [t for t in args if isinstance(t, torch.Tensor)]
    if any(t.device.type != "cpu" or t.layout is not torch.strided for t in tensors):
        return False
    return not all(t.is_contiguous() for t in tensors)


def _of_zeros(op: Any, args: Sequence[Any]) -> Any:
    """What the real kernel returns for zeros of the sizes at hand."""

    def real(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return _at_hand(value)
        sizes, strides = map(_at_hand, value.shape), map(_at_hand, value.stride())
        return torch.empty_strided(tuple(sizes), tuple(strides), dtype=value.dtype).zero_()

    with _disable_current_modes(), torch._C._DisablePythonDispatcher(), torch.no_grad():
        return op(*_pytree.tree_map(real, args))


def _at_hand(value: Any) -> Any:
    return value.node.hint if isinstance(value, (torch.SymInt, torch.SymFloat)) else value


def _laid_out_as(fake: Any, real: Any) -> Any:
    """The fake tensor with its dimensions in memory in the order of the real one's."""
    if not isinstance(fake, torch.Tensor):
        return fake
    order = sorted(range(real.ndim), key=real.stride, reverse=True)
    return fake.permute(order).contiguous().permute([order.index(dim) for dim in range(real.ndim)])


def _not_ours(record: logging.LogRecord) -> bool:
    """False for PyTorch's report of a failed fake kernel that a recorder called: it is handled here, or raised."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals["__name__"] != "thunder.capture.aten":
        frame = frame.f_back
    return frame is None


logging.getLogger("torch._subclasses.fake_tensor").addFilter(_not_ours)


def run_on(op: BoundSymbol, values: dict[Var, Any]) -> Any:
    """Call what the operation's symbol names, with the given values for its variables."""

    def value(leaf: Any) -> Any:
        return values[leaf] if isinstance(leaf, Var) else to_torch(leaf)

    return resolve_symbol(op.sym.name)(*tree.map_tree(value, op.args), **tree.map_tree(value, op.kwargs))


def result_types(op: BoundSymbol) -> list[TensorType] | None:
    """The types of the tensors that the operation returns, without gradients; None if it cannot run."""
    with fake_mode(), torch.no_grad():
        values = {v: empty(v.type) for v in op.inputs if isinstance(v.type, TensorType)}
        try:
            out = run_on(op, values)
        except Exception:
            return None
        return [tensor_type(leaf) for leaf in tree.leaves(out) if isinstance(leaf, torch.Tensor)]


def has_derivative(op: BoundSymbol) -> bool:
    """False for an ATen operator that PyTorch does not differentiate (``aten.copy``, while ``aten.copy_`` is)."""
    if not op.sym.name.startswith("aten."):
        return True
    with fake_mode(), torch.enable_grad():
        values = {v: empty(v.type) for v in op.inputs if isinstance(v.type, TensorType)}
        for t in values.values():
            t.requires_grad_(t.is_floating_point() or t.is_complex())
        out = run_on(op, values)
    nodes = [leaf.grad_fn for leaf in tree.leaves(out) if isinstance(leaf, torch.Tensor)]
    return not any(type(node).__name__ == "NotImplemented" for node in nodes)
