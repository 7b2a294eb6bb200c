"""Errors that say what, where, why and what to do."""

from __future__ import annotations


class ThunderError(Exception):
    """Base of all errors Thunder raises.

    what: one line, what went wrong. where: the user's ``file:line``, or what else locates it. why: the cause.
    fix: what to do about it.
    """

    def __init__(self, what: str, *, where: str = "", why: str = "", fix: str = "") -> None:
        self.what, self.where, self.why, self.fix = what, where, why, fix
        rows = (("where", where), ("because", why), ("try", fix))
        lines = [f"  {label:<8}{text}" for label, text in rows if text]
        super().__init__("\n".join([what, *lines]))


class CaptureError(ThunderError):
    """The program does something that cannot be recorded soundly."""


class PluginError(ThunderError):
    """A plugin is broken, incompatible, unavailable or named wrongly."""


class OptionError(ThunderError):
    """An option does not exist or has a value that does not fit."""


class VerifyError(ThunderError):
    """A trace breaks the rules of its stage. This is a fault in Thunder or in a plugin, not in the user's program."""


class ExecutionError(ThunderError):
    """An executor failed while running an operation."""
