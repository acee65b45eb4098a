"""What commands of every kind share: the lake they open, what they print and where."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from pipeline.budget import jobs_within, parse_size
from pipeline.cli.options import OutputFormat
from pipeline.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from pipeline.console import Voice
    from pipeline.lake import Lake


def speak(*, quiet: bool = False) -> Voice:
    """The voice of a command; one that only prints a result needs none."""
    from pipeline.console import Voice

    return Voice(quiet=quiet)


def open_lake(lake: Path) -> Lake:
    """The lake of a command that reads one."""
    from pipeline.lake import Lake

    return Lake.open(lake)


def read_memory(text: str | None) -> int | None:
    """Bytes of `--memory`; too few are refused before anything is done."""
    if text is None:
        return None
    memory = parse_size(text)
    jobs_within(memory, 1)
    return memory


def read_age(text: str | None) -> timedelta | None:
    """Reads 90m, 24h, 7d, 2w."""
    if text is None:
        return None
    units = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    number, unit = text[:-1], text[-1:]
    if not number.isascii() or not number.isdigit() or unit not in units:
        raise UsageError(f"--since {text!r} is no age", hint="give 90m, 24h, 7d or 2w")
    return timedelta(**{units[unit]: int(number)})


def print_query(lake: Lake, sql: str, output_format: OutputFormat, output: Path | None) -> None:
    """Prints the answer to a query."""
    from pipeline.query import run_query, write_result

    with _out(output) as out:
        write_result(run_query(lake, sql), output_format.value, out)


def print_table(table: pa.Table, output_format: OutputFormat, output: Path | None) -> None:
    """Prints a table in the format asked for, on standard output or into a file."""
    from pipeline.query import write_result

    with _out(output) as out:
        write_result(table, output_format.value, out)


@contextmanager
def _out(output: Path | None) -> Iterator[TextIO]:
    if output is None:
        yield sys.stdout
        return
    try:
        with output.open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise UsageError(f"cannot write: {error.strerror}", path=output) from error
