"""The operators that nvFuser runs, as the README has them: ``python -m tests.nvfuser.table``."""

from __future__ import annotations

from thunder_nvfuser.lowerings import TABLE
from thunder_nvfuser.table import ANY, FLOATS, INTEGERS, NUMBERS, Row

_NAMES = {FLOATS: "floating point", INTEGERS: "integers", NUMBERS: "numbers", ANY: "any"}


def table() -> str:
    """One line for all operators with the same dtypes and option."""
    lines: dict[tuple[str, str, str], list[str]] = {}
    for target, row in TABLE.items():
        key = (_dtypes(row.operands), _dtypes(row.results), _when(row))
        lines.setdefault(key, []).append(target.removeprefix("aten."))
    body = [
        f"| {' '.join(f'`{n}`' for n in names)} | {takes} | {makes} | {when} |"
        for (takes, makes, when), names in lines.items()
    ]
    return "\n".join(["| operators | take | make | |", "| --- | --- | --- | --- |", *body])


def _dtypes(names: frozenset[str]) -> str:
    return _NAMES.get(names) or ", ".join(sorted(names)) or "nothing"


def _when(row: Row) -> str:
    return f"`nvfuser.{row.option}`" if row.option else ""


if __name__ == "__main__":
    print(table())
