"""Share what all commands need: opening a lake, reading options, printing results."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from tracelake.base.errors import UsageError
from tracelake.cli.options import LogFormat, OutputFormat

if TYPE_CHECKING:
    from tracelake.base.console import Console
    from tracelake.lake.store import Lake
    from tracelake.warehouse.results import Result


# Name of the report in its lake.
PAGE = "report.html"
# Format of messages on standard error; set before a command begins.
log_format: ContextVar[LogFormat] = ContextVar("log_format", default="text")
# What `--summary -` gives the summary to; a Python program takes it as a text.
print_summary: ContextVar[Callable[[str], object]] = ContextVar("print_summary", default=typer.echo)


def open_console(*, quiet: bool = False) -> Console:
    """Return the printer of messages; a command that only prints a result needs none."""
    if log_format.get() == "json":
        from tracelake.base.console import JsonConsole

        return JsonConsole(quiet=quiet)
    from tracelake.base.console import Console

    return Console(quiet=quiet)


def open_lake(lake: str, output: Path | None = None) -> Lake:
    """Return the lake of a command that reads one; refuse an unsuitable `--output` first."""
    from tracelake.lake.store import Lake

    check_outputs(lake, {"--output": output})
    return Lake.open(lake)


def check_outputs(lake: str, outputs: Mapping[str, Path | None]) -> None:
    """Refuse unsuitable files of options before work is done; see `refuse_outputs`."""
    from tracelake.base.files import refuse_outputs
    from tracelake.lake.home import local_root

    root = local_root(lake)
    refuse_outputs(outputs, root, root / PAGE)


def read_age(text: str | None, option: str = "--since") -> timedelta | None:
    """Read 30s, 90m, 24h, 7d, 2w."""
    if text is None:
        return None
    units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and len(number) <= 5) or unit not in units:
        raise UsageError(f"invalid {option} {text!r}", hint="give 30s, 90m, 24h, 7d or 2w")
    return timedelta(**{units[unit]: int(number)})


def print_table(result: Result, output_format: OutputFormat, output: Path | None) -> None:
    """Print a result in the given format, on standard output or into a file."""
    from tracelake.warehouse.results import write_result

    with _out(output) as out:
        write_result(result, output_format, out)


@contextmanager
def _out(output: Path | None) -> Iterator[TextIO]:
    if output is None:
        yield sys.stdout
        return
    from tracelake.base.files import output as written

    with written(output) as stream, io.TextIOWrapper(stream, encoding="utf-8") as text:
        yield text
