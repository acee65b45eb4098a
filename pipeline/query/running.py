"""Answers statements one by one; every wait ends when the user or the clock says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import duckdb
import pyarrow as pa

from pipeline.errors import LakeError, UsageError
from pipeline.lake import Lake
from pipeline.query.parameters import Parameters
from pipeline.query.statements import Statement, read_statements
from pipeline.query.warehouse import open_warehouse
from pipeline.waiting import wait_for_one

_BATCH_ROWS = 64 * 1024
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

    Args:
        parameters: Values of `$name` in the statements, by lower-case name.
        timeout: Seconds after which the whole query is given up.
        memory: See `open_warehouse`.

    Returns:
        One reader per statement, in order; read each to its end before taking the next.

    Raises:
        LakeError: See `open_warehouse`; or a part file is gone.
        UsageError: See `read_statements`; while reading, what DuckDB says about a statement, or
            that the timeout has passed.
    """
    con = open_warehouse(lake, memory=memory)
    try:
        statements = read_statements(con, sql, parameters or {})
    except UsageError:
        con.close()
        raise
    return _answers(_Engine(con, timeout), statements)


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
            raise _told(str(error)) from error

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


def _answers(engine: _Engine, statements: list[Statement]) -> Iterator[pa.RecordBatchReader]:
    for number, statement in enumerate(statements, 1):
        reader = engine.call(partial(_start, engine.con, statement))
        batches = _batches(engine, reader, last=number == len(statements))
        yield pa.RecordBatchReader.from_batches(reader.schema, batches)


def _start(con: duckdb.DuckDBPyConnection, statement: Statement) -> pa.RecordBatchReader:
    relation = con.sql(statement.sql, params=dict(statement.parameters))
    return relation.to_arrow_reader(_BATCH_ROWS)


def _batches(
    engine: _Engine, reader: pa.RecordBatchReader, *, last: bool
) -> Iterator[pa.RecordBatch]:
    batches = iter(reader)
    while (batch := engine.call(partial(next, batches, None))) is not None:
        yield batch
    if last:
        engine.close()


def _told(message: str) -> LakeError | UsageError:
    if message.startswith("IO Error"):
        return LakeError(message, hint="bring the warehouse up to date: tracelake build")
    if message.startswith("Out of Memory Error"):
        return UsageError(
            f"memory does not suffice for the query: {message.splitlines()[0]}",
            hint="give more with --memory, or ask for fewer runs or columns",
        )
    return UsageError(message)
