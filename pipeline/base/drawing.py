"""Make rich consoles that do not end the program when their reader has gone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NoReturn, TextIO, cast

from rich.console import Console


class _Results(Console):
    """A console for results: if the reader has gone, the command decides how to end."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


class _Notes(Console):
    """A console for notes: if the reader has gone, the command continues without notes."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


class _Stderr:
    """Standard error; a terminal that has gone is like a reader that has gone."""

    def write(self, text: str) -> int:
        with _as_closed_pipe():
            return sys.stderr.write(text)

    def flush(self) -> None:
        with _as_closed_pipe():
            sys.stderr.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


@contextmanager
def _as_closed_pipe() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BrokenPipeError(*error.args) from error


def console_of(out: TextIO) -> Console:
    """Return a console for results: with colours and bold text on a terminal that supports them."""
    plain = not out.isatty() or "NO_COLOR" in os.environ
    return _Results(
        file=out, highlight=False, soft_wrap=True, color_system=None if plain else "auto"
    )


def error_console() -> Console:
    """Return a console for progress, notes and errors."""
    return _Notes(file=cast(IO[str], _Stderr()), highlight=False, soft_wrap=True)
