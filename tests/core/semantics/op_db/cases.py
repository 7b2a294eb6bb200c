"""Which calls are swept: PyTorch's operator database, by operator, dtype, variant and sample."""

from __future__ import annotations

import copy
import random
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations as invocations
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves, tree_map

# The database wraps random operators in a call that seeds the generator: that is Python, not the operator.
invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

_WITH_STORAGE = (torch.strided, torch.sparse_coo)
DTYPES = (torch.float32, torch.complex64, torch.bfloat16, torch.int64, torch.bool)


class Variant(Enum):
    """How an operator is called."""

    FUNCTION = "function"
    METHOD = "method"
    OPERATOR = "operator"
    INPLACE = "inplace"
    INPLACE_OPERATOR = "inplace_operator"
    OUT = "out"


WRITING = (Variant.INPLACE, Variant.INPLACE_OPERATOR, Variant.OUT)


@dataclass(frozen=True)
class Case:
    """One operator called in one way on samples of one dtype. grad: with inputs that require grad."""

    info: OpInfo
    variant: Variant
    dtype: torch.dtype
    grad: bool

    def __str__(self) -> str:
        grad = "grad" if self.grad else "plain"
        return f"{operator_name(self.info)}-{self.variant.value}-{str(self.dtype).removeprefix('torch.')}-{grad}"

    @property
    def seed(self) -> int:
        """The seed of the random generators; the same in every process."""
        return zlib.crc32(operator_name(self.info).encode()) % 2**31


@dataclass(frozen=True)
class Call:
    """The arguments of one call. ``fresh`` gives copies that share memory among each other as the originals do."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    processed: Callable[[Any], Any]

    def fresh(self) -> Call:
        """The same call on tensors of its own."""
        memo: dict[int, Any] = {}
        made: dict[int, torch.Tensor] = {}

        def copied(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            if id(leaf) not in made:
                bare = leaf.detach()
                twin = copy.deepcopy(bare, memo) if leaf.layout in _WITH_STORAGE else bare.clone()
                twin.requires_grad_(leaf.requires_grad)
                made[id(leaf)] = (
                    torch.nn.Parameter(twin, leaf.requires_grad) if type(leaf) is torch.nn.Parameter else twin
                )
            return made[id(leaf)]

        return Call(tree_map(copied, self.args), tree_map(copied, self.kwargs), self.processed)

    def tensors(self) -> list[torch.Tensor]:
        """The different tensors among the arguments."""
        found = (leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, torch.Tensor))
        return list({id(t): t for t in found}.values())


def operator_name(info: OpInfo) -> str:
    """The operator's name in the database, unique."""
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


def operators() -> dict[str, OpInfo]:
    """Every entry of the database, by name."""
    return {operator_name(info): info for info in op_db}


def cases(info: OpInfo, dtypes: tuple[torch.dtype, ...] = DTYPES) -> Iterator[Case]:
    """All ways to call an operator on the CPU."""
    supported = info.supported_dtypes("cpu")
    for dtype in dtypes:
        if dtype not in supported:
            continue
        differentiable = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
        for variant in Variant:
            if not _exists(info, variant):
                continue
            yield Case(info, variant, dtype, grad=False)
            grad_variant = variant is not Variant.OUT and (variant not in WRITING or info.supports_inplace_autograd)
            if differentiable and grad_variant:
                yield Case(info, variant, dtype, grad=True)


def _exists(info: OpInfo, variant: Variant) -> bool:
    if variant is Variant.OUT:
        return bool(info.supports_out)
    return variant is Variant.FUNCTION or callable(_entry(info, variant))


def _entry(info: OpInfo, variant: Variant) -> Any:
    return {
        Variant.FUNCTION: info.op,
        Variant.OUT: info.op,
        Variant.METHOD: info.method_variant,
        Variant.OPERATOR: info.operator_variant,
        Variant.INPLACE: info.inplace_variant,
        Variant.INPLACE_OPERATOR: info.inplace_operator_variant,
    }[variant]


def program(case: Case) -> Callable[..., Any]:
    """The program a case runs: a function of the call's arguments."""
    entry = _entry(case.info, case.variant)

    def run(*args: Any, **kwargs: Any) -> Any:
        return entry(*args, **kwargs)

    return run


def calls(case: Case, limit: int) -> Iterator[tuple[int, Call]]:
    """Up to ``limit`` samples of a case, spread over all that the operator has, with their positions."""
    torch.manual_seed(case.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(case.info.sample_inputs("cpu", case.dtype, requires_grad=case.grad))
    count = len(samples)
    chosen = range(count) if count <= limit else sorted({round(i * (count - 1) / (limit - 1)) for i in range(limit)})
    for index in chosen:
        call = _call(case, samples[index])
        if call is not None:
            yield index, call


def _call(case: Case, sample: SampleInput) -> Call | None:
    args = (sample.input, *sample.args)
    call = Call(args, dict(sample.kwargs), sample.output_process_fn_grad)
    if case.variant in (Variant.INPLACE, Variant.INPLACE_OPERATOR) and sample.broadcasts_input:
        return None
    return _with_out(case, call) if case.variant is Variant.OUT else call


def _with_out(case: Case, call: Call) -> Call | None:
    """The call with ``out=`` as eager fills it; None if this sample returns nothing that can be written to."""
    seeded = call.fresh()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = case.info.op(*seeded.args, **seeded.kwargs)
    except Exception:
        return None
    if not all(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(expected)):
        return None
    if any(leaf.layout is not torch.strided for leaf in tree_leaves(expected)):
        return None
    out = tree_map(_blank, expected)
    return Call(call.args, {**call.kwargs, "out": tuple(out) if isinstance(out, tuple) else out}, call.processed)


def _blank(t: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(t.resolve_conj().resolve_neg().detach())


def seeded_sample(count: int, seed: int) -> tuple[str, ...]:
    """Names of ``count`` operators, drawn at random."""
    names = sorted(operators())
    return tuple(sorted(random.Random(seed).sample(names, min(count, len(names)))))
