"""Facts about types of tensors, against torch."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from thunder.lang.values import tensor_type

SIZES = st.lists(st.integers(0, 3), max_size=4)


@given(SIZES, st.data())
def test_contiguity_is_that_of_torch(sizes, data):
    order = data.draw(st.permutations(range(len(sizes))))
    start = data.draw(st.integers(0, 1))
    t = torch.empty([size + start for size in sizes])[tuple(slice(start, None) for _ in sizes)].permute(order)
    type = tensor_type(t)
    assert type.is_contiguous == t.is_contiguous()
    assert type.numel == t.numel()
