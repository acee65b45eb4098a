"""Give DuckDB little memory at first, and more when something cannot be computed with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import duckdb

from tracelake.base.errors import ShortMemoryError
from tracelake.base.memory_limit import FIRST_ENGINE_BYTES, parse_size
from tracelake.models.base import engine_errors

_Result = TypeVar("_Result")


class MemoryLimit:
    """The memory that a database may use before it spills.

    DuckDB holds what it has until its limit. Models of a large run take no longer with a limit at
    which they spill, but lists and medians cannot be spilled: only for these it is raised. Under a
    limit of the user's half is left at first, for replays, whose arrays DuckDB does not count.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, share: int | None) -> None:
        """Begin with little memory.

        Args:
            con: A connection to a database with the highest limit that it may have.
            share: How many databases of this process are computed with at once; None if the user
                has set the limit.
        """
        ((shown,),) = con.execute("SELECT current_setting('memory_limit')").fetchall()
        self._most = self._now = parse_size(shown)
        self._raising = threading.Lock()
        first = self._most // 2 if share is None else FIRST_ENGINE_BYTES // share
        self._set(con, first)

    def within(
        self, con: duckdb.DuckDBPyConnection, subject: str, action: Callable[[], _Result]
    ) -> _Result:
        """Return the result of an action; repeat it with more memory as long as there is any.

        Args:
            con: The connection that the action uses.
            subject: What it computes.
            action: It leaves nothing behind if it fails.

        Raises:
            TracelakeError: See `engine_errors`.
        """
        while True:
            limit = self._now
            try:
                with engine_errors(subject):
                    return action()
            except ShortMemoryError:
                if limit == self._most:
                    raise
            with self._raising:
                if self._now == limit:  # no other thread has raised it
                    self._set(con, 2 * limit)

    def _set(self, con: duckdb.DuckDBPyConnection, limit: int) -> None:
        self._now = min(limit, self._most)
        con.execute(f"SET memory_limit = '{self._now}B'")
