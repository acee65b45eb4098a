"""Read the warehouse for the page: which runs, and their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import duckdb

from tracelake.base.errors import LakeError
from tracelake.lake import Lake
from tracelake.models.base import own
from tracelake.output.html.cells import Row
from tracelake.warehouse import open_warehouse, resolve_run
from tracelake.warehouse.run_rows import views_of_runs
from tracelake.warehouse.warehouse import open_beside, trouble_behind

# The runs of the page: a table in memory, which every connection to the warehouse sees.
PAGE_RUNS = own("_page_runs")
# A page about a run of 16,384 ranks sorts millions of calls; beyond this DuckDB spills to disk.
_ENGINE_BYTES = 700_000_000


class Warehouse:
    """A lake's warehouse, opened for one page; a context manager."""

    def __init__(self, lake: Lake, con: duckdb.DuckDBPyConnection | None = None) -> None:
        self._lake = lake
        self._con = con or open_warehouse(lake, memory=_ENGINE_BYTES)
        self._views = ""

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(self, *_: object) -> None:
        self._con.close()

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Return rows of a query by column name; errors as `columns_and_rows`."""
        names, rows = self.columns_and_rows(sql, parameters)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def columns_and_rows(
        self, sql: str, parameters: Sequence[object] = ()
    ) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        """Return names of the columns of a query, and its rows.

        Raises:
            LakeError: The warehouse has another version, or a part file is missing.
        """
        with self._errors():
            answer = self._con.execute(sql, list(parameters))
            return [column[0] for column in answer.description or ()], answer.fetchall()

    def beside(self) -> Warehouse:
        """Return the same warehouse for another thread; it has the same page, and no macros yet."""
        other = open_beside(self._lake, self._con)
        with self._errors():
            other.execute(self._views)
        return Warehouse(self._lake, other)

    def named(self, name: str) -> str:
        """Return the id of the run with that name.

        Raises:
            UsageError: It matches no run or several.
        """
        return resolve_run(self._con, name)

    def define(self, macros: str) -> None:
        """Make macros known to the queries that follow."""
        self._con.execute(macros)

    def page_only(self, run_ids: Sequence[str]) -> None:
        """Fill `PAGE_RUNS` with these runs, and open only part files that have rows of them."""
        self.page_about(run_ids)
        with self._errors():
            self._views = views_of_runs(self._con, self._lake, run_ids)
            self._con.execute(self._views)

    def page_about(self, run_ids: Sequence[str]) -> None:
        """Fill `PAGE_RUNS` with these runs."""
        self._con.execute(
            f"CREATE OR REPLACE TABLE {PAGE_RUNS} AS SELECT unnest($1::VARCHAR[]) AS run_id",
            [list(run_ids)],
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise DuckDB's errors as those of `columns_and_rows`."""
        try:
            yield
        except duckdb.OutOfMemoryException:
            raise
        except duckdb.Error as error:
            if trouble := trouble_behind(self._lake, str(error)):
                raise trouble from error
            raise LakeError(
                f"the warehouse cannot be read: {error}",
                path=self._lake.warehouse,
                hint="bring it up to date with: tracelake build",
            ) from error


def select_runs(
    warehouse: Warehouse,
    named: Sequence[str] | None,
    after: datetime | None,
    late: Sequence[str] = (),
) -> tuple[list[str], int]:
    """Return runs of the page, the newest first.

    Args:
        named: Only these; a name is what `resolve_run` takes.
        after: Only runs dated then or later, as their names say.
        late: And these.

    Returns:
        Run ids, and how many were left out for having no date.

    Raises:
        UsageError: A name matches no run or several.
    """
    known = {
        row["run_id"]: row["run_date"]
        for row in warehouse.rows(
            "SELECT run_id, run_date FROM runs ORDER BY run_date DESC NULLS LAST, run_id"
        )
    }
    asked = {warehouse.named(name) for name in named or ()}
    wanted = {run_id: date for run_id, date in known.items() if not named or run_id in asked}
    if after is None:
        return list(wanted), 0
    came = set(late)
    chosen = [
        run_id
        for run_id, date in wanted.items()
        if run_id in came or (date is not None and date >= after)
    ]
    return chosen, sum(date is None and run_id not in came for run_id, date in wanted.items())


def earliest(now: datetime, since: timedelta | None) -> datetime | None:
    """Return the earliest date of `since`, on the clock of `now` and without its zone."""
    return None if since is None else now.replace(tzinfo=None) - since
