"""Print progress, notes and errors of a command on standard error."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import tracelake
from tracelake.base.errors import TracelakeError
from tracelake.base.figures import amount, count
from tracelake.base.text import counted, pasteable, printable

if TYPE_CHECKING:
    from rich.console import Console as Terminal

    from tracelake.base.progress import Moving


_PLAIN_SECONDS = 10.0
# The time left follows the speed after the first progress, because parsers compile before it. It is
# shown after some seconds, and after a share of the input or a minute.
_LEAST_SECONDS, _LEAST_SHARE, _ENOUGH_SECONDS = 5.0, 0.05, 60.0
# With these variables rich prints as on a terminal although there is none.
_FORCED = ("FORCE_COLOR", "TTY_COMPATIBLE")
# If set, the traceback of every error is printed.
TRACEBACK = "TRACELAKE_TRACEBACK"


class Console:
    """Prints to standard error: moving lines on a terminal, plain lines in a log."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._terminal: Terminal | None = None
        if not _is_log():
            from tracelake.base.drawing import error_console  # noqa: PLC0415 - rich is slow

            self._terminal = error_console()

    @property
    def draws(self) -> bool:
        """Tell whether standard error is a terminal that can show moving lines."""
        return self._terminal is not None and self._terminal.is_terminal

    def say(self, text: str) -> None:
        """Print a line for people; print nothing when quiet."""
        if not self._quiet:
            self._emit("info", "note", text)

    def progress(self, text: str, **figures: object) -> None:
        """Print the progress as a line for people; the figures are for programs."""
        if not self._quiet:
            self._emit("info", "progress", text, **figures)

    def warn(self, text: str) -> None:
        """Print a warning, even when quiet."""
        self._emit("warning", "warning", text)

    def ended(self, how: str) -> None:
        """Print that a signal has ended the command."""
        self._emit("error", how, how)

    def error(self, error: TracelakeError) -> None:
        """Print an error as one block: what, where, why, what next."""
        if TRACEBACK in os.environ:
            self._emit("error", "traceback", _trace(error))
        then = error.hint and pasteable(error.hint)
        self._block(
            error.message,
            {"where": error.location, "why": _causes(error, error.message), "next": then},
        )

    def bug(self, error: BaseException) -> None:
        """Print an unexpected error: what to report, and its traceback.

        The traceback goes to a file if standard error is a terminal, and is printed otherwise.
        """
        command = shlex.join(["tracelake", *sys.argv[1:]])
        python = f"Python {platform.python_version()}, {platform.platform()}"
        version = f"tracelake {tracelake.__version__}, {python}"
        kept = None
        if self.draws and TRACEBACK not in os.environ:
            kept = _keep(f"{version}\n{command}\n\n{_trace(error)}\n")
        if kept is None:
            self._emit("error", "traceback", _trace(error))
        last = traceback.extract_tb(error.__traceback__)[-1:]
        named = "".join(traceback.format_exception_only(error)).strip()
        self._block(
            f"a bug in tracelake: {named}",
            {
                "where": "".join(f"{at.filename}:{at.lineno} in {at.name}" for at in last),
                "why": _causes(error, str(error)),
                "command": command,
                "version": version,
                "traceback": kept or "above",
                "next": "report it with the traceback; everything committed to the lake is intact",
            },
        )

    @contextmanager
    def doing(self, what: str) -> Iterator[Callable[[str], None]]:
        """Show a long task: a spinner on a terminal, a line now and then in a log.

        Yields:
            A function to call with each step of the work.
        """
        printed = time.monotonic()
        drawn: Moving | None = None
        if screen := self._screen():
            from tracelake.base.progress import spinner  # noqa: PLC0415 - rich takes long to import

            drawn = spinner(screen, what)

        def on_step(step: str) -> None:
            nonlocal printed
            if drawn:
                drawn.update(description=f"{what}: {step}")
            elif time.monotonic() - printed >= _PLAIN_SECONDS:
                printed = time.monotonic()
                self.progress(f"{what}: {step}", doing=what, step=step)

        with drawn or nullcontext():
            yield on_step

    @contextmanager
    def bar(self) -> Iterator[IngestBar]:
        """Show the progress of an ingest."""
        drawn: Moving | None = None
        if screen := self._screen():
            from tracelake.base.progress import ingest_bar  # noqa: PLC0415 - rich takes long to import

            drawn = ingest_bar(screen)
        with drawn or nullcontext():
            yield IngestBar(self, drawn)

    def _screen(self) -> Terminal | None:
        """Return the terminal if it shows moving lines."""
        return self._terminal if self.draws and not self._quiet else None

    def _block(self, what: str, facts: dict[str, str | None]) -> None:
        self._print(f"error: {what}", style="red")
        width = 2 + max([5, *(len(name) for name, fact in facts.items() if fact)])
        for name, fact in facts.items():
            if fact:
                label = f"{name}:"
                self._print(f"  {label:<{width}}{fact}")

    def _emit(self, level: str, event: str, text: str, **fields: object) -> None:
        """Print a message; event and fields are for programs."""
        del event, fields
        if level == "warning":
            self._print(f"warning: {text}", style="yellow")
        else:
            self._print(text)

    def _print(self, text: str, style: str | None = None) -> None:
        if self._terminal:
            self._terminal.print(printable(text), markup=False, emoji=False, style=style)
        else:
            _write(f"{printable(text)}\n")


class IngestBar:
    """Progress of an ingest: a bar on a terminal, a line now and then in a log."""

    def __init__(self, console: Console, drawn: Moving | None) -> None:
        self._console = console
        self._drawn = drawn
        self._files = self._weight = 0
        self._files_done = self._weight_done = self._rejected = 0
        self._lock = threading.Lock()
        self._began = self._printed = time.monotonic()
        self._first: tuple[float, int] | None = None  # time of the first progress, and its weight

    def planned(self, runs: int, files: int, weight: int) -> None:
        """See `ingest.parse.Progress`."""
        self._files, self._weight = files, weight
        self._began = self._printed = time.monotonic()
        if self._drawn:
            self._drawn.update(total=weight, description=f"reading {counted(runs, 'run')}")

    def advance(self, weight: int, files: int, rejected: int) -> None:
        """See `ingest.parse.Progress`; called from several threads."""
        with self._lock:
            self._weight_done += weight
            self._files_done += files
            self._rejected += rejected
            now = time.monotonic()
            self._first = self._first or (now, self._weight_done)
            due = not self._drawn and now - self._printed >= _PLAIN_SECONDS
            if due:
                self._printed = now
        if self._drawn:
            self._drawn.update(advance=weight, counts=self._counts(), left=self._left(now))
        if due:
            self._console.progress(
                self._line(now),
                bytes=self._weight_done,
                bytes_total=self._weight,
                files=self._files_done,
                files_total=self._files,
                rejected=self._rejected,
            )

    def _counts(self) -> str:
        files = f"{count(self._files_done)} of {counted(self._files, 'file')}"
        return f"{files}, {count(self._rejected)} rejected" if self._rejected else files

    def _line(self, now: float) -> str:
        seconds = now - self._began
        rate = self._weight_done / seconds if seconds else 0.0
        pieces = [
            f"read {amount(self._weight_done)} of {amount(self._weight)}",
            f"{amount(rate)}/s",
            self._left(now),
            self._counts(),
        ]
        return ", ".join(filter(None, pieces))

    def _left(self, now: float) -> str:
        """Return how long the rest takes; empty until enough was read to say it."""
        at, weight = self._first or (now, 0)
        seconds, read = now - at, self._weight_done - weight
        enough = read >= _LEAST_SHARE * self._weight or seconds >= _ENOUGH_SECONDS
        if not (read and enough and seconds >= _LEAST_SECONDS):
            return ""
        rest = max(0, self._weight - self._weight_done) * seconds / read
        return f"{timedelta(seconds=round(rest))} left"


def _is_log() -> bool:
    """Return whether standard error is not a terminal and rich is not forced to act as on one."""
    shown = bool(sys.stderr) and sys.stderr.isatty()
    return not shown and not any(os.environ.get(name) for name in _FORCED)


def _write(text: str) -> None:
    if sys.stderr:  # it may be closed from the start
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:  # the reader or the terminal has gone; the command continues silently
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _causes(error: BaseException, message: str) -> str | None:
    """Return the causes of an error that its message does not already contain."""
    causes = []
    cause = error.__cause__
    while cause is not None:
        reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
        if reason and reason not in message:
            causes.append(reason)
            message += reason
        cause = cause.__cause__
    return "; ".join(causes) or None


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip("\n")


def _keep(text: str) -> str | None:
    """Write a traceback to a temporary file; return None if no file can be written."""
    try:
        with tempfile.NamedTemporaryFile(
            "w",
            prefix="tracelake-bug-",
            suffix=".txt",
            delete=False,
            encoding="utf-8",
            errors="backslashreplace",
        ) as file:
            file.write(text)
    except OSError:
        return None
    return file.name


class JsonConsole(Console):
    """Prints each message as an object: time (UTC), level, event, message, and other known facts.

    Levels are info, warning and error; events are note, progress, warning, error, traceback,
    interrupted and terminated.
    """

    @property
    def draws(self) -> bool:
        """False: a log has no moving lines."""
        return False

    def _block(self, what: str, facts: dict[str, str | None]) -> None:
        known = {name: fact for name, fact in facts.items() if fact}
        self._emit("error", "error", what, **known)

    def _emit(self, level: str, event: str, text: str, **fields: object) -> None:
        record = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": level,
            "event": event,
            "message": text,
            **fields,
        }
        _write(f"{json.dumps(record)}\n")
