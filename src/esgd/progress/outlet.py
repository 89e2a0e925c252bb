"""The console that progress is written to."""

from __future__ import annotations

from rich.console import Console


class Outlet(Console):
    """A console that falls silent when its reader has gone: training continues."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
