"""Read the warehouse for the page: which runs, and their rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

import duckdb

from tracelake.models.base import own
from tracelake.output.html.cells import Row
from tracelake.warehouse.names import resolve_run

# The runs of the page: a table in memory, which every connection to the warehouse sees.
PAGE_RUNS = own("_page_runs")


def page_rows(
    con: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object] = ()
) -> list[Row]:
    """Return rows of a query by column name."""
    answer = con.execute(sql, list(parameters))
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def grouped(rows: Iterable[Row], key: str = "run_id") -> dict[str, list[Row]]:
    """Return rows by the value of a column, each list in the order of the rows."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[key]].append(row)
    return found


def page_about(con: duckdb.DuckDBPyConnection, run_ids: Sequence[str]) -> None:
    """Fill `PAGE_RUNS` with these runs."""
    con.execute(
        f"CREATE OR REPLACE TABLE {PAGE_RUNS} AS SELECT unnest($1::VARCHAR[]) AS run_id",
        [list(run_ids)],
    )


def select_runs(
    con: duckdb.DuckDBPyConnection,
    named: Sequence[str] | None,
    after: datetime | None,
    late: Sequence[str],
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
    known = con.execute(
        "SELECT run_id, run_date FROM runs ORDER BY run_date DESC NULLS LAST, run_id"
    ).fetchall()
    asked = {resolve_run(con, name) for name in named or ()}
    wanted = [(run_id, date) for run_id, date in known if not named or run_id in asked]
    if after is None:
        return [run_id for run_id, _ in wanted], 0
    came = set(late)
    chosen = [run_id for run_id, date in wanted if run_id in came or (date and date >= after)]
    return chosen, sum(date is None and run_id not in came for run_id, date in wanted)
