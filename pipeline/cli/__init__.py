"""The `tracelake` command: options, streams and exit codes; everything else is done elsewhere."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

from pipeline.cli import ask, jobs, look, synth
from pipeline.cli.app import app
from pipeline.cli.steps import speak
from pipeline.errors import TracelakeError

__all__ = ["app", "ask", "jobs", "look", "main", "synth"]


def main() -> None:
    """Entry point: the one place where errors become text and exit codes."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        app()
    except TracelakeError as error:
        speak().error(error)
        sys.exit(error.exit_code)


def _terminated(signum: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise SystemExit(128 + signum)
