"""Print progress, notes and errors as JSON objects, one per line of standard error."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime

from tracelake.base.console import Console


class JsonConsole(Console):
    """Prints each message as an object: time (UTC), level, event, message, and other known facts.

    Levels are info, warning and error; events are note, progress, warning, error, traceback,
    interrupted and terminated.
    """

    @property
    def draws(self) -> bool:
        """False: a log has no moving lines."""
        return False

    def say(self, text: str) -> None:
        """Print a line for people; print nothing when quiet."""
        if not self._quiet:
            self._line("info", "note", text)

    def progress(self, text: str, **figures: object) -> None:
        """Print the progress, also in figures."""
        if not self._quiet:
            self._line("info", "progress", text, **figures)

    def warn(self, text: str) -> None:
        """Print a warning, even when quiet."""
        self._line("warning", "warning", text)

    def ended(self, how: str) -> None:
        """Print that a signal has ended the command."""
        self._line("error", how, how)

    def _block(self, what: str, facts: dict[str, str | None]) -> None:
        known = {name: fact for name, fact in facts.items() if fact}
        self._line("error", "error", what, **known)

    def _plain(self, text: str) -> None:
        self._line("error", "traceback", text.rstrip("\n"))

    def _line(self, level: str, event: str, message: str, **fields: object) -> None:
        said = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": level,
            "event": event,
            "message": message,
            **fields,
        }
        sys.stderr.write(f"{json.dumps(said)}\n")
        sys.stderr.flush()
