from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from thunder.ir.types import TensorType, Var
from thunder.lang.bind import bind
from thunder.lang.names import canonical_name, resolve_symbol

TYPE = TensorType((2, 3), (3, 1), "float32", "cpu")
X, W = Var("x", TYPE), Var("w", TYPE)

WAYS_TO_WRITE = [
    (F.dropout, (X,), {}, [((), {"input": X, "training": True, "p": 0.5}), ((X, 0.5), {}), ((X,), {"inplace": False})]),
    (F.linear, (X, W), {}, [((X, W, None), {}), ((X,), {"weight": W})]),
    (torch.sum, (X, 1), {}, [((X,), {"dim": 1}), ((X, 1, False), {}), ((X,), {"axis": 1})]),
    (torch.Tensor.permute, (X, (0, 2, 1)), {}, [((X, 0, 2, 1), {}), ((X,), {"dims": (0, 2, 1)})]),
    (torch.add, (X, W), {}, [((X,), {"other": W}), ((X, W), {"alpha": 1})]),
    (torch.Tensor.view, (X, (3, 2)), {}, [((X, 3, 2), {})]),
    (torch.ops.aten.add.Scalar, (X, 2), {}, [((X, 2, 1), {})]),
]


@pytest.mark.parametrize(("fn", "args", "kwargs", "ways"), WAYS_TO_WRITE, ids=lambda v: getattr(v, "__name__", None))
def test_a_call_has_one_form_however_it_is_written(fn, args, kwargs, ways):
    name = canonical_name(fn)
    assert name is not None
    for given_args, given_kwargs in [(args, kwargs), *ways]:
        assert bind(name, resolve_symbol(name), given_args, given_kwargs) == (args, kwargs)


def test_arguments_that_fit_no_signature_stay_as_they_are():
    assert bind("torch.add", torch.add, (X, W, X, W), {}) == ((X, W, X, W), {})


@given(
    p=st.sampled_from([0.0, 0.5, 0.25]),
    training=st.booleans(),
    positional=st.integers(0, 3),
    spelt=st.sets(st.sampled_from(["p", "training"])),
)
def test_binding_keeps_the_meaning_of_a_call(p, training, positional, spelt):
    values = {"p": p, "training": training}
    args = (X, p, training)[: 1 + min(positional, 2)]
    kwargs = {key: values[key] for key in ("p", "training")[len(args) - 1 :] if key in spelt}
    bound_args, bound_kwargs = bind("torch.nn.functional.dropout", F.dropout, args, kwargs)

    def meaning(*args, **kwargs):
        return dict(zip(("input", "p", "training"), args)) | kwargs

    defaults = {"p": 0.5, "training": True}
    assert defaults | meaning(*bound_args, **bound_kwargs) == defaults | meaning(*args, **kwargs)
