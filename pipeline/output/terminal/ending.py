"""Print the end of `run`: the incidents, how many runs there are, in a few lines."""

from __future__ import annotations

import duckdb

from tracelake.base.figures import count, gpu_hours
from tracelake.base.text import counted
from tracelake.output.terminal.grid import Cell
from tracelake.output.terminal.page import DIM, GOOD, SEVERITIES, Page
from tracelake.warehouse.values import Row, read_rows

# Lines about incidents; with the other lines there are at most ten.
_SHOWN = 5
_INCIDENTS = """
    SELECT i.*, l.label, l.hash
    FROM incidents AS i
    JOIN run_list AS l ON l.run_id = i.latest_run
    WHERE i.open
    ORDER BY
        i.level = 3,
        i.cost_gpu_hours_per_day DESC NULLS LAST, i.last_seen DESC, i.incident
"""
_COUNTS = """
    SELECT
        count(*) AS runs,
        count(*) FILTER (stepless) AS stepless,
        count(*) FILTER (len(problems) > 0) AS urgent,
        (SELECT count(*) FROM findings WHERE run_id IS NULL) AS files,
        (SELECT count(DISTINCT run_id) FROM opportunities) AS faster
    FROM run_list
"""


def read_ending(con: duckdb.DuckDBPyConnection) -> tuple[list[Row], Row]:
    """Return the open incidents, the dearest first, and how many runs there are."""
    return read_rows(con, _INCIDENTS), read_rows(con, _COUNTS)[0]


def print_ending(ending: tuple[list[Row], Row], lake: str, page: Page) -> None:
    """Print a line per incident, and a line of counts with the next command."""
    incidents, counts = ending
    shown = incidents[:_SHOWN]
    for row in shown:
        page.line(
            Cell(f"{row['severity']:<8} ", SEVERITIES[row["severity"]]),
            Cell(_incident(row), "bold"),
            Cell(f"  show {row['hash']}", DIM),
        )
    if more := len(incidents) - len(shown):
        page.line(f"... and {count(more)} more: tracelake ask incidents --lake {lake}")
    if not counts["urgent"] and not counts["files"] and not shown:
        page.line(Cell("No problems found", GOOD))
    said = [counted(counts["runs"], "run")]
    if counts["stepless"]:
        said[0] += f" ({count(counts['stepless'])} without steps)"
    if counts["urgent"]:
        need = f"{count(counts['urgent'])} {'needs' if counts['urgent'] == 1 else 'need'}"
        said.append(f"{need} attention: tracelake runs --attention --lake {lake}")
    if counts["faster"]:
        said.append(f"{count(counts['faster'])} could be faster: tracelake ask opportunities")
    page.line("; ".join(said))
    page.end()


def _incident(row: Row) -> str:
    """Return an incident as one line: since when, what, why, what it costs."""
    cost = row["cost_gpu_hours_per_day"]
    since = [f"since {row['since'][:10]}"] if row["since"] else []
    said = [*since, f"{row['subject']}: {row['kind'].replace('_', ' ')}"]
    if row["cause"] not in (None, "unclear"):
        said.append(f"cause {row['cause']}")
    if cost is not None:
        said.append(f"{gpu_hours(cost)} a day")
    said.append(f"{count(row['slow_runs'])} of {counted(row['runs'], row['runs_unit'])}")
    return ", ".join(said)
