"""The plugin contract: what a plugin is, and how plugins are found, validated and selected. No import of torch."""

from thunder.plugins.discovery import Found, Status
from thunder.plugins.manager import Registry, discover, registry
from thunder.plugins.options import CORE, resolve_options
from thunder.plugins.selection import select_executors
from thunder.plugins.symbols import RECORDER

__all__ = [
    "CORE",
    "RECORDER",
    "Found",
    "Registry",
    "Status",
    "discover",
    "registry",
    "resolve_options",
    "select_executors",
]
