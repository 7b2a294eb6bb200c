"""Each fault of a specification is found, named and located; what has none passes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thunder.extend import Claim, Distribution, Executor, Fuser, Grad, Op, Option, Reads, StateKind, Updates, Writes
from thunder.plugins.targets import unknown_targets, unresolved
from thunder.plugins.validate import RESERVED, import_strings, validate

GOOD = Executor(
    name="mine",
    needs=(Distribution("torch", ">=2.0,<9"),),
    symbols=(
        Op("mine.mm", impl="math:sin", meta="math:cos", effects=(Updates("mine.amax"), Reads("mine.scale"))),
        Op("mine.sync", impl="math:tan", effects=(Writes("mine.amax"),)),
    ),
    states=(StateKind(name="mine.amax", init="math:exp", close="mine.sync"), StateKind(name="mine.scale")),
    claims=(
        Claim("torch.bmm", check="math:pow", lower="math:log", grad=Grad(forward="math:ceil", backward="math:erf")),
    ),
    options=(Option("recipe", str, "delayed", "", choices=("delayed", "current")), Option("margin", int, None, "")),
    cache_key="math:floor",
    before=("torch",),
)
FUSER = Fuser(supports="math:sin", compile="math:cos")
OP, CLOSER = GOOD.symbols
AMAX, SCALE = GOOD.states
(CLAIM,) = GOOD.claims
CHAIN = Claim(("torch.mm", "torch.relu"), lower="math:log")


def wrong(**changes: Any) -> Executor:
    return replace(GOOD, **changes)


FAULTS = {
    "api": (wrong(api=2), "api", "version 2"),
    "name": (wrong(name="Mine"), "name", "'Mine' is not a valid name"),
    "name that is no text": (wrong(name=3), "name", "3 is not a valid name"),
    "numerics": (wrong(numerics="roughly"), "numerics", "roughly"),
    "approximate default": (wrong(default=True, numerics="approximate"), "default", "exact"),
    "before itself": (wrong(before=("mine",)), "before", "'mine'"),
    "before no name": (wrong(before=("A B",)), "before", "'A B'"),
    "specifier": (wrong(needs=(Distribution("torch", "two"),)), "need", "invalid specifier 'two'"),
    "symbol prefix": (wrong(symbols=(*GOOD.symbols, Op("other.mm", impl="m:f"))), "prefix", "symbol 'other.mm'"),
    "symbol spelling": (wrong(symbols=(*GOOD.symbols, Op("mine.a b", impl="m:f"))), "prefix", "symbol 'mine.a b'"),
    "state prefix": (wrong(states=(*GOOD.states, StateKind(name="minor.x"))), "prefix", "state 'minor.x'"),
    "two symbols": (wrong(symbols=(*GOOD.symbols, OP)), "duplicate", "symbol 'mine.mm': declared 2 times"),
    "two states": (wrong(states=(*GOOD.states, SCALE)), "duplicate", "state 'mine.scale'"),
    "two claims": (wrong(claims=(CLAIM, CLAIM)), "duplicate", "claim on 'torch.bmm'"),
    "two options": (wrong(options=(*GOOD.options, GOOD.options[0])), "duplicate", "option 'recipe'"),
    "undeclared state": (
        wrong(symbols=(*GOOD.symbols, Op("mine.x", impl="m:f", effects=(Reads("mine.scala"),)))),
        "effect",
        "undeclared state 'mine.scala' (did you mean \"mine.scale\"",
    ),
    "closer is no symbol": (
        wrong(states=(replace(AMAX, close="mine.synk"), SCALE)),
        "closer",
        "'mine.synk' is not a symbol of this executor (did you mean \"mine.sync\"",
    ),
    "only the closer changes the state": (
        wrong(symbols=(replace(OP, effects=(Reads("mine.amax"),)), CLOSER)),
        "untriggered",
        "nothing triggers 'mine.sync'",
    ),
    "cache_key": (wrong(cache_key="math.floor"), "import", "cache_key: malformed import string 'math.floor'"),
    "impl": (wrong(symbols=(replace(OP, impl="a-b:c"), CLOSER)), "import", "symbol 'mine.mm', impl"),
    "impl that is no text": (wrong(symbols=(replace(OP, impl=len), CLOSER)), "import", "symbol 'mine.mm', impl"),
    "meta": (wrong(symbols=(replace(OP, meta="m:"), CLOSER)), "import", "symbol 'mine.mm', meta"),
    "init": (wrong(states=(replace(AMAX, init=":f"), SCALE)), "import", "state 'mine.amax', init"),
    "check": (wrong(claims=(replace(CLAIM, check="m:f:g"),)), "import", "claim on 'torch.bmm', check"),
    "lower": (wrong(claims=(replace(CLAIM, lower="m f"),)), "import", "claim on 'torch.bmm', lower"),
    "forward": (
        wrong(claims=(replace(CLAIM, grad=Grad(forward="f", backward="m:f")),)),
        "import",
        "claim on 'torch.bmm', grad forward",
    ),
    "backward": (
        wrong(claims=(replace(CLAIM, grad=Grad(forward="m:f", backward="m.f")),)),
        "import",
        "claim on 'torch.bmm', grad backward",
    ),
    "two chains": (wrong(claims=(CHAIN, CHAIN)), "duplicate", "('torch.mm', 'torch.relu')"),
    "chain of one": (wrong(claims=(replace(CHAIN, target=("torch.mm",)),)), "chain", "two calls or more"),
    "chain of operators": (
        wrong(claims=(replace(CHAIN, target=("torch.mm", "aten.relu")),)),
        "chain",
        "'aten.relu' is no torch symbol",
    ),
    "chain that nothing runs": (wrong(claims=(replace(CHAIN, lower=None),)), "chain", "nothing runs it as one call"),
    "chain with a derivative": (wrong(claims=(replace(CHAIN, grad=CLAIM.grad),)), "chain", "no gradient is needed"),
    "list of targets": (
        wrong(claims=(replace(CHAIN, target=["torch.mm", "torch.relu"]),)),
        "structure",
        "claim, target: list instead of a tuple of str",
    ),
    "option name": (wrong(options=(Option("a.b", int, 1, ""),)), "name", "'a.b'"),
    "option type": (wrong(options=(Option("a", list, [], ""),)), "option", "one of bool, int, float, str"),
    "option default": (wrong(options=(Option("a", int, True, ""),)), "option", "True is not of its type, int"),
    "option choice type": (wrong(options=(Option("a", int, 1, "", choices=(1, 2.0)),)), "option", "2.0 is not of its"),
    "option default no choice": (wrong(options=(Option("a", int, 3, "", choices=(1, 2)),)), "option", "default 3"),
    "list": (wrong(claims=[CLAIM]), "structure", "claims: list instead of a tuple of Claim"),
    "item": (wrong(symbols=("mine.mm",)), "structure", "symbols: 'mine.mm' instead of Op"),
    "one need": (wrong(needs=Distribution("torch")), "structure", "Distribution or Modules or Cuda or Probe"),
    "text for names": (wrong(before="torch"), "structure", "before: str instead of a tuple of str"),
    "effects": (wrong(symbols=(replace(OP, effects=("mine.amax",)),)), "structure", "symbol 'mine.mm', effects"),
    "grad": (wrong(claims=(replace(CLAIM, grad=("m:f", "m:g")),)), "structure", "claim on 'torch.bmm': grad is"),
    "fuser": (wrong(fuser="math:sin"), "structure", "fuser: 'math:sin' instead of a Fuser"),
    "fuser's code": (wrong(fuser=replace(FUSER, pays="math.sin")), "import", "fuser, pays: malformed"),
    "fuser absorbs": (wrong(fuser=replace(FUSER, absorbs=("mine.amix",))), "effect", "undeclared state 'mine.amix'"),
    "fuel": (wrong(fuser=FUSER, options=(Option("fuel", int, None, ""),)), "duplicate", "option 'fuel'"),
}


def test_a_good_fuser_has_no_fault():
    fuser = replace(FUSER, pays="math:log", alone="math:cos", show="math:tan", absorbs=("torch.random", "mine.amax"))
    executor = wrong(fuser=fuser)
    assert validate(executor) == ()
    assert unresolved(executor) == ()
    where = [place for place, _ in import_strings(executor) if place.startswith("fuser")]
    assert where == ["fuser, supports", "fuser, compile", "fuser, pays", "fuser, alone", "fuser, show"]


def test_a_good_one_has_no_fault():
    assert validate(GOOD) == ()
    assert unknown_targets(GOOD) == ()
    assert unresolved(GOOD) == ()
    assert len(list(import_strings(GOOD))) == 9


@pytest.mark.parametrize(("executor", "kind", "text"), FAULTS.values(), ids=FAULTS)
def test_each_fault(executor, kind, text):
    found = [fault for fault in validate(executor) if fault.kind == kind and text in str(fault)]
    assert found, f"none of {[str(fault) for fault in validate(executor)]}"


@pytest.mark.parametrize("name", sorted(set(FAULTS) - {"name", "name that is no text", "effects"}))
def test_one_mistake_gives_one_fault(name):
    assert len(validate(FAULTS[name][0])) == 1


@given(st.text(max_size=8) | st.from_regex(r"[a-zA-Z_0-9]{0,8}", fullmatch=True) | st.sampled_from(sorted(RESERVED)))
def test_names(name):
    good = name.isascii() and name.isidentifier() and name == name.lower() and name[0] != "_" and name not in RESERVED
    assert (not validate(Executor(name=name))) is good


@pytest.mark.parametrize(
    "target",
    [
        "torch.sin",
        "torch.nn.functional.linear",
        "torch.matmul",
        "torch.nn.functional.gelu",
        "aten.mm",
        "aten.add.Tensor",
    ],
)
def test_targets_that_exist(target):
    assert unknown_targets(Executor(name="mine", claims=(Claim(target),))) == ()


@pytest.mark.parametrize(
    ("target", "suggestion"),
    [
        ("torch.nn.functional.linaer", "torch.nn.functional.linear"),
        ("torch.sinn", "torch.sin"),
        ("aten.bmmm", "aten.bmm"),
        ("aten.add.Tensr", "aten.add.Tensor"),
        ("aten.add", "aten.add"),
        ("nn.functional.layer_norm", "torch.nn.functional.layer_norm"),
        ("torch.float32", "torch"),
        ("torch", ""),
        ("aten", ""),
        ("", ""),
    ],
)
def test_targets_that_do_not(target, suggestion):
    (fault,) = unknown_targets(Executor(name="mine", claims=(Claim(target),)))
    assert fault.kind == "target"
    assert suggestion in fault.fix


@pytest.mark.parametrize(
    ("alias", "name"),
    [("torch.Tensor.matmul", "torch.matmul"), ("torch._C._nn.gelu", "torch.nn.functional.gelu")],
)
def test_targets_by_another_name(alias, name):
    for target in (alias, ("torch.sin", alias)):
        (fault,) = unknown_targets(Executor(name="mine", claims=(Claim(target),)))
        assert fault.kind == "alias"
        assert f'"{name}"' in fault.fix


def test_a_good_chain_has_no_fault():
    executor = wrong(claims=(CLAIM, CHAIN))
    assert validate(executor) == ()
    assert unknown_targets(executor) == ()


def test_code_that_does_not_import():
    executor = replace(GOOD, cache_key="math:nothing", symbols=(replace(OP, impl="no_such_module:f"), CLOSER))
    first, second = unresolved(executor)
    assert first.where == "cache_key"
    assert re.search("AttributeError.*nothing", first.fix)
    assert second.where == "symbol 'mine.mm', impl"
    assert "No module named 'no_such_module'" in second.fix
