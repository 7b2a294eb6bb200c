"""What is printed runs."""

from __future__ import annotations

import contextlib
import io

from thunder.plugins.spec import Claim
from thunder.testing.suite.subject import Subject, scheduled


def test_printed_programs_run(subject: Subject, claim: Claim) -> None:
    """The text of every final trace is a program that runs by itself."""
    for sample in subject.taken(claim):
        jitted = subject.jit(sample)
        jitted(*sample.inputs())
        for trace in scheduled(jitted):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(str(trace), f"<{trace.name}>", "exec"), {"__name__": "__main__"})
            assert printed.getvalue()
