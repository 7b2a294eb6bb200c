"""Derived rules against PyTorch's autograd on real tensors, and what they save."""

from __future__ import annotations

from dataclasses import replace

import pytest

from thunder.grad.derive import derive
from thunder.grad.rule import Rule, formal_call
from thunder.grad.rules import Rules
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.types import TensorType, Var

SQUARE = TensorType((4, 4), (4, 1), "float32", "cpu")
ROW = TensorType((4,), (1,), "float32", "cpu")


def var(name: str, type: TensorType = SQUARE) -> Var:
    return Var(name, replace(type, requires_grad=True))


X, W, B = var("x"), var("w"), var("b", ROW)


def rule_of(name: str, *args: object, outs: object = None, **kwargs: object) -> Rule:
    op = BoundSymbol(Symbol(name), args, kwargs, outs=outs)
    call, inputs = formal_call(op, tuple(True for _ in op.inputs))
    return derive(call, inputs, (SQUARE,))


@pytest.mark.parametrize(
    ("name", "args", "whole"),
    [
        ("torch.sin", (X,), True),
        ("torch.exp", (X,), True),  # saves its result
        ("torch.nn.functional.linear", (X, W, B), True),  # the transposed weight is taken again, not saved
        ("torch.nn.functional.gelu", (X,), True),
        ("torch.nn.functional.layer_norm", (X, (4,), B), False),  # saves mean and deviation
        ("torch.nn.functional.dropout", (X,), False),  # saves the mask
    ],
)
def test_a_call_stays_whole_if_backward_reads_only_its_arguments_and_results(name, args, whole):
    assert (rule_of(name, *args).forward is None) is whole


def test_a_linear_has_the_backward_that_autograd_runs():
    backward = [op.sym.name for op in rule_of("torch.nn.functional.linear", X, W, B).backward]
    assert sorted(backward) == ["aten.mm", "aten.mm", "aten.sum.dim_IntList", "aten.t", "aten.view"]


def test_an_argument_given_twice_is_one_input():
    rule = rule_of("torch.mul", X, X)
    assert len(rule.inputs) == len(rule.gradients) == 1


def test_equal_calls_share_a_rule_and_different_ones_do_not():
    rules = Rules()

    def find(name: str, *args: object, needs: tuple[bool, ...] = (True, True)) -> Rule:
        op = BoundSymbol(Symbol(name), args, outs=Var("out", SQUARE))
        return rules.find(op, needs, (SQUARE,))

    first = find("torch.matmul", X, W)
    assert find("torch.matmul", var("y"), var("v")) is first
    assert find("torch.matmul", X, W, needs=(True, False)) is not first
    assert find("torch.mul", X, W) is not first
    assert len(rules) == 3


def test_a_random_draw_is_an_effect_and_its_result_is_saved():
    rule = rule_of("torch.nn.functional.dropout", X)
    assert rule.forward is not None
    draws = [op for op in rule.forward if op.effects]
    assert [op.sym.name for op in draws] == ["aten.bernoulli.p"]
    assert not any(op.effects for op in rule.backward)


def test_mutation_inside_a_call_leaves_no_trace_of_itself():
    rule = rule_of("torch.nn.functional.dropout", X)
    assert all(not op.sym.name.split(".")[1].endswith("_") for op in rule.forward or ())
