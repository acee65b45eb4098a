"""What needs attention in a run: what a gate would hold against it."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from pipeline.gates import GATES
from pipeline.terminal.reading import Row, read_rows

# Of a kind and a run.
_SEEN = 3

_SEEN_SQL = " UNION ALL ".join(
    f"SELECT {place} AS place, '{gate.name}' AS kind, run_id, seen, weight FROM ({gate.sql})"
    for place, gate in enumerate(GATES.values())
)
# Kinds of each run that has any, the gravest first.
RUNS_SQL = f"""
    SELECT run_id, list(kind ORDER BY place) AS attention
    FROM (SELECT DISTINCT run_id, place, kind FROM ({_SEEN_SQL}))
    GROUP BY run_id
"""


def read_attention(con: duckdb.DuckDBPyConnection, run_id: str) -> list[Row]:
    """What needs attention in a run: kind, how many there are, and the worst in words."""
    seen: Sequence[Row] = read_rows(
        con,
        f"""
        SELECT kind, count(*) AS count,
            list(seen ORDER BY weight DESC NULLS LAST, seen)[:{_SEEN}] AS seen
        FROM ({_SEEN_SQL})
        WHERE run_id = $1
        GROUP BY place, kind
        ORDER BY place
        """,
        [run_id],
    )
    return [{**row, "query": GATES[row["kind"]].query} for row in seen]
