"""Read what needs attention in a run: its findings."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from tracelake.warehouse.values import Row, read_rows

# Sentences of a kind and a run.
_SEEN = 3


def read_attention(con: duckdb.DuckDBPyConnection, run_id: str) -> list[Row]:
    """Return what needs attention in a run, by kind: how severe, how often, and the worst cases.

    Returns:
        A row per kind: `kind`, `severity`, `count`, and of the worst findings `seen` (evidence) and
        `advice`, with the `query` that lists them all.
    """
    found: Sequence[Row] = read_rows(
        con,
        f"""
        SELECT kind, arg_min(severity, level) AS severity, count(*) AS count,
            list(evidence ORDER BY lost_ratio DESC NULLS LAST, subject)[:{_SEEN}] AS seen,
            arg_min(advice, (-coalesce(lost_ratio, 0), subject)) AS advice
        FROM (
            SELECT *, list_position(['critical', 'warning', 'notice'], severity) AS level
            FROM findings WHERE run_id = $1
        )
        GROUP BY kind
        ORDER BY min(level), max(lost_ratio) DESC NULLS LAST, kind
        """,
        [run_id],
    )
    return [
        {**row, "query": f"FROM findings WHERE kind = '{row['kind']}' AND run_id = '{run_id}'"}
        for row in found
    ]
