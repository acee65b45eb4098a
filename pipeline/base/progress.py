"""Draw moving lines on a terminal while work goes on; they disappear at its end."""

from __future__ import annotations

from typing import Any

from rich import progress
from rich.console import Console
from rich.progress import Progress, ProgressColumn, TextColumn

# Cells of a bar, and of the text beside it.
_BAR, _BAR_LEAST, _BESIDE_BAR = 40, 5, 95


class Moving:
    """A line that is redrawn several times a second, from entry to exit."""

    def __init__(self, console: Console, what: str, *columns: ProgressColumn) -> None:
        self._drawn = Progress(*columns, console=console, transient=True)
        self._task = self._drawn.add_task(what, total=None, counts="", left="")

    def __enter__(self) -> Moving:
        self._drawn.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._drawn.stop()

    def update(self, **fields: Any) -> None:
        """See `rich.progress.Progress.update`; may be called from several threads."""
        self._drawn.update(self._task, **fields)


def spinner(console: Console, what: str) -> Moving:
    """Return a spinner with a description and the elapsed time."""
    return Moving(
        console,
        what,
        progress.SpinnerColumn("line"),
        TextColumn("{task.description}"),
        progress.TimeElapsedColumn(),
    )


def ingest_bar(console: Console) -> Moving:
    """Return a bar with the share read, the rate, and the fields `left` and `counts`."""
    return Moving(
        console,
        "finding inputs",
        TextColumn("{task.description}"),
        progress.BarColumn(max(_BAR_LEAST, min(_BAR, console.width - _BESIDE_BAR))),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[counts]}"),
    )
