"""What operators return on fakes, against what they return."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree

from thunder.capture.fakes import as_real

ATEN = torch.ops.aten


def norms(dtype, weights):
    x, parameters = torch.randn(4, 6, 5, dtype=dtype), (torch.ones(6, dtype=weights), torch.zeros(6, dtype=weights))
    yield ATEN.native_layer_norm.default, (x.mT, [6], *parameters, 1e-5)
    yield ATEN.native_layer_norm.default, (x.mT, [6], None, None, 1e-5)
    yield ATEN.native_group_norm.default, (x, *parameters, 4, 6, 5, 2, 1e-5)
    for training in (True, False):
        statistics = torch.zeros(6, dtype=weights), torch.ones(6, dtype=weights)
        yield ATEN.native_batch_norm.default, (x, *parameters, *statistics, training, 0.1, 1e-5)
        yield ATEN.native_batch_norm.default, (x, *parameters, None, None, True, 0.1, 1e-5)
    y, mean, rstd = torch.native_group_norm(x, *parameters, 4, 6, 5, 2, 1e-5)
    for wanted in ([True, True, True], [False, True, False]):
        yield ATEN.native_group_norm_backward.default, (y, x, mean, rstd, parameters[0], 4, 6, 5, 2, wanted)


@pytest.mark.parametrize(
    ("dtype", "weights"),
    [(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32)],
)
def test_norms_of_mixed_precision_have_results_of_the_real_dtypes(dtype, weights):
    mode = FakeTensorMode()
    for op, args in norms(dtype, weights):
        fakes = _pytree.tree_map_only(torch.Tensor, mode.from_tensor, args)
        with mode:
            found = as_real(op, fakes, op(*fakes))
        expected = op(*args)
        assert [t if t is None else t.dtype for t in found] == [t if t is None else t.dtype for t in expected], op


GRAD, X, IMAGE = torch.randn(3, 4, 5).mT, torch.randn(3, 5, 4), torch.randn(2, 3, 4, 4)
ONES, STATISTICS = torch.ones(5), torch.ones(3, 1, 1)
OTHERWISE = [
    (ATEN._log_softmax_backward_data.default, (GRAD, X, 1, torch.float32)),
    (ATEN.binary_cross_entropy_backward.default, (X, GRAD.sigmoid(), X.sigmoid(), None, 0)),
    (ATEN.channel_shuffle.default, (torch.randn(2, 4, 4, 4).contiguous(memory_format=torch.channels_last), 2)),
    (ATEN.copysign.Tensor, (GRAD, X)),
    (ATEN.elu_backward.default, (GRAD, 1.0, 1, 1, False, X)),
    (ATEN.floor_divide.default, (GRAD, X)),
    (ATEN.hardsigmoid_backward.default, (GRAD, X)),
    (ATEN.hardswish_backward.default, (GRAD, X)),
    (ATEN.hardtanh_backward.default, (GRAD, X, -1, 1)),
    (ATEN.huber_loss_backward.default, (X, GRAD, X, 0, 1.0)),
    (ATEN.log_sigmoid_forward.default, (GRAD,)),
    (ATEN.logit_backward.default, (GRAD, X)),
    (ATEN.mse_loss_backward.default, (X, GRAD, X, 0)),
    (ATEN.native_batch_norm.default, (GRAD, ONES, ONES, ONES, ONES, False, 0.1, 1e-5)),
    (ATEN.native_batch_norm_backward.default, (GRAD, X, ONES, ONES, ONES, ONES, ONES, False, 1e-5, [True] * 3)),
    (ATEN.native_dropout_backward.default, (GRAD, X > 0, 2.0)),
    (ATEN.native_layer_norm_backward.default, (GRAD, X, [5, 4], STATISTICS, STATISTICS, X[0], X[0], [True] * 3)),
    (ATEN.poisson.default, (GRAD.abs(),)),
    (ATEN.pow.Scalar, (2, GRAD)),
    (
        ATEN.replication_pad2d_backward.default,
        (torch.randn(2, 3, 5, 6), IMAGE.to(memory_format=torch.channels_last), [1, 1, 1, 0]),
    ),
    (ATEN.smooth_l1_loss_backward.default, (X, GRAD, X, 0, 1.0)),
    (ATEN.softplus_backward.default, (GRAD, X, 1, 20)),
    (ATEN.xlogy.Tensor, (GRAD, X)),
]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("op", "args"), OTHERWISE, ids=lambda value: getattr(value, "__name__", ""))
def test_results_are_laid_out_as_by_the_real_kernel(op, args, symbolic):
    """And in another way by the fake one, or it would not be told to ask."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    fakes = _pytree.tree_map_only(torch.Tensor, lambda t: mode.from_tensor(t, static_shapes=not symbolic), args)
    with mode, enable_python_dispatcher() if symbolic else contextlib.nullcontext():
        told = op(*fakes)
        found = as_real(op, fakes, told)
    expected = strides(op(*args))
    assert strides(found) == expected
    assert strides(told) != expected


def strides(result):
    return [t.stride() for t in _pytree.tree_leaves(result)]
