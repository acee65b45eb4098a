"""Read a lake from Python: tables, models and saved questions as relations of DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar

import duckdb
import numpy as np

from tracelake.base.errors import UsageError
from tracelake.base.memory_limit import parse_size
from tracelake.lake.store import Lake
from tracelake.output.chrome_trace.selection import parse_span
from tracelake.output.chrome_trace.trace import write_timeline
from tracelake.output.terminal.runs import runs_sql
from tracelake.warehouse.examples import example
from tracelake.warehouse.names import resolve_run
from tracelake.warehouse.running import query_error
from tracelake.warehouse.statements import Parameters, read_statements
from tracelake.warehouse.warehouse import edition, open_warehouse, replaced, run_rows

_FINDINGS = """
FROM findings
ORDER BY level, run_id, kind, subject
"""
_T = TypeVar("_T")


def open_lake(lake: str | Path, *, memory: str | None = None) -> OpenLake:
    """Return a lake that can be read.

    Example::

        with tracelake.open("lake") as lake:
            print(lake.sql("FROM straggler_ranks").pl())

    Args:
        lake: A directory, or a URI such as `s3://bucket/lake`.
        memory: Memory limit of a query, like `500MB`; it spills to disk, then it fails.

    Raises:
        LakeError: There is no lake, or it has no warehouse yet.
        UsageError: The memory limit is no size.
    """
    return OpenLake(Lake.open(lake), None if memory is None else parse_size(str(memory)))


class OpenLake:
    """A lake that is read; make one with `tracelake.open`.

    Answers are `duckdb.DuckDBPyRelation`: rows are read when `.pl()`, `.df()`, `.arrow()`,
    `.fetchall()` or `len()` asks for them. Use one `OpenLake` per thread.

    Each call reads the warehouse that is in place then. A relation stays with the warehouse that it
    was made from; if a build has meanwhile removed files of it, DuckDB raises an error that names
    the file: ask again.
    """

    def __init__(self, lake: Lake, memory: int | None = None) -> None:
        self._lake = lake
        self._memory = memory
        self._con: duckdb.DuckDBPyConnection | None = None
        self._connect()

    @property
    def name(self) -> str:
        """The directory's absolute path, or the URI."""
        return self._lake.name

    def sql(self, query: str, params: Parameters | None = None) -> duckdb.DuckDBPyRelation:
        """Return the answer to a query: SELECT, EXPLAIN, DESCRIBE or SHOW.

        It can read the lake's tables and models, and no other file.

        Example::

            lake.sql("FROM run_summary WHERE bubble_ratio > $most", {"most": 0.3}).df()

        Args:
            params: Values of `$name` in the query.

        Raises:
            UsageError: The query is wrong or does more than read; there are several.
        """
        if not isinstance(params, Mapping | None):
            raise UsageError("params are values by name", hint='give {"most": 0.3} for $most')
        if not isinstance(query, str) or not all(isinstance(name, str) for name in params or ()):
            raise UsageError("a query and the names of params are texts", hint='"SELECT $most"')
        # DuckDB does not take the numbers of numpy, which loops over columns give.
        values = {
            name.lower(): value.item()
            if isinstance(value, np.generic) and value.dtype.kind in "biuf"
            else value
            for name, value in (params or {}).items()
        }

        def ask(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
            statements = read_statements(con, query, values)
            if len(statements) > 1:
                raise UsageError("there are several queries", hint="call sql once for each")
            return _relation(con, statements[0].sql, statements[0].parameters)

        return self._ask(ask)

    def runs(self) -> duckdb.DuckDBPyRelation:
        """Return the runs with their main figures, in the order of `tracelake runs`.

        Example::

            lake.runs().pl()
        """
        return self._ask(lambda con: _relation(con, runs_sql()))

    def findings(self) -> duckdb.DuckDBPyRelation:
        """Return what is wrong with runs, the most severe first.

        Example::

            lake.findings().filter("severity = 'critical'").df()
        """
        return self._ask(lambda con: _relation(con, _FINDINGS))

    def table(self, name: str, run: str | None = None) -> duckdb.DuckDBPyRelation:
        """Return a table or model, whole or of one run; of a run only its own files are read.

        Example::

            lake.table("ops", run="latest").filter("rank = 0").pl()

        Args:
            run: Its id, a unique part of one, or `latest`; `latest~1` is the run before it of its
                configuration.

        Raises:
            UsageError: There is no such table or run, or the table has no rows per run.
        """

        def ask(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
            run_id = None if run is None else resolve_run(con, str(run))
            return _relation(con, run_rows(con, self._lake, name, run_id))

        return self._ask(ask)

    def ask(self, name: str, run: str | None = None, **params: object) -> duckdb.DuckDBPyRelation:
        """Return the answer to a saved question; `tracelake examples` lists them.

        A question with the parameter `top` gives so many rows at most, 20 or so unless given.

        Example::

            lake.ask("slow_ranks", run="latest", top=5).df()

        Args:
            run: As in `table`.
            params: Values of the question's other parameters.

        Raises:
            UsageError: There is no such question, parameter or run.
        """
        saved = example(name)
        given = {key: str(value) for key, value in params.items() if value is not None}

        def ask(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
            named = {} if run is None else {"run": resolve_run(con, str(run))}
            return _relation(con, saved.body, saved.bind({**given, **named}))

        return self._ask(ask)

    def timeline(
        self,
        run: str,
        path: str | Path | None = None,
        *,
        steps: str | int | None = None,
        ranks: str | int | Sequence[str | int] = (),
    ) -> Path:
        """Write a run as a Chrome trace for ui.perfetto.dev, and return the file.

        Example::

            lake.timeline("latest", "last_night.json.gz", steps="3-5")

        Args:
            run: As in `table`.
            path: The file, compressed if it ends in .gz; by default RUN.json.gz in the working
                folder.
            steps: Only this step, or these: `3` or `"3-5"`.
            ranks: Only these: `0` or `"0-7"`, or several of them.

        Raises:
            UsageError: There is no such run, step or rank, or the file cannot be written.
        """
        run_id = self._ask(lambda con: resolve_run(con, str(run)))
        target = Path(f"{run_id}.json.gz") if path is None else Path(path)
        given = [ranks] if isinstance(ranks, str | int) else ranks
        write_timeline(
            self._lake,
            run_id,
            target,
            steps=None if steps is None else parse_span(str(steps), "steps"),
            ranks=[parse_span(str(one), "ranks") for one in given],
        )
        return target

    def close(self) -> None:
        """Close the lake and what it was asked for."""
        if self._con is not None:
            self._con.close()
            self._con = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tracelake lake {self.name}>"

    def _connect(self) -> None:
        # Relations that were given out keep the connection before.
        self._edition = edition(self._lake)
        self._con = open_warehouse(self._lake, memory=self._memory)

    def _ask(self, work: Callable[[duckdb.DuckDBPyConnection], _T]) -> _T:
        """Return the result of the work on the warehouse that is in place now."""
        if self._con is None:
            raise UsageError("the lake was closed", path=self.name, hint="open it again")
        if replaced(self._lake, self._edition):
            self._connect()
        con = self._con
        try:
            return work(con)
        except duckdb.Error as error:
            raise query_error(self._lake, str(error), limited=self._memory is not None) from error


def _relation(
    con: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, object] | None = None
) -> duckdb.DuckDBPyRelation:
    return con.sql(sql, params=dict(parameters)) if parameters else con.sql(sql)
