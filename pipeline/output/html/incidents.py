"""Read incidents, opportunities and the fleet: what is wrong, since when, why, what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import duckdb
from markupsafe import Markup

from tracelake.base.figures import difference, milliseconds
from tracelake.models.describe import relation_columns
from tracelake.output.html.cells import Row, head
from tracelake.output.html.plots import over_dates, strip, waterfall
from tracelake.output.html.reading import PAGE_RUNS, grouped, page_rows
from tracelake.warehouse.headline import MOST_URGENT_FIRST

# Cards and plots of a page; the rest is in `tracelake ask incidents`.
_CARDS = 12
_PLOTS = 24
_NIGHTS = 30
_STRIP_ROWS = 48
_BARS = 9
_LINKS = 6

_INCIDENTS = f"""
    WITH jobs AS (
        SELECT config, label, max(run_date) AS run_date
        FROM runs SEMI JOIN {PAGE_RUNS} USING (run_id)
        GROUP BY config, label
    )
    SELECT i.*, l.size
    FROM incidents AS i
    JOIN run_list AS l ON l.run_id = i.latest_run
    JOIN runs AS o ON o.run_id = i.latest_run
    WHERE i.incident IN (
            SELECT incident FROM (SELECT incident, unnest(run_ids) AS run_id FROM incidents)
            SEMI JOIN {PAGE_RUNS} USING (run_id)
        )
        -- What goes on in jobs of the page, though none of its runs shows it.
        OR i.open AND (
            i.runs_unit = 'test' AND $1
            OR EXISTS (
                FROM jobs AS j
                WHERE j.config = o.config AND j.run_date >= i.since
                    -- Of a job whose size is not known the label tells which it is.
                    AND (i.config = o.config OR j.label = o.label)
            )
        )
    ORDER BY {MOST_URGENT_FIRST}
"""
_OPPORTUNITIES = f"""
    SELECT o.*, l.label, l.hash
    FROM opportunities AS o
    JOIN run_list AS l USING (run_id)
    SEMI JOIN {PAGE_RUNS} USING (run_id)
    ORDER BY o.gain_ratio DESC, o.run_id, o.kind
"""
_NIGHTLY = """
    run_date IS NOT NULL AND step_p50_ms IS NOT NULL AND reason IS DISTINCT FROM 'duplicate'
"""
_LENGTHS = f"""
    SELECT config, count(*) AS nights
    FROM run_history
    WHERE {_NIGHTLY} AND config IN (SELECT config FROM runs SEMI JOIN {PAGE_RUNS} USING (run_id))
    GROUP BY config
    HAVING nights > 1
"""
_HISTORY = f"""
    SELECT
        h.config, h.run_id, l.label, l.hash, l.size, h.run_date, h.step_p50_ms AS ms,
        h.step_p50_ms_baseline AS baseline,
        h.step_p50_ms_baseline * (1 - h.step_p50_ms_allowed_ratio) AS low,
        h.step_p50_ms_baseline * (1 + h.step_p50_ms_allowed_ratio) AS high,
        CASE WHEN h.drift = 'drifted' AND h.verdict <> 'regressed' THEN 'drifted' ELSE h.verdict END
            AS verdict
    FROM (
        FROM run_history
        WHERE {_NIGHTLY} AND config IN (SELECT unnest($1::VARCHAR[]))
    ) AS h
    JOIN run_list AS l USING (run_id)
    ORDER BY h.config, h.run_date, h.run_id
"""
_SLOWNESS = """
    SELECT run_id, rank, slowdown FROM straggler_ranks
    WHERE slowdown IS NOT NULL AND run_id IN (SELECT unnest($1::VARCHAR[]))
    ORDER BY rank
"""
_SHARES = f"""
    SELECT
        run_id, concat_ws(' ', op, 'stage ' || stage) AS name, round(sum(share_ms), 3) AS ms
    FROM op_shares SEMI JOIN {PAGE_RUNS} USING (run_id)
    GROUP BY ALL
    ORDER BY run_id, ms DESC, name
"""
# As `timeline` asks: of these runs those whose operations have points in time.
_WITH_TIMES = """
    SELECT DISTINCT run_id FROM clock_offsets WHERE run_id IN (SELECT unnest($1::VARCHAR[]))
"""
_CHANGES = """
    SELECT run_id, concat_ws(' ', op, 'stage ' || stage) AS name, change_ms, baseline_ms, run_ms
    FROM step_changes
    WHERE run_id IN (SELECT unnest($1::VARCHAR[]))
    ORDER BY run_id, op = 'rest', abs(change_ms) DESC, op, stage
"""


@dataclass(frozen=True, slots=True)
class Incident:
    """A card of the page.

    Attributes:
        row: Its row of `incidents`, with the size of the job.
        subject: What it is about, as the page calls it.
        step: Baseline and median step of the latest run, where they differ.
        runs: The last of the runs that have it, the latest at the end.
        steps: Step time over dates.
        ranks: Slowdown of ranks over nights.
        changes: Where the time of the latest run went.
        timed: Its latest run has a timeline.
    """

    row: Row
    subject: str
    step: tuple[float, float] | None
    runs: Sequence[Row]
    steps: Markup | None
    ranks: Markup | None
    changes: Markup | None
    timed: bool


@dataclass(frozen=True, slots=True)
class Fleet:
    """The first screen: incidents, opportunities, and the step times of configurations.

    Attributes:
        incidents: The first of them, the dearest first; `hidden` more are not shown.
        open: How many of all are open.
        tested: Those of them that bandwidth tests show, by kind: no finding tells them.
        opportunities: Rows of `opportunities` with the run's name.
        plots: Step time over dates by configuration: with title and number of runs.
        names: Run id to its row of `run_list` with id, label, hash and the run that it repeats.
    """

    incidents: Sequence[Incident]
    hidden: int
    open: int
    tested: Mapping[str, int]
    opportunities: Sequence[Row]
    plots: Sequence[tuple[str, str, int, Markup]]
    unplotted: int
    names: Mapping[str, Row]

    def said(self, text: str) -> str:
        """Return a sentence in which runs are called as people call them."""
        for word in text.split():
            run_id = word.rstrip(".,;:")
            if run_id in self.names:
                text = text.replace(run_id, self.names[run_id]["label"])
        return text


def read_fleet_view(
    con: duckdb.DuckDBPyConnection, linked: frozenset[str], *, tests: bool
) -> Fleet:
    """Return incidents, opportunities and plots of the page's configurations.

    Args:
        linked: Runs that the page shows in full.
        tests: Also what tests of other runs show to be slow.
    """
    rows = page_rows(con, _INCIDENTS, [tests])
    shown = rows[:_CARDS]
    lengths = {row["config"]: row["nights"] for row in page_rows(con, _LENGTHS)}
    troubled = {config: n for n, config in enumerate(dict.fromkeys(row["config"] for row in rows))}
    plotted = sorted(
        lengths, key=lambda config: (troubled.get(config, len(rows)), -lengths[config], config)
    )
    drawn = plotted[:_PLOTS]
    configs = [*drawn, *(row["config"] for row in shown)]
    history = grouped(page_rows(con, _HISTORY, [configs]), "config")
    listed = page_rows(con, "SELECT run_id, label, hash, copy_of FROM run_list")
    names = {row["run_id"]: row for row in listed}
    figures = {column.name: head(column).label for column in relation_columns("run_summary")}
    latest = [row["latest_run"] for row in shown]
    changes = read_waterfalls(con, latest)
    timed = {row["run_id"] for row in page_rows(con, _WITH_TIMES, [latest])}
    cards = []
    for row in shown:
        nights = history.get(row["config"], [])[-_NIGHTS:]
        own = frozenset(row["run_ids"])
        cards.append(
            Incident(
                row,
                _subject(row, figures, names),
                _change(nights, row),
                [names[run_id] for run_id in row["run_ids"][-_LINKS:]],
                _steps(nights, [row], linked, own) if len(nights) > 1 else None,
                _ranks(con, nights, row) if len(nights) > 1 else None,
                changes.get(row["latest_run"]),
                row["latest_run"] in timed,
            )
        )
    plots = [
        (
            config,
            history[config][-1]["size"] or history[config][-1]["label"],
            lengths[config],
            _steps(history[config], [row for row in rows if row["config"] == config], linked),
        )
        for config in drawn
    ]
    return Fleet(
        cards,
        len(rows) - len(shown),
        sum(row["open"] for row in rows),
        Counter(row["kind"] for row in rows if row["open"] and row["runs_unit"] == "test"),
        page_rows(con, _OPPORTUNITIES),
        plots,
        len(plotted) - len(drawn),
        names,
    )


def _subject(row: Row, figures: Mapping[str, str], names: Mapping[str, Row]) -> str:
    """Return the figure, place or run that an incident is about."""
    if row["subject"] == "run":
        return str(names[row["latest_run"]]["label"])
    return figures.get(row["subject"]) or str(row["subject"])


def _change(nights: Sequence[Row], incident: Row) -> tuple[float, float] | None:
    """Return baseline and step of the latest run; None where they are within 1 %.

    Of a drift the evidence has them: its baseline drifts, too.
    """
    for night in nights:
        if night["run_id"] == incident["latest_run"] and night["baseline"] is not None:
            before, after = night["baseline"], night["ms"]
            if incident["kind"] != "drifted" and abs(after - before) > 0.01 * before:
                return before, after
    return None


def read_shares(con: duckdb.DuckDBPyConnection) -> dict[str, dict[str, float]]:
    """Return the time of each operation in a step of each run of the page, for comparing two."""
    found = grouped(page_rows(con, _SHARES))
    return {run_id: {row["name"]: row["ms"] for row in rows} for run_id, rows in found.items()}


def read_waterfalls(con: duckdb.DuckDBPyConnection, run_ids: Sequence[str]) -> dict[str, Markup]:
    """Return where the difference of each run's step to its baseline went, by operation."""
    rows = grouped(page_rows(con, _CHANGES, [list(run_ids)]))
    return {run_id: _waterfall(found) for run_id, found in rows.items()}


def _waterfall(rows: Sequence[Row]) -> Markup:
    before = sum(row["baseline_ms"] for row in rows)
    after = sum(row["run_ms"] for row in rows)
    bars = [(row["name"], row["change_ms"]) for row in rows[:_BARS]]
    if others := rows[_BARS:]:
        bars.append((f"{len(others)} others", sum(row["change_ms"] for row in others)))
    parts = [f"{name} {difference('step_ms', ms)}" for name, ms in bars[:3]]
    title = f"Step time from {milliseconds(before)} to {milliseconds(after)}: {', '.join(parts)}"
    return waterfall(before, bars, after, title)


def _steps(
    nights: Sequence[Row],
    incidents: Sequence[Row],
    linked: frozenset[str],
    own: frozenset[str] = frozenset(),
) -> Markup:
    # The baseline of drifting runs drifts with them: its band would call them fine.
    banded = all(incident["kind"] != "drifted" for incident in incidents)
    breaks: list[tuple[datetime, str]] = [
        (row["since"], f"{row['kind']}: {row['subject']}") for row in incidents if row["since"]
    ]
    first, last = nights[0], nights[-1]
    title = (
        f"Median step time of {len(nights)} runs from {first['run_date']:%b %d, %Y} to"
        f" {last['run_date']:%b %d, %Y}: first {milliseconds(first['ms'])},"
        f" last {milliseconds(last['ms'])}"
    )
    return over_dates(nights, title, breaks, banded=banded, linked=linked, own=own)


def _ranks(con: duckdb.DuckDBPyConnection, nights: Sequence[Row], incident: Row) -> Markup | None:
    """Return the slowdown of ranks over nights; None where no rank was compared or is slow."""
    run_ids = [row["run_id"] for row in nights]
    found = page_rows(con, _SLOWNESS, [run_ids])
    ranks = sorted({row["rank"] for row in found})
    slow = {row["rank"] for row in found if row["slowdown"] >= 1.1}
    if not slow or incident["kind"] not in {"straggler", "suspect", "recurring", "slow_node"}:
        return None
    # Of many ranks only the slow ones: the others are even.
    kept = ranks if len(ranks) <= _STRIP_ROWS else sorted(slow)[:_STRIP_ROWS]
    cells = {
        (kept.index(row["rank"]), run_ids.index(row["run_id"])): row["slowdown"]
        for row in found
        if row["rank"] in kept
    }
    marked = frozenset(kept.index(rank) for rank in slow if rank in kept)
    title = (
        f"Slowdown of {len(kept)} ranks over {len(nights)} runs; slow:"
        f" {', '.join(f'rank {rank}' for rank in sorted(slow)[:8])}"
    )
    return strip(
        [f"rank {rank}" for rank in kept],
        [f"{row['run_date']:%b} {row['run_date'].day}" for row in nights],
        cells,
        title,
        marked,
    )
