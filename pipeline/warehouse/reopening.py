"""Read a warehouse that a build may replace meanwhile, so that its part files disappear."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import duckdb

from tracelake.base.errors import LakeError
from tracelake.lake.store import Lake
from tracelake.models.base import engine_errors
from tracelake.warehouse.warehouse import open_warehouse, trouble_behind

# A build takes longer than opening its result, so more than one in a row is unusual.
ATTEMPTS = 4

# Inode and mtime of the warehouse's file. It is replaced, never written in place.
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
    """Return the result of `work` on the lake's warehouse, in a connection of `open_warehouse`.

    If a build has replaced the warehouse meanwhile, the work is done again on the new one.

    Args:
        subject: What is being read, for errors.
        work: A function that can be called again.
        memory: See `open_warehouse`.
        attempts: Maximum number of attempts; 1 if the work cannot be repeated.

    Raises:
        LakeError: See `open_warehouse` and `engine_errors`; or a build replaced the warehouse each
            time.
    """
    while True:
        opened = edition(lake)
        try:
            with engine_errors(subject), open_warehouse(lake, memory=memory) as con:
                try:
                    return work(con)
                except duckdb.Error as error:
                    if trouble := trouble_behind(lake, str(error)):
                        raise trouble from error
                    raise
        except LakeError as error:
            attempts -= 1
            if not replaced(lake, opened):
                raise
            if not attempts:
                raise built_anew(lake) from error


def edition(lake: Lake) -> Edition:
    """Return which warehouse is in place now; None if there is none."""
    try:
        found = lake.warehouse.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def replaced(lake: Lake, opened: Edition) -> bool:
    """Return whether another warehouse is in place than the one that was opened."""
    lake.small.refresh(lake.warehouse.name)
    return edition(lake) != opened


def built_anew(lake: Lake) -> LakeError:
    """Return the error for a reader that cannot start again."""
    return LakeError(
        "the lake was built again while it was read", path=lake.name, hint="open it again"
    )
