"""What people see while compiling takes longer than a moment: a bar on a terminal, else a line in the log."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from thunder.observe.logs import compiles
from thunder.passes.progress import Progress

PATIENCE = 2.0
"""Seconds before anything is shown."""


class ShownProgress:
    """Told of progress, it shows it once that has gone on for a while. Thread-safe."""

    def __init__(self, timer: Callable[[float, Callable[[], None]], Any] = threading.Timer) -> None:
        self._new_timer = timer
        self._lock = threading.RLock()
        self._timer: Any = None
        self._bar: Any = None
        self._last: Progress | None = None

    def __call__(self, progress: Progress | None) -> None:
        with self._lock:
            self._last = progress
            if progress is None or progress.done == progress.total:
                self._end()
            elif self._timer is None:
                self._timer = self._new_timer(PATIENCE, self._show)
                self._timer.daemon = True
                self._timer.start()
            elif self._bar is not None:
                task, text = self._bar.task_ids[0], progress.what
                self._bar.update(task, description=text, completed=progress.done, total=progress.total, refresh=True)

    def _show(self) -> None:
        with self._lock:
            if self._timer is None or self._last is None:
                return
            if not sys.stderr.isatty():
                last = self._last
                compiles.info("%s: %s of %s done after %.0f s", last.what, last.done, last.total, PATIENCE)
                return
            self._bar = _bar()
            self._bar.add_task(self._last.what, total=self._last.total, completed=self._last.done)
            self._bar.start()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._bar is not None:
            self._bar.stop()
        self._timer = self._bar = None


def _console() -> Any:
    from rich.console import Console

    return Console(stderr=True)


def _bar() -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=_console(), transient=True)
