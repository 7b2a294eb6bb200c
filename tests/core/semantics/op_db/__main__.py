"""``python -m tests.core.semantics.op_db``: sweep operators and print what is not right, then the counts."""

from __future__ import annotations

import argparse
import time
from collections import Counter

import torch

from tests.core.semantics.op_db.cases import DTYPES, cases, operators
from tests.core.semantics.op_db.sweep import Outcome, Verdict, sweep, table


def main() -> None:
    """Parse the command line, sweep, report."""
    parser = argparse.ArgumentParser(prog="python -m tests.core.semantics.op_db", description=__doc__)
    parser.add_argument("--ops", default="", help="names, separated by commas; all if not given")
    parser.add_argument("--dtypes", default="", help="float32,complex64,…; all five if not given")
    parser.add_argument("--limit", type=int, default=6, help="samples per case")
    parser.add_argument("--part", default="0/1", help="i/n: every n-th operator from the i-th")
    parser.add_argument("--functional-only", action="store_true", help="do not try the dynamo front end")
    options = parser.parse_args()
    known = operators()
    names = options.ops.split(",") if options.ops else sorted(known)
    part, parts = (int(n) for n in options.part.split("/"))
    dtypes = tuple(getattr(torch, name) for name in options.dtypes.split(",")) if options.dtypes else DTYPES
    start, outcomes, used = time.perf_counter(), [], set()
    for name in names[part::parts]:
        for outcome in sweep(cases(known[name], dtypes), options.limit, other=not options.functional_only):
            outcomes.append(outcome)
            used.add(name)
            if outcome.verdict in (Verdict.WRONG, Verdict.DECLINED):
                print(" ".join(str(outcome).split())[:700], flush=True)
    print(
        f"{len(used)} operators, {len(outcomes)} samples, {time.perf_counter() - start:.0f} s: {dict(table(outcomes))}"
    )
    print(f"wrong by kind: {dict(_kinds(outcomes))}")


def _kinds(outcomes: list[Outcome]) -> Counter[str]:
    return Counter(d.kind for outcome in outcomes if outcome.verdict is Verdict.WRONG for d in outcome.found[:1])


if __name__ == "__main__":
    main()
