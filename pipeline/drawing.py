"""Consoles that draw on standard streams and do not end the program when a reader has gone."""

from __future__ import annotations

import os
import sys
from typing import NoReturn, TextIO

from rich.console import Console


class _Results(Console):
    """Results that nobody reads end the command, which decides how."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


class _Notes(Console):
    """Notes that nobody reads are not worth the work that they tell of."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def console_of(out: TextIO) -> Console:
    """What draws results: with colours and weights on a terminal that wants them."""
    plain = not out.isatty() or "NO_COLOR" in os.environ
    return _Results(
        file=out, highlight=False, soft_wrap=True, color_system=None if plain else "auto"
    )


def error_console() -> Console:
    """What draws progress, notes and errors."""
    return _Notes(stderr=True, highlight=False, soft_wrap=True)
