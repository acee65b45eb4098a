"""Define the `tracelake` command: options, streams and exit codes."""

from __future__ import annotations

import gc
import io
import os
import sys
from contextvars import Context

from tracelake.base.errors import TracelakeError, exit_code_of, expected
from tracelake.base.signals import end_if_abandoned, listening
from tracelake.cli import ask, jobs, keep, look, synth
from tracelake.cli.app import app, app_of
from tracelake.cli.steps import open_console

__all__ = ["app", "ask", "jobs", "keep", "look", "main", "synth"]


def main() -> None:
    """Run the command line, and end the process with the exit code."""
    try:
        Context().run(_run)  # what a command sets ends with it
    except SystemExit as end:
        end_if_abandoned(exit_code_of(end))
        code = end.code
    else:
        code = 0
    if code:
        # An error holds what was open when it was raised, and DuckDB complains of what is still
        # there when Python ends.
        gc.collect()
    sys.exit(code)


def _run() -> None:
    """Run the command line; an error becomes text and an exit code."""
    _open_standard_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names may have characters that the terminal cannot show.
        sys.stdout.reconfigure(errors="backslashreplace")
    _live_lightly()
    if not os.environ.get("COLUMNS", "none").strip("0"):  # of a terminal without a known width
        del os.environ["COLUMNS"]
    try:
        with listening():
            app_of(sys.argv[1:])()
    except Exception as error:  # noqa: BLE001 - whatever is not expected here is a bug
        known = expected(error)
        if known is None:
            open_console().bug(error)
            sys.exit(TracelakeError.exit_code)
        open_console().error(known)
        sys.exit(known.exit_code)


def _open_standard_streams() -> None:
    """Open the null device for each standard stream that is closed.

    So a result goes nowhere, and no file of the lake gets the number of such a stream.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
        nowhere = os.open(os.devnull, os.O_RDWR)
        setattr(sys, name, os.fdopen(nowhere, "w" if number else "r", encoding="utf-8"))


def _live_lightly() -> None:
    """Avoid costs of libraries at start and end that no command needs."""
    # Libraries create tens of thousands of objects at import, of which none is garbage.
    gc.set_threshold(100_000, *gc.get_threshold()[1:])
    # NumPy would start a thread per processor for linear algebra, which is not used here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
