"""What a command says on standard error: progress, notes, errors. Results go to standard output."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from pipeline.errors import TracelakeError
from pipeline.text import printable

_PLAIN_SECONDS = 10.0


class Voice:
    """Speaks on standard error; draws on a terminal, prints plain lines in a log, or is quiet."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """A line for people; nothing when quiet."""
        if not self._quiet:
            self._console.print(printable(text), markup=False)

    def warn(self, text: str) -> None:
        """A line that is said even when quiet."""
        self._console.print(f"warning: {printable(text)}", markup=False, style="yellow")

    def error(self, error: TracelakeError) -> None:
        """An error as one block: what, where, what next."""
        self._console.print(f"error: {printable(error.message)}", markup=False, style="red")
        if error.location:
            self._console.print(f"  where: {printable(error.location)}", markup=False)
        if error.hint:
            self._console.print(f"  next:  {printable(error.hint)}", markup=False)

    def bar(self) -> IngestBar:
        """Progress of an ingest, to be used as a context."""
        return IngestBar(self._console, self, enabled=not self._quiet)


class IngestBar:
    """Progress of an ingest: a bar on a terminal, a line now and then in a log."""

    def __init__(self, console: Console, voice: Voice, *, enabled: bool) -> None:
        self._voice = voice
        self._plain = enabled and not console.is_terminal
        self._weight = 0
        self._done = 0
        self._said = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not enabled or self._plain,
        )
        self._task = self._bar.add_task("reading", total=None)

    def __enter__(self) -> IngestBar:
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def planned(self, runs: int, weight: int) -> None:
        """See `pipeline.ingest.Progress`."""
        self._weight = weight
        self._bar.update(self._task, total=weight, description=f"reading {runs} runs")

    def advance(self, weight: int) -> None:
        """See `pipeline.ingest.Progress`; called from several threads."""
        self._done += weight
        self._bar.advance(self._task, weight)
        if self._plain and time.monotonic() - self._said > _PLAIN_SECONDS:
            self._said = time.monotonic()
            self._voice.say(f"read {self._done / 1e6:,.1f} of {self._weight / 1e6:,.1f} MB")
