"""What moves on a terminal while work goes on: a line that is gone when the work is done."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

# Cells of a bar, and of what stands beside it.
_BAR, _BAR_LEAST, _BESIDE_BAR = 40, 5, 95


class Moving:
    """A line that is drawn anew several times a second, from the first entry to the exit."""

    def __init__(self, console: Console, what: str, *columns: ProgressColumn) -> None:
        self._drawn = Progress(*columns, console=console, transient=True)
        self._task = self._drawn.add_task(what, total=None, counts="")

    def __enter__(self) -> Moving:
        self._drawn.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._drawn.stop()

    def update(self, **fields: Any) -> None:
        """See `rich.progress.Progress.update`; may be called from several threads."""
        self._drawn.update(self._task, **fields)


def spinner(console: Console, what: str) -> Moving:
    """A sign of life, what is done, and for how long already."""
    return Moving(
        console,
        what,
        SpinnerColumn("line"),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )


def ingest_bar(console: Console) -> Moving:
    """How much of the input is read, how fast and for how long still, and the field `counts`."""
    return Moving(
        console,
        "finding inputs",
        TextColumn("{task.description}"),
        BarColumn(max(_BAR_LEAST, min(_BAR, console.width - _BESIDE_BAR))),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[counts]}"),
    )
