"""What shares memory, against what operators do."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.core.semantics.op_db.cases import Variant, calls, cases, operators, seeded_sample
from thunder.prims.facts import is_view


class Sharing(TorchDispatchMode):
    """Collects the operators whose results share memory with arguments or each other, unlike what is known of them."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        out = op(*args, **(kwargs or {}))
        if not is_view(op) and not op._schema.is_mutable:
            read, made = storages((args, kwargs)), storages(out)
            if set(read) & set(made) or len(set(made)) < len(made):
                self.found.add(str(op))
        return out


def storages(value):
    tensors = [t for t in tree_leaves(value) if isinstance(t, torch.Tensor) and t.layout is torch.strided and t.numel()]
    return [t.untyped_storage()._cdata for t in tensors]


NAMES = {*seeded_sample(count=60, seed=1), "unsafe_split", "unsafe_chunk", "split"}


@pytest.mark.parametrize("name", sorted(name for name in NAMES if not name.startswith("jiterator")))  # it needs CUDA
def test_operators_that_share_memory_are_known_to(name):
    sharing = Sharing()
    for case in cases(operators()[name], (torch.float32,)):
        if case.variant is Variant.FUNCTION and not case.grad:
            for _, call in calls(case, 3):
                with sharing:
                    case.info.op(*call.args, **call.kwargs)
    assert not sharing.found
