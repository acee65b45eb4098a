"""Print the end of `run`: what is wrong, and how many runs there are, in a few lines."""

from __future__ import annotations

import duckdb

from tracelake.base.figures import cost, count, seen_in
from tracelake.base.text import counted
from tracelake.output.terminal.page import DIM, GOOD, SEVERITIES, Cell, Page
from tracelake.warehouse.headline import MOST_URGENT_FIRST
from tracelake.warehouse.values import Row, read_rows

# Lines about incidents, and about findings of no incident; with the others there are at most ten.
_SHOWN = 5
_SHOWN_FINDINGS = 2
# What begins within a run has a time of the day.
_WITHIN = ("slowed", "loss_not_finite")
_INCIDENTS = f"""
    SELECT
        i.* REPLACE (
            CASE
                WHEN i.subject = 'run' THEN l.label
                WHEN i.runs_unit = 'run' THEN concat(i.subject, ' in ', l.label)
                ELSE i.subject
            END AS subject
        ),
        l.hash
    FROM incidents AS i
    JOIN run_list AS l ON l.run_id = i.latest_run
    WHERE i.open
    ORDER BY {MOST_URGENT_FIRST}
"""
# A run without a date has no place among others, and a file no run: nothing joins what they have.
_ALONE = f"""
    SELECT
        f.kind, f.severity, f.level,
        CASE f.subject WHEN 'run' THEN l.label ELSE concat_ws(' in ', f.subject, l.label) END
            AS subject,
        f.cause, f.brief, f.cost_gpu_hours, f.cost_basis, f.cost_bound, l.hash,
        count(*) OVER () AS findings
    FROM findings AS f
    LEFT JOIN run_list AS l USING (run_id)
    WHERE f.incident IS NULL AND f.severity <> 'notice'
    ORDER BY
        f.level, f.cost_gpu_hours DESC NULLS LAST, f.lost_ratio DESC NULLS LAST, l.urgency,
        f.kind, f.slowdown DESC NULLS LAST, f.subject
    LIMIT {_SHOWN_FINDINGS}
"""
# Of runs that need attention, no line names those whose incidents are over.
_COUNTS = """
    WITH present AS (
        SELECT f.run_id
        FROM findings AS f
        LEFT JOIN incidents AS i USING (incident)
        WHERE f.run_id IS NOT NULL AND f.severity <> 'notice' AND coalesce(i.open, true)
    )
    SELECT
        count(*) AS runs,
        count(*) FILTER (stepless) AS stepless,
        count(*) FILTER (len(problems) > 0) AS urgent,
        count(*) FILTER (
            len(problems) > 0 AND len(tested_incidents) = 0
            AND run_id NOT IN (SELECT run_id FROM present)
        ) AS past,
        (SELECT count(*) FROM findings WHERE run_id IS NULL) AS files,
        (SELECT count(DISTINCT run_id) FROM opportunities) AS faster
    FROM run_list
"""


def read_ending(con: duckdb.DuckDBPyConnection) -> tuple[list[Row], list[Row], Row]:
    """Return open incidents, the worst findings of no incident, and how many runs there are."""
    return read_rows(con, _INCIDENTS), read_rows(con, _ALONE), read_rows(con, _COUNTS)[0]


def print_ending(incidents: list[Row], alone: list[Row], counts: Row, page: Page) -> None:
    """Print a line per incident or finding, and a line of counts with the next command."""
    kinds = [
        (incidents[:_SHOWN], _incident, "incident", len(incidents), "incidents"),
        (alone, _finding, "finding", alone[0]["findings"] if alone else 0, "attention"),
    ]
    # Incidents first, unless only findings are critical.
    kinds.sort(key=lambda kind: min((row["level"] for row in kind[0]), default=4))
    for rows, said_of, what, known, question in kinds:
        for row in rows:
            page.line(
                Cell(f"{row['severity']:<8} ", SEVERITIES[row["severity"]]),
                Cell(said_of(row), "bold"),
                Cell(f"  tracelake show {row['hash']}" if row["hash"] else "", DIM),
            )
        if more := known - len(rows):
            page.line(f"... and {counted(more, f'more {what}')}: tracelake ask {question}")
    if not counts["urgent"] and not counts["files"] and not incidents:
        page.line(Cell("No problems found", GOOD))
    parts = [counted(counts["runs"], "run")]
    if counts["stepless"]:
        parts[0] += f" ({count(counts['stepless'])} without steps)"
    if counts["urgent"]:
        need = f"{count(counts['urgent'])} {'needs' if counts['urgent'] == 1 else 'need'}"
        over = f" ({count(counts['past'])} of incidents that are over)" if counts["past"] else ""
        parts.append(f"{need} attention{over}: tracelake runs --attention")
    if counts["faster"]:
        parts.append(f"{count(counts['faster'])} could be faster: tracelake ask opportunities")
    page.line("; ".join(parts))


def _incident(row: Row) -> str:
    """Return an incident as one line: what, since when, why, what it costs."""
    since = row["since"] and row["since"][: 16 if row["kind"] in _WITHIN else 10]
    parts = _what(row, f" since {since}" if since else "")
    parts.append(cost(row["cost_gpu_hours_per_day"], row["cost_basis"], row["cost_bound"], "a day"))
    parts.append(seen_in(row["slow_runs"], row["runs"], row["runs_unit"]))
    return ", ".join(filter(None, parts))


def _finding(row: Row) -> str:
    """Return a finding as one line: what, why, what it cost."""
    lost = cost(row["cost_gpu_hours"], row["cost_basis"], row["cost_bound"])
    return ", ".join(filter(None, [*_what(row), lost]))


def _what(row: Row, since: str = "") -> list[str]:
    kind = row["kind"].replace("_", " ")
    brief = [row["brief"]] if row["brief"] else []
    cause = [] if row["cause"] in (None, "unclear", "input") else [f"cause {row['cause']}"]
    return [f"{row['subject']}: {kind}{since}", *brief, *cause]
