"""From what users ask for to the settings of a compilation."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from thunder.plugins import registry, resolve_options, select_executors
from thunder.runtime.driver import Settings


def make_settings(executors: str | Sequence[Any] | None, options: Mapping[str, Any] | None) -> Settings:
    """Executors and options, resolved. ``THUNDER_VERIFY=1`` checks every trace between passes."""
    selected = select_executors(executors, registry())
    resolved = resolve_options(options or {}, selected)
    return Settings(executors=selected, options=resolved, verify=os.environ.get("THUNDER_VERIFY") == "1")
