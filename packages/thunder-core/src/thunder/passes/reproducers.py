"""Failures of fusers: one warning for each, with the path of a program that shows the failure by itself."""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from thunder.errors import PluginError
from thunder.ir.printer import render, samples
from thunder.ir.trace import Trace
from thunder.ir.types import NumberType
from thunder.plugins.spec import Executor


def report_failure(
    executor: Executor, options: Mapping[str, Any], what: str, region: Trace, error: BaseException
) -> None:
    """Warn that an executor failed on a region, which runs unfused. Raises PluginError under ``THUNDER_STRICT=1``.

    options: those of the executor that it failed with, by short name.
    """
    script = save_reproducer(executor, options, region)
    why = f"{type(error).__name__}: {error}"
    fix = f"run {script} to see it; executors=[..., '-{executor.name}'] does without the executor"
    failure = PluginError(f"{executor.name} {what}: it runs unfused", where=str(script), why=why, fix=fix)
    if os.environ.get("THUNDER_STRICT") == "1":
        raise failure from error
    warnings.warn(str(failure), RuntimeWarning, stacklevel=2)


def save_reproducer(executor: Executor, options: Mapping[str, Any], region: Trace) -> Path:
    """A file with a program that runs the region unfused, then by the executor, on inputs of the right types."""
    text = reproducer_text(executor, options, region)
    path = _folder() / f"{executor.name}_{hashlib.sha256(text.encode()).hexdigest()[:12]}.py"
    path.write_text(text)
    return path


@cache
def _folder() -> Path:
    """Of this process, and for its user only."""
    return Path(tempfile.mkdtemp(prefix="thunder_"))


def reproducer_text(executor: Executor, options: Mapping[str, Any], region: Trace) -> str:
    """The program that ``save_reproducer`` saves."""
    defaults = {option.name: option.default for option in executor.options}
    changed = {f"{executor.name}.{name}": value for name, value in options.items() if value != defaults.get(name)}
    inputs = "".join(f"        {sample},\n" for sample in samples(region))
    numbers = "".join(f"    {p.name} = {p.type.example}\n" for p in region.params if isinstance(p.type, NumberType))
    way = "dynamic=True" if numbers else "frontend='functional'"
    settings = f"executors=[{executor.name!r}], options={changed!r}, {way}"
    return (
        f"{render(region).definition}\n\n"
        'if __name__ == "__main__":\n'
        "    import thunder\n\n"
        f"{numbers}    inputs = (\n{inputs}    )\n"
        f"    print({region.name}(*inputs))\n"
        f"    print(thunder.jit({region.name}, {settings})(*inputs))\n"
    )
