"""Answers statements one by one; every wait ends when the user or the clock says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeAlias, TypeVar

import duckdb
import pyarrow as pa

from pipeline.errors import LakeError, StoreError, UsageError
from pipeline.lake import Lake
from pipeline.models.base import store_trouble
from pipeline.query.parameters import Parameters
from pipeline.query.reopening import ATTEMPTS, Edition, built_anew, edition, replaced
from pipeline.query.statements import Statement, read_statements
from pipeline.query.warehouse import open_warehouse
from pipeline.waiting import wait_for_one

_BATCH_ROWS = 64 * 1024
_Begun: TypeAlias = tuple[pa.RecordBatchReader, pa.RecordBatch | None]
_T = TypeVar("_T")


def run_query(
    lake: Lake,
    sql: str,
    parameters: Parameters | None = None,
    *,
    timeout: float | None = None,
    memory: int | None = None,
) -> Iterator[pa.RecordBatchReader]:
    """Answers one or more statements over the lake's warehouse.

    Where a build replaces it before the first row has been given, the new one is asked.

    Args:
        parameters: Values of `$name` in the statements, by lower-case name.
        timeout: Seconds after which the whole query is given up.
        memory: See `open_warehouse`.

    Returns:
        One reader per statement, in order; read each to its end before taking the next.

    Raises:
        LakeError: See `open_warehouse`; a part file is gone; while reading, that the lake was built
            anew.
        UsageError: See `read_statements`; while reading, what DuckDB says about a statement, or
            that the timeout has passed.
    """
    opened, con = edition(lake), open_warehouse(lake, memory=memory)
    try:
        statements = read_statements(con, sql, parameters or {})
    except UsageError:
        con.close()
        raise
    return _Answers(lake, memory, _Engine(con, timeout), opened).all(statements)


class _Engine:
    """Runs DuckDB's calls in a thread of their own.

    A call into DuckDB holds its thread until it has an answer. Another thread that waits for it can
    be woken by a signal or the clock, and interrupts it.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, timeout: float | None) -> None:
        self.con = con
        self._timeout = timeout
        self._ends = None if timeout is None else time.monotonic() + timeout
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="query")

    def call(self, work: Callable[[], _T]) -> _T:
        """What the work gives; DuckDB's errors as those of tracelake, and then no more."""
        # Its own, and not the one that `submit` returns: a signal may come while that starts the
        # thread, and then the work is under way without the caller having anything to end it by.
        future: Future[_T] = Future()
        left = None if self._ends is None else max(0.0, self._ends - time.monotonic())
        try:
            self._pool.submit(_fulfil, future, work)
            wait_for_one([future], left)
        except BaseException:
            self._interrupt(future)
            raise
        if not future.done():
            self._interrupt(future)
            raise UsageError(
                f"no answer within --timeout {self._timeout:g} s",
                hint="ask for fewer runs or rows, or give it more time",
            )
        try:
            return future.result()
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            # Out of a running result, DuckDB's errors come as whatever Arrow makes of them.
            self.close()
            told = _told(str(error))
            raise told from None if isinstance(told, StoreError) else error

    def reopen(self, con: duckdb.DuckDBPyConnection) -> None:
        """Goes on with another connection, until the same end."""
        self.con = con
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="query")

    def close(self) -> None:
        """Ends the thread and the connection."""
        self._pool.shutdown()
        self.con.close()

    def _interrupt(self, future: Future[_T]) -> None:
        """Ends the work and everything after it; it may just have begun, hence the loop."""
        future.cancel()  # unless it has begun
        while not future.done():
            self.con.interrupt()
            wait_for_one([future], 0.05)
        self.close()


def _fulfil(future: Future[_T], work: Callable[[], _T]) -> None:
    """Does the work, unless it was called off before."""
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again by who asks for the result
            future.set_exception(error)


class _Answers:
    """Statements that are answered in turn, by one warehouse."""

    def __init__(self, lake: Lake, memory: int | None, engine: _Engine, opened: Edition) -> None:
        self._lake = lake
        self._memory = memory
        self._engine = engine
        self._opened = opened

    def all(self, statements: list[Statement]) -> Iterator[pa.RecordBatchReader]:
        """A reader per statement."""
        for number, statement in enumerate(statements, 1):
            reader, first = self._start(statement, ATTEMPTS if number == 1 else 1)
            batches = self._batches(reader, first, last=number == len(statements))
            yield pa.RecordBatchReader.from_batches(reader.schema, batches)

    def _start(self, statement: Statement, attempts: int) -> _Begun:
        """An answer's reader and first rows; until they are given it can be begun again."""
        while True:
            try:
                return self._engine.call(partial(_begin, self._engine.con, statement))
            except LakeError as error:
                attempts -= 1
                if not replaced(self._lake, self._opened):
                    raise
                if not attempts:
                    raise built_anew(self._lake) from error
            self._opened = edition(self._lake)
            self._engine.reopen(open_warehouse(self._lake, memory=self._memory))

    def _batches(
        self, reader: pa.RecordBatchReader, first: pa.RecordBatch | None, *, last: bool
    ) -> Iterator[pa.RecordBatch]:
        batch = first
        while batch is not None:
            yield batch
            try:
                batch = self._engine.call(partial(next, reader, None))
            except LakeError as error:
                if not replaced(self._lake, self._opened):
                    raise
                raise built_anew(self._lake) from error
        if last:
            self._engine.close()


def _begin(con: duckdb.DuckDBPyConnection, statement: Statement) -> _Begun:
    relation = con.sql(statement.sql, params=dict(statement.parameters))
    reader = relation.to_arrow_reader(_BATCH_ROWS)
    return reader, next(reader, None)


def _told(message: str) -> LakeError | StoreError | UsageError:
    if trouble := store_trouble(message):
        return trouble
    if message.startswith("IO Error"):
        return LakeError(message, hint="bring the warehouse up to date: tracelake build")
    if message.startswith("Out of Memory Error"):
        return UsageError(
            f"memory does not suffice for the query: {message.splitlines()[0]}",
            hint="give more with --memory, or ask for fewer runs or columns",
        )
    return UsageError(message)
