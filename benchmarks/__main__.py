"""``python -m benchmarks [--case NAME] [--quick]``: measure, print and write the tables."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import executors, first_call, fp8, imports, overhead, report, steady
from benchmarks.harness import Table

CASES = {case.name: case for family in (imports, first_call, steady, fp8, overhead, executors) for case in family.CASES}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--case", action="append", choices=CASES, help="measure only this (may be given again)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and without torch.compile's inductor")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="folder for the tables")
    options = parser.parse_args()

    tables: dict[str, list[Table]] = {}
    failures: dict[str, str] = {}
    for name in options.case or CASES:
        try:
            tables[name] = list(CASES[name].run(options.quick))
        except RuntimeError as error:
            failures[name] = str(error)
            print(f"{name}: {error}\n", flush=True)
            continue
        for table in tables[name]:
            print(report.markdown(table), flush=True)
    report.write(tables, failures, options.out)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
