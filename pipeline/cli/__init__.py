"""The `tracelake` command: options, streams and exit codes; everything else is done elsewhere."""

from __future__ import annotations

import io
import os
import sys
from typing import NoReturn

from pipeline.cli import ask, jobs, keep, look, synth, timeline
from pipeline.cli.app import app
from pipeline.cli.garbage import spare_imported
from pipeline.cli.steps import speak
from pipeline.errors import TracelakeError, exit_code_of, is_refusal
from pipeline.waiting import listening

__all__ = ["app", "ask", "jobs", "keep", "look", "main", "synth", "timeline"]


def main() -> None:
    """Entry point: the one place where errors become text and exit codes."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name may have what the terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    _live_lightly()
    try:
        with listening():
            app()
    except TracelakeError as error:
        speak().error(error)
        sys.exit(error.exit_code)
    except OSError as error:
        if not is_refusal(error):
            _end_with_bug(error)
        speak().trouble(error)
        sys.exit(exit_code_of(error))
    except Exception as error:  # noqa: BLE001 - whatever else reaches this place is a bug
        _end_with_bug(error)


def _live_lightly() -> None:
    """Spares every command what libraries cost at its start and end beyond their import."""
    spare_imported()
    # NumPy else starts a thread per processor for linear algebra, of which there is none here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _end_with_bug(error: Exception) -> NoReturn:
    speak().bug(error)
    sys.exit(TracelakeError.exit_code)
