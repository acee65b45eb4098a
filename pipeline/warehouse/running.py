"""Run statements one by one; every wait ends on a signal or a timeout."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeAlias, TypeVar

import duckdb
import pyarrow as pa

from tracelake.base.errors import LakeError, StoreError, UsageError
from tracelake.base.signals import abandon, wait_for_one
from tracelake.lake.store import Lake
from tracelake.models.base import store_trouble
from tracelake.warehouse.statements import Parameters, Statement, nested_too_deeply, read_statements
from tracelake.warehouse.warehouse import (
    ATTEMPTS,
    built_anew,
    edition,
    open_warehouse,
    release,
    replaced,
    trouble_behind,
)

_BATCH_ROWS = 64 * 1024
# How long an interrupted call of DuckDB may take to end; some functions do not look.
_GRACE_SECONDS = 1.0
_Begun: TypeAlias = tuple[pa.RecordBatchReader, pa.RecordBatch | None]
_T = TypeVar("_T")


def run_query(
    lake: Lake,
    sql: str,
    parameters: Parameters | None = None,
    *,
    timeout: float | None = None,
    memory: int | None = None,
    only: str | None = None,
) -> Iterator[pa.RecordBatchReader]:
    """Run one or more statements on the lake's warehouse.

    If a build replaces it before the first row was returned, the query runs on the new one.

    Args:
        parameters: Values of `$name` in the statements, by lower-case name.
        timeout: Seconds after which the whole query is cancelled.
        memory: See `open_warehouse`.
        only: What the answer is for, if that can have one result only: "a JSON document".

    Returns:
        One reader per statement, in order; read each to its end before taking the next.

    Raises:
        LakeError: See `open_warehouse`; a part file is missing; while reading, the lake was built
            again.
        UsageError: See `read_statements`; several statements for `only`; while reading, an error of
            DuckDB about a statement, or the timeout.
    """
    query = _Query(lake, timeout, memory)
    return query.answers(query.statements(sql, parameters or {}, only))


class _Query:
    """Answers statements from a lake's warehouse, and runs DuckDB's calls in a separate thread.

    A call into DuckDB blocks its thread until it has an answer. Another thread that waits for it
    can be woken by a signal or a timeout, and interrupts the call.
    """

    def __init__(self, lake: Lake, timeout: float | None, memory: int | None) -> None:
        self._lake = lake
        self._memory = memory
        self._timeout = timeout
        self._abandoned = False
        self._open()
        self._ends = None if timeout is None else time.monotonic() + timeout

    def _open(self) -> None:
        """Open the warehouse that is in place now, with a thread for calls; the deadline stays."""
        self._opened = edition(self._lake)
        self._con = open_warehouse(self._lake, memory=self._memory)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="query")

    def statements(self, sql: str, parameters: Parameters, only: str | None) -> list[Statement]:
        """Return the statements of a text; see `read_statements` and `run_query`."""
        try:
            found = self._call(partial(read_statements, self._con, sql, parameters))
            if only and len(found) > 1:
                hint = "run the queries one by one"
                raise UsageError(f"{only} can have one result only", hint=hint)
            return found
        except UsageError as error:
            self._close()
            if trouble := trouble_behind(self._lake, error.message):
                raise trouble from error
            raise

    def _call(self, work: Callable[[], _T]) -> _T:
        """Return the result of the work; DuckDB's errors are raised as those of tracelake."""
        # A separate future, not the one that `submit` returns: a signal may arrive while `submit`
        # starts the thread, and then the caller could not end the work.
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
                hint="query fewer runs or rows, or raise --timeout",
            )
        try:
            return future.result()
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            # While a result is read, Arrow wraps DuckDB's errors.
            self._close()
            known = query_error(self._lake, str(error), limited=self._memory is not None)
            # DuckDB's own advice is to change settings that a query may not change.
            plain = isinstance(known, StoreError) or "SET " in str(error)
            raise known from None if plain else error

    def _close(self) -> None:
        """End the thread and the connection, unless the thread was abandoned."""
        if not self._abandoned:
            self._pool.shutdown()
            self._con.close()

    def _interrupt(self, future: Future[_T]) -> None:
        """End the work and everything after it; it may not have started, hence the loop."""
        future.cancel()  # unless it has started
        ends = time.monotonic() + _GRACE_SECONDS
        while not future.done() and time.monotonic() < ends:
            self._con.interrupt()
            wait_for_one([future], 0.05)
        if not future.done():
            self._abandoned = True
            abandon(future, partial(release, self._con))
        self._close()

    def answers(self, statements: list[Statement]) -> Iterator[pa.RecordBatchReader]:
        """Yield a reader per statement."""
        for number, statement in enumerate(statements, 1):
            reader, first = self._start(statement, ATTEMPTS if number == 1 else 1)
            batches = self._batches(reader, first, last=number == len(statements))
            yield pa.RecordBatchReader.from_batches(reader.schema, batches)

    def _start(self, statement: Statement, attempts: int) -> _Begun:
        """Return an answer's reader and first rows; before that it can be started again."""
        while True:
            try:
                return self._call(partial(_begin, self._con, statement))
            except LakeError as error:
                attempts -= 1
                if not replaced(self._lake, self._opened):
                    raise
                if not attempts:
                    raise built_anew(self._lake) from error
            self._open()

    def _batches(
        self, reader: pa.RecordBatchReader, first: pa.RecordBatch | None, *, last: bool
    ) -> Iterator[pa.RecordBatch]:
        batch = first
        while batch is not None:
            yield batch
            try:
                batch = self._call(partial(next, reader, None))
            except LakeError as error:
                if not replaced(self._lake, self._opened):
                    raise
                raise built_anew(self._lake) from error
        if last:
            self._close()


def _fulfil(future: Future[_T], work: Callable[[], _T]) -> None:
    """Do the work, unless it was cancelled before."""
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again by who asks for the result
            future.set_exception(error)


def _begin(con: duckdb.DuckDBPyConnection, statement: Statement) -> _Begun:
    relation = con.sql(statement.sql, params=dict(statement.parameters))
    reader = relation.to_arrow_reader(_BATCH_ROWS)
    return reader, next(reader, None)


def query_error(lake: Lake, message: str, *, limited: bool) -> LakeError | StoreError | UsageError:
    """Return the error for a message of DuckDB.

    Args:
        limited: The user gave a memory limit.
    """
    if "arrow_large_buffer_size" in message:
        return UsageError(
            "the texts of a column are too long to be returned together",
            hint="return shorter ones, such as substr(column, 1, 1000), or fewer rows with LIMIT",
        )
    too_deep = nested_too_deeply() if "Max expression depth" in message else None
    if known := too_deep or store_trouble(message) or trouble_behind(lake, message):
        return known
    if message.startswith("Invalid Input Error") and ".parquet'" in message:
        return LakeError(message, hint="find the repair with: tracelake check")
    if message.startswith("IO Error"):
        return LakeError(message, hint="bring the warehouse up to date: tracelake build")
    if message.startswith("Out of Memory Error"):
        what = "--memory is too small" if limited else "there is not enough memory"
        return UsageError(
            f"{what} for the query: {message.splitlines()[0]}",
            hint="raise --memory, or query fewer runs or columns",
        )
    return UsageError(message)
