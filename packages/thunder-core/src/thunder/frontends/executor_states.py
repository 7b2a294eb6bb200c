"""Saving what executors keep for the layers of a jitted module, beside the module's own ``state_dict``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from thunder.frontends.places import identifier

_SITE = re.compile(r"(graph\d+\.)?(.*?)(_\d+)?")


def executor_state_dict(self: Any) -> dict[str, dict[str, Any]]:
    """What executors keep between steps: by call site, then by kind of state, in a form that ``torch.save`` takes.

    A call site is named after the parameter it applies (``"blocks.0.fc.weight"``), with a number if there are several.
    """
    paths = {identifier(path): path for path, _ in self.named_parameters()}
    saved: dict[str, dict[str, Any]] = {}
    for kind, by_site in self._thunder_states.state_dict().items():
        for site, value in by_site.items():
            saved.setdefault(_renamed(site, paths), {})[kind] = value
    return saved


def load_executor_state_dict(self: Any, saved: Mapping[str, Mapping[str, Any]]) -> None:
    """Restore what ``executor_state_dict`` gave, before or after the first call."""
    names = {path: identifier(path) for path, _ in self.named_parameters()}
    by_kind: dict[str, dict[str, Any]] = {}
    for site, of_site in saved.items():
        for kind, value in of_site.items():
            by_kind.setdefault(kind, {})[_renamed(site, names)] = value
    self._thunder_states.load_state_dict(by_kind)


def _renamed(site: str, names: Mapping[str, str]) -> str:
    """The name of a call site with the parameter in it renamed."""
    match = _SITE.fullmatch(site)
    assert match is not None
    graph, stem, count = (part or "" for part in match.groups())
    if stem + count in names:
        return graph + names[stem + count]
    return graph + names.get(stem, stem) + count
