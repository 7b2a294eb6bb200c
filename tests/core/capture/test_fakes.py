"""What operators return on fakes, against what they return."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
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
