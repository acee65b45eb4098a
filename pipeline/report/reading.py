"""What the page reads of the warehouse: which runs, and their rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import duckdb

from pipeline.errors import LakeError, UsageError
from pipeline.lake import Lake
from pipeline.query import open_warehouse
from pipeline.report.cells import Row

# Temporary table of the runs that queries are about.
PAGE_RUNS = "_page_runs"


class Warehouse:
    """A lake's warehouse, opened for one page; a context manager."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._con = open_warehouse(lake)

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(self, *_: object) -> None:
        self._con.close()

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Rows of a query by column name.

        Raises:
            LakeError: The warehouse is not the one this tracelake builds, or a part file is gone.
        """
        try:
            answer = self._con.execute(sql, list(parameters))
            names = [column[0] for column in answer.description or ()]
            return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
        except (duckdb.IOException, duckdb.BinderException, duckdb.CatalogException) as error:
            raise LakeError(
                f"the warehouse cannot be read: {error}",
                path=self._lake.warehouse,
                hint="bring it up to date with: tracelake build",
            ) from error

    def page_about(self, run_ids: Sequence[str]) -> None:
        """Makes `PAGE_RUNS` hold these runs."""
        self._con.execute(
            f"CREATE OR REPLACE TEMP TABLE {PAGE_RUNS} AS SELECT unnest($1::VARCHAR[]) AS run_id",
            [list(run_ids)],
        )


def select_runs(
    warehouse: Warehouse, named: Sequence[str] | None, after: datetime | None
) -> tuple[list[str], int]:
    """Runs of the page, the newest first.

    Args:
        named: Only these.
        after: Only runs dated then or later, as their names say.

    Returns:
        Run ids, and how many were left out for having no date.

    Raises:
        UsageError: A named run is not in the warehouse.
    """
    known = {
        row["run_id"]: row["run_date"]
        for row in warehouse.rows(
            "SELECT run_id, run_date FROM runs ORDER BY run_date DESC NULLS LAST, run_id"
        )
    }
    for run_id in named or ():
        if run_id not in known:
            raise UsageError(f"no run {run_id!r} in the lake", hint="list them: tracelake runs")
    wanted = {run_id: date for run_id, date in known.items() if not named or run_id in named}
    if after is None:
        return list(wanted), 0
    dated = [run_id for run_id, date in wanted.items() if date is not None and date >= after]
    return dated, sum(date is None for date in wanted.values())


def earliest(now: datetime, since: timedelta | None) -> datetime | None:
    """The date that `since` reaches back to, on the clock of `now` and without its zone."""
    return None if since is None else now.replace(tzinfo=None) - since
