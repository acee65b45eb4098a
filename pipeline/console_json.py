"""The same as `pipeline.console` for programs: every line on standard error is a JSON object."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime

from pipeline.console import Voice


class JsonVoice(Voice):
    """Says each thing as an object: time (UTC), level, event, message, and what else is known.

    Levels are info, warning and error; events are note, progress, warning, error, traceback,
    interrupted and terminated.
    """

    @property
    def draws(self) -> bool:
        """Nothing moves in a log."""
        return False

    def say(self, text: str) -> None:
        """A line for people; nothing when quiet."""
        if not self._quiet:
            self._line("info", "note", text)

    def progress(self, text: str, **figures: object) -> None:
        """How far the work is, also in figures."""
        if not self._quiet:
            self._line("info", "progress", text, **figures)

    def warn(self, text: str) -> None:
        """A line that is said even when quiet."""
        self._line("warning", "warning", text)

    def ended(self, how: str) -> None:
        """That a signal has ended the command."""
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
