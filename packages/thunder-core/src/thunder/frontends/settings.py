"""From what users ask for to the settings of a compilation."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from thunder.observe.progress import ShownProgress
from thunder.plugins import CORE, registry, resolve_options, select_executors
from thunder.plugins.spec import Transform
from thunder.runtime.driver import Settings


def make_settings(
    executors: str | Sequence[Any] | None,
    options: Mapping[str, Any] | None,
    transforms: Sequence[str | Transform] = (),
) -> Settings:
    """Executors, options and transforms, resolved. ``THUNDER_VERIFY=1`` checks every trace between passes.

    ``THUNDER_SELECT`` is the value of the option ``select`` where the user gives none.
    """
    selected = select_executors(executors, registry())
    ambient = {"select": os.environ["THUNDER_SELECT"]} if os.environ.get("THUNDER_SELECT") else {}
    resolved = resolve_options({**ambient, **(options or {})}, selected, CORE)
    passes = tuple(registry().transform(t) if isinstance(t, str) else t for t in transforms)
    verify = os.environ.get("THUNDER_VERIFY") == "1"
    return Settings(executors=selected, options=resolved, transforms=passes, verify=verify, progress=ShownProgress())
