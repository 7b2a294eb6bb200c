"""Records what the real nvFuser says of its operators: ``python -m tests.nvfuser.record`` writes ``operators.json``.

The file holds the signatures that the binding reports, and which dtypes its operators make of which: facts that the
stand-in (``stand_in.py``) holds lowerings to where the library is not installed. ``real_library.py`` compares the file
with the library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("operators.json")
DTYPES = ("Double", "Float", "Half", "BFloat16", "Int", "Int32", "Bool")
PYTHON = {"bool": True, "int": 2, "float": 2.0}
UNUSED = re.compile(r"grouped|nv_|cutlass|scaled_mm|topk|argsort|cum|complex|imag|real|triu|segment|^shape$")
"""Operators that no lowering uses."""


def record() -> dict[str, Any]:
    """Of groups of operators that are alike: signatures; operand dtypes by result dtypes. Others are refused."""
    import nvfuser_direct

    names = [n for n in dir(nvfuser_direct.FusionDefinition().ops) if not n.startswith("_") and not UNUSED.search(n)]
    signatures = {name: found for name in names if (found := _signatures(nvfuser_direct, name))}
    results = {name: found for name in signatures if (found := _results(nvfuser_direct, name, signatures[name]))}
    return {"signatures": _grouped(signatures), "results": _grouped(results)}


def _grouped(by_name: dict[str, Any]) -> dict[str, Any]:
    """One entry for all names with equal values."""
    names: dict[str, list[str]] = {}
    for name, value in by_name.items():
        names.setdefault(json.dumps(value), []).append(name)
    return {" ".join(group): json.loads(value) for value, group in names.items()}


def ungrouped(by_group: dict[str, Any]) -> dict[str, Any]:
    """The entry of each name."""
    return {name: value for group, value in by_group.items() for name in group.split()}


def _signatures(library: Any, name: str) -> list[str]:
    """One line for each overload, as the binding prints them."""
    with library.FusionDefinition() as definition:
        try:
            getattr(definition.ops, name)(object())
        except TypeError as error:
            return [_short(line) for line in re.findall(r"\d+\. (\(.*\) -> .*)", str(error))]
    return []


def _short(line: str) -> str:
    line = re.sub(r"nvfuser_direct\._C_DIRECT\.|collections\.abc\.|typing\.", "", line)
    line = re.sub(r"<(DataType\.\w+): \d+>", r"\1", line)
    return re.sub(r"Val \| None \| nvfuser::.*?bool>\]", "Scalar", line)


def _results(library: Any, name: str, signatures: list[str]) -> dict[str, list[str]]:
    """The kinds of operands of an elementwise operator or a reduction, by the dtypes of its results."""
    found: dict[str, list[str]] = {}
    for kinds, kwargs in _operands(name, signatures):
        if (made := _made(library, name, kinds, kwargs)) is not None:
            found.setdefault(made, []).append(" ".join(kinds))
    return found


def _operands(name: str, signatures: list[str]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """What is tried: with a tensor, and of three operands, the tensors of one dtype."""
    widths = {line.count("arg") for line in signatures if "arg0: TensorView" in line}
    if widths:
        (width,) = widths
        kinds = [k for k in product((*DTYPES, *PYTHON), repeat=width) if set(k) & set(DTYPES)]
        if width > 2:
            kinds = [
                (first, *rest)
                for dtype in DTYPES
                for first in dict.fromkeys((dtype, "Bool"))
                for rest in product(
                    (dtype, f"scalar:{dtype}", *PYTHON) if width == 3 else (dtype, "int", "float"), repeat=width - 1
                )
            ]
        yield from ((k, {}) for k in kinds)
    if any("dims: Sequence[SupportsInt]" in line for line in signatures) and name not in ("permute", "squeeze"):
        yield from (((dtype,), {"dims": [1]}) for dtype in DTYPES)


def _made(library: Any, name: str, kinds: tuple[str, ...], kwargs: dict[str, Any]) -> str | None:
    with library.FusionDefinition() as definition:
        operands = [_operand(library, definition, kind) for kind in kinds]
        try:
            out = getattr(definition.ops, name)(*operands, **kwargs)
        except (RuntimeError, TypeError):
            return None
        views = out if isinstance(out, tuple) else (out,)
        return ",".join(view.dtype().name if isinstance(view, library.TensorView) else "Val" for view in views)


def _operand(library: Any, definition: Any, kind: str) -> Any:
    if kind in PYTHON:
        return PYTHON[kind]
    _, scalar, dtype = kind.rpartition("scalar:")
    if scalar:
        return definition.define_scalar(1, dtype=getattr(library.DataType, dtype))
    descriptor = {"shape": [-1, -1], "contiguity": [True, True], "stride_order": [1, 0]}
    return definition.define_tensor(**descriptor, dtype=getattr(library.DataType, dtype))


def lines(facts: dict[str, Any]) -> Iterator[str]:
    """The facts as JSON, an operator a line."""
    yield "{"
    for section, end in (("signatures", ","), ("results", "")):
        yield f'"{section}": {{'
        entries = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in facts[section].items()]
        yield ",\n".join(entries)
        yield f"}}{end}"
    yield "}"


if __name__ == "__main__":
    FILE.write_text("\n".join(lines(record())) + "\n")
