"""Read what a reader must look at first: the findings of the page's runs, by kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import duckdb

from tracelake.base.figures import cost, count
from tracelake.base.text import counted, some
from tracelake.output.html.cells import LIST_ITEMS, Row
from tracelake.output.html.reading import PAGE_RUNS, grouped, page_rows

_ITEMS = 12

# Titles by kind of finding, in the order of the page; a kind without one comes last, by its name.
_TITLES = {
    "recurring": "Recurring stragglers",
    "straggler": "Stragglers",
    "slow_node": "Slow nodes",
    "regressed": "Regressions",
    "drifted": "Drift",
    "slowed": "Slower within the run",
    "loss_not_finite": "Loss not finite",
    "wrong_values": "Wrong values in bandwidth tests",
    "unreadable": "Data lost or unreadable",
    "model_failed": "Runs without figures",
    "data_lost": "Part files of the lake lost",
    "slow_stage": "Slow stages",
    "slow_link": "Slow links",
    "data_loading": "Slow data loading",
    "rejects": "Lines not understood",
    "suspect": "Suspected stragglers",
    "incomplete": "Incomplete runs",
    "contradiction": "Contradictions in the input",
}

_FINDINGS = f"""
    SELECT f.*, r.run_date, coalesce(NOT i.open, false) AS over
    FROM findings AS f
    JOIN runs AS r USING (run_id)
    LEFT JOIN incidents AS i ON i.incident = f.incident
    SEMI JOIN {PAGE_RUNS} AS p ON p.run_id = f.run_id
    -- What recurs stands once, beside the latest of its runs on the page.
    QUALIFY f.kind <> 'recurring' OR row_number() OVER (
        PARTITION BY f.incident, f.kind, f.subject ORDER BY r.run_date DESC NULLS LAST, f.run_id
    ) = 1
"""
_OF_NO_RUN = "SELECT *, NULL AS run_date, false AS over FROM findings WHERE run_id IS NULL"
_ORDER = """
    level, cost_gpu_hours DESC NULLS LAST, lost_ratio DESC NULLS LAST,
    run_date DESC NULLS LAST, run_id, slowdown DESC NULLS LAST, subject
"""
_SKIPPED = f"""
    SELECT reason, count(*) AS inputs,
        list(concat_ws('/', path, member) ORDER BY path, member)[:{LIST_ITEMS}] AS paths
    FROM skipped WHERE reason NOT IN ('unreadable', 'parser_failed')
    GROUP BY reason ORDER BY inputs DESC, reason
"""


@dataclass(frozen=True, slots=True)
class Group:
    """Findings of one kind.

    Attributes:
        kind: Name of the kind, as class and anchor.
        severity: That of the most severe.
        count: How many are more than notices, shown or not.
        notices: How many are not, of incidents that are not over.
        over: How many of `count` are of incidents that are over.
        items: The first of them: run and text; the run is None for files that belong to none.
        query: What lists them all.
        runs: Runs that have one that is more than a notice.
        carded: Incidents tell all of them.
    """

    kind: str
    title: str
    severity: str
    count: int
    items: Sequence[tuple[str | None, str]]
    query: str
    runs: frozenset[str] = field(default_factory=frozenset)
    carded: bool = False
    notices: int = 0
    over: int = 0

    @property
    def counted(self) -> str:
        """Return how many there are, as text."""
        still = self.count - self.over
        parts = (
            count(still) if still else "",
            f"{count(self.over)} over" if self.over else "",
            counted(self.notices, "notice") if self.notices else "",
        )
        return " and ".join(filter(None, parts)) or "over"


def read_attention(con: duckdb.DuckDBPyConnection, *, inputs: bool) -> list[Group]:
    """Return what needs attention among the runs of the page, the most severe kind first.

    Args:
        inputs: Include files that belong to no run: unreadable ones, and those of unknown format.
    """
    source = f"({_FINDINGS} UNION ALL BY NAME {_OF_NO_RUN})" if inputs else f"({_FINDINGS})"
    rows = page_rows(con, f"SELECT * FROM {source} ORDER BY {_ORDER}")
    by_kind = grouped(rows, "kind")
    kinds = [kind for kind in dict.fromkeys([*_TITLES, *by_kind]) if kind in by_kind]
    kinds.sort(key=lambda kind: by_kind[kind][0]["level"])
    groups = [_group(kind, by_kind[kind]) for kind in kinds]
    skipped = page_rows(con, _SKIPPED) if inputs else []
    if skipped:
        count = sum(row["inputs"] for row in skipped)
        items = [(None, _skipped(row)) for row in skipped[:_ITEMS]]
        groups.append(Group("skipped", "Skipped files", "notice", count, items, "FROM skipped"))
    return groups


def read_verdicts(con: duckdb.DuckDBPyConnection) -> dict[str, list[Row]]:
    """Return the findings of each run of the page, the most severe first."""
    return grouped(
        page_rows(
            con,
            "SELECT f.*, r.run_date FROM findings AS f JOIN runs AS r USING (run_id)"
            f" SEMI JOIN {PAGE_RUNS} USING (run_id) ORDER BY {_ORDER}",
        )
    )


def title_of(kind: str) -> str:
    """Return the title of a kind of finding."""
    return _TITLES.get(kind, kind.replace("_", " ").capitalize())


def _group(kind: str, rows: Sequence[Row]) -> Group:
    graver = sum(row["severity"] != "notice" for row in rows)
    untold = sorted(rows, key=lambda row: row["incident"] is not None)  # cards tell the others
    return Group(
        kind,
        title_of(kind),
        rows[0]["severity"],
        graver,
        [(row["run_id"], _text(row)) for row in untold[:_ITEMS]],
        f"FROM findings WHERE kind = '{kind}'",
        frozenset(row["run_id"] for row in rows if row["run_id"] and row["severity"] != "notice"),
        all(row["incident"] for row in rows),
        sum(row["severity"] == "notice" and not row["over"] for row in rows),
        sum(row["over"] and row["severity"] != "notice" for row in rows),
    )


def _text(row: Row) -> str:
    lost = cost(row["cost_gpu_hours"], row["cost_basis"], row["cost_bound"])
    then = "Its incident is over." if row["over"] else row["advice"]
    return " ".join(filter(None, (row["evidence"], lost and f"It cost {lost}.", then)))


def _skipped(row: Row) -> str:
    files = some(row["paths"], LIST_ITEMS)
    more = row["inputs"] - len(row["paths"])
    return f"{row['reason']}: {files}{f' and {count(more)} more' if more > 0 else ''}"
