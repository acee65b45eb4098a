"""Reading a warehouse that a build may replace meanwhile: then its part files are gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import duckdb

from pipeline.errors import LakeError
from pipeline.lake import Lake
from pipeline.models.base import engine_errors
from pipeline.query.warehouse import open_warehouse

# A build takes longer than to open what it has built: more than one in a row is a lake in distress.
ATTEMPTS = 4

# Of the warehouse's file: inode and mtime. It is replaced, never written in place.
Edition: TypeAlias = tuple[int, int] | None
_T = TypeVar("_T")


def ask(
    lake: Lake,
    subject: str,
    work: Callable[[duckdb.DuckDBPyConnection], _T],
    *,
    memory: int | None = None,
    attempts: int = ATTEMPTS,
) -> _T:
    """What `work` makes of the lake's warehouse, in a connection of `open_warehouse`.

    Args:
        subject: What is being read, for errors.
        work: Begins anew when it is called again.
        memory: See `open_warehouse`.
        attempts: See `reopening`.

    Raises:
        LakeError: See `open_warehouse`, `engine_errors` and `reopening`.
    """

    def once() -> _T:
        with engine_errors(subject), open_warehouse(lake, memory=memory) as con:
            return work(con)

    return reopening(lake, once, attempts)


def reopening(lake: Lake, work: Callable[[], _T], attempts: int = ATTEMPTS) -> _T:
    """What `work` gives, which opens the warehouse; again where it was replaced meanwhile.

    Args:
        attempts: Give up after so many; one where the work cannot be done again.

    Raises:
        LakeError: The work failed on a warehouse that is still there, or each time on one that a
            build replaced meanwhile.
    """
    while True:
        opened = edition(lake)
        try:
            return work()
        except LakeError as error:
            attempts -= 1
            if not replaced(lake, opened):
                raise
            if not attempts:
                raise built_anew(lake) from error


def edition(lake: Lake) -> Edition:
    """Which of the warehouses that were built here is there now; None if none is."""
    try:
        found = lake.warehouse.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def replaced(lake: Lake, opened: Edition) -> bool:
    """Whether another warehouse is there by now than the one that was opened."""
    lake.refresh_warehouse()
    return edition(lake) != opened


def built_anew(lake: Lake) -> LakeError:
    """What a reader is told that cannot begin again."""
    return LakeError(
        "the lake was built anew while it was read", path=lake.name, hint="open it again"
    )
