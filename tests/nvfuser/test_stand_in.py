"""The stand-in takes nothing that the real library refuses."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.nvfuser import stand_in
from tests.nvfuser.kernels import KERNELS
from tests.nvfuser.stand_in import DataType, FusionDefinition, compute_tensor_descriptor


def matrix(definition, dtype=DataType.Float, **changes):
    layout = {"shape": [-1, -1], "contiguity": [True, True], "stride_order": [1, 0], **changes}
    return definition.define_tensor(dtype=dtype, **layout)


@pytest.mark.parametrize(
    ("error", "use"),
    [
        (AttributeError, lambda fd, x: fd.ops.gelu(x)),
        (TypeError, lambda fd, x: fd.ops.sum(x, [1], keep_dim=True)),
        (TypeError, lambda fd, x: fd.ops.add(x)),
        (TypeError, lambda fd, x: fd.ops.add(x, other=x)),
        (TypeError, lambda fd, x: fd.ops.clamp(x, x, x)),
        (TypeError, lambda fd, x: fd.ops.cast(x, dtype=torch.float32)),
        (TypeError, lambda fd, x: fd.ops.permute(x, "01")),
        (TypeError, lambda fd, x: fd.ops.cat(x, dim=0)),
        (RuntimeError, lambda fd, x: fd.ops.bitwise_and(x, x)),
        (RuntimeError, lambda fd, x: fd.ops.where(x, x, x)),
        (RuntimeError, lambda fd, x: fd.ops.nextafter(matrix(fd, DataType.Half), matrix(fd, DataType.Half))),
        (RuntimeError, lambda fd, x: fd.ops.matmul(x, matrix(fd, DataType.Half))),
        (RuntimeError, lambda fd, x: matrix(fd, shape=[1, -1])),
        (AssertionError, lambda fd, x: matrix(fd, contiguity=[True])),
        (AssertionError, lambda fd, x: matrix(fd, stride_order=[1, 1])),
    ],
)
def test_misuse_is_refused(error, use):
    with FusionDefinition() as definition:
        x = matrix(definition)
        with pytest.raises(error):
            use(definition, x)


def test_dtypes_are_those_of_the_library():
    """Half precision becomes single precision in arithmetic, and stays what it is in sums."""
    with FusionDefinition() as definition:
        x, i = matrix(definition, DataType.BFloat16), matrix(definition, DataType.Int)
        assert definition.ops.add(x, x).dtype() is DataType.Float
        assert definition.ops.sum(x, [1]).dtype() is DataType.BFloat16
        assert definition.ops.add(i, 2.0).dtype() is DataType.Double
        assert definition.ops.div(i, i).dtype() is DataType.Int
        assert definition.ops.truediv(i, i).dtype() is DataType.Float


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x.double(),
        lambda x: x.t().contiguous().t(),
        lambda x: torch.stack([x, x], -1)[..., 0],
        lambda x: x[:1],
    ],
)
def test_inputs_are_as_described(wrong):
    with FusionDefinition() as definition:
        definition.add_output(definition.ops.neg(matrix(definition)))
    x = torch.randn(3, 5)
    assert torch.equal(definition.execute([x])[0], -x)
    with pytest.raises(AssertionError):
        definition.execute([wrong(x)])


def test_every_operator_that_it_computes_is_recorded():
    assert set(KERNELS) <= set(stand_in.facts("signatures"))


@given(st.data())
def test_descriptors_say_what_strides_say(data):
    """A dimension is contiguous iff its stride is the number of elements inside of it."""
    shape = data.draw(st.lists(st.integers(2, 4), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    dense = torch.empty([shape[d] for d in order]).permute([order.index(d) for d in range(len(shape))])
    contiguity, ranks = compute_tensor_descriptor(dense.shape, dense.stride())
    assert contiguity == [True] * len(shape)
    assert [ranks[d] for d in order] == list(reversed(range(len(shape))))
    gaps = torch.stack([dense, dense], -1)[..., 0]
    assert not any(compute_tensor_descriptor(gaps.shape, gaps.stride())[0][-1:])
