"""Read what changed between two runs as a document: `diff` prints it in words or as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import duckdb

from tracelake.output.terminal.facts import Document
from tracelake.schema.topology import KEYS
from tracelake.warehouse.headline import WINDOW_PARTS
from tracelake.warehouse.values import Row, read_rows

# Figures of run_summary: 1 where more is worse, -1 where less is, 0 where neither is better.
WORSE: Mapping[str, int] = MappingProxyType(
    {
        "step_p50_ms": 1,
        "bubble_ratio": 1,
        "comm_ratio": 1,
        "busbw_gbps": -1,
        "stragglers": 1,
        "suspects": 1,
        "time_lost_ms": 1,
        "gpu_hours_lost": 1,
        "coverage_ratio": -1,
        "rejects": 1,
        "steps": 0,
    }
)
# Less than this part of the earlier figure is no change.
LEVEL = 0.01

_SETTINGS = ("format", "simulated", "model", *KEYS, "params", "profiled")
# Parts of a window add up to it: one that grows is no worse by itself.
_STAGE_FIGURES = {
    "micro_batch_ms": 1,
    "bubble_ratio": 1,
    "window_ms": 1,
    **dict.fromkeys(WINDOW_PARTS, 0),
}
_CALL = ("collective", "group_kind", "dtype", "size_bytes", "overlapped")
_CALL_FIGURES = {"time_ms": 1, "calls": 0, "time_p50_ms": 1, "busbw_p50_gbps": -1}
_COLLECTIVES = """
    SELECT *, calls * time_p50_ms AS time_ms FROM collective_bandwidth WHERE calls > 0
"""
_TIMERS = "SELECT * FROM timer_summary WHERE share_ratio IS NOT NULL"
_STAGES = """
    SELECT * REPLACE (CASE basis WHEN 'measured' THEN bubble_ratio END AS bubble_ratio)
    FROM stage_summary
"""
# Shares of a step in both runs, and what the medians differ by besides; none where a run has none.
_OPERATIONS = """
    WITH steps AS (
        SELECT
            any_value(step_p50_ms) FILTER (run_id = $1) AS before_ms,
            any_value(step_p50_ms) FILTER (run_id = $2) AS after_ms
        FROM run_summary
        WHERE run_id IN ($1, $2)
    ),
    operations AS (
        SELECT
            op, kind, stage,
            coalesce(any_value(share_ms) FILTER (run_id = $1), 0) AS before_ms,
            coalesce(any_value(share_ms) FILTER (run_id = $2), 0) AS after_ms
        FROM op_shares
        WHERE run_id IN ($1, $2)
            AND (SELECT count(DISTINCT run_id) FROM op_shares WHERE run_id IN ($1, $2)) = 2
        GROUP BY op, kind, stage
    ),
    rest AS (
        SELECT
            any_value(s.before_ms) - list_sum(list(o.before_ms ORDER BY o.before_ms)) AS before_ms,
            any_value(s.after_ms) - list_sum(list(o.after_ms ORDER BY o.after_ms)) AS after_ms
        FROM operations AS o CROSS JOIN steps AS s
        HAVING count(*) > 0
    ),
    changes AS (
        SELECT *, after_ms - before_ms AS change_ms FROM operations
        UNION ALL
        SELECT 'rest', 'rest', NULL, *, after_ms - before_ms FROM rest
    )
    SELECT
        *,
        change_ms / nullif((SELECT after_ms - before_ms FROM steps), 0) AS share_ratio,
        sum(change_ms) OVER (
            ORDER BY kind = 'rest', abs(change_ms) DESC, op, kind, stage
            ROWS UNBOUNDED PRECEDING
        ) AS running_ms
    FROM changes
    ORDER BY kind = 'rest', abs(change_ms) DESC, op, kind, stage
"""
# Medians of a run do not show that its steps became slower on the way.
_SLOWED = """
    SELECT f.run_id, f.brief, l.hash
    FROM findings AS f
    JOIN run_list AS l USING (run_id)
    WHERE f.kind = 'slowed' AND f.run_id IN ($1, $2)
"""
# Of all ranks only those that are slow in one of the runs.
_RANKS = """
    SELECT rank,
        any_value(verdict) FILTER (run_id = $1) AS verdict_before,
        any_value(verdict) FILTER (run_id = $2) AS verdict_after,
        any_value(slowdown) FILTER (run_id = $1) AS slowdown_before,
        any_value(slowdown) FILTER (run_id = $2) AS slowdown_after,
        any_value(time_lost_ms) FILTER (run_id = $1) AS time_lost_before_ms,
        any_value(time_lost_ms) FILTER (run_id = $2) AS time_lost_after_ms
    FROM straggler_ranks
    WHERE run_id IN ($1, $2)
    GROUP BY rank
    HAVING bool_or(verdict IN ('straggler', 'suspect'))
    ORDER BY verdict_before IS NOT DISTINCT FROM verdict_after,
        abs(coalesce(time_lost_after_ms, 0) - coalesce(time_lost_before_ms, 0)) DESC, rank
"""


def read_changes(con: duckdb.DuckDBPyConnection, one: str, other: str) -> Document:
    """Return what changed between two runs, the largest changes first.

    The run with the earlier date is `before`; where dates do not tell, the first one is. `swapped`
    says that it is the second one.

    Returns:
        Every figure has `before`, `after`, `change` (after - before), `change_ratio` (over before)
        and `verdict`: better, worse, same (less than 1 % of before), or NULL where neither is
        better or a run lacks it. `headline` has them by name, `stages`, `layers`, `timers` and
        `collectives` by key and name. `operations` says where the difference of the median step
        went: the changes of the operations' shares and a `rest` add up to it, `running_ms` as far
        as each row.
        `comparable`: both have the same configuration, and a size of the job is known; `caveats`
        say what to keep in mind.
    """
    runs = _by_run(con, "FROM runs WHERE run_id IN ($1, $2)", one, other)
    dates = runs[other]["run_date"], runs[one]["run_date"]
    swapped = None not in dates and dates[0] < dates[1]
    before, after = (other, one) if swapped else (one, other)
    known = _by_run(con, "FROM run_history WHERE run_id IN ($1, $2)", before, after)
    summaries = _by_run(con, "FROM run_summary WHERE run_id IN ($1, $2)", before, after)
    covered = _by_run(con, "FROM coverage WHERE run_id IN ($1, $2)", before, after)
    settings = _settings(runs[before], runs[after])
    slowed = _by_run(con, _SLOWED, before, after)
    return {
        "before": {"run_id": before, "run_date": runs[before]["run_date"]},
        "after": {"run_id": after, "run_date": runs[after]["run_date"]},
        "swapped": swapped,
        "comparable": known[before]["config"] is not None
        and runs[before]["config"] == runs[after]["config"],
        "caveats": [
            *_caveats(runs[before], runs[after], settings),
            *(
                f"no size of the job of {side} is known: it may be another job"
                for side, run in (("before", before), ("after", after))
                if known[run]["config"] is None
            ),
            *(
                f"{side} became slower on the way, which its medians hide: its steps are"
                f" {slowed[run]['brief']}, see tracelake show {slowed[run]['hash']}"
                for side, run in (("before", before), ("after", after))
                if run in slowed
            ),
        ],
        "settings": settings,
        "operations": read_rows(con, _OPERATIONS, [before, after]),
        "headline": _headline(summaries[before], summaries[after]),
        "stages": _keyed(con, before, after, _STAGES, ("stage",), _STAGE_FIGURES),
        "layers": _keyed(con, before, after, "FROM layer_stats", ("layer",), {"p50_ms": 1}),
        "timers": _keyed(con, before, after, _TIMERS, ("name",), {"max_ms": 1, "spread_ms": 1}),
        "collectives": _keyed(con, before, after, _COLLECTIVES, _CALL, _CALL_FIGURES),
        "ranks": read_rows(con, _RANKS, [before, after]),
        "not_computable": {
            "before_only": _less(covered[before], covered[after]),
            "after_only": _less(covered[after], covered[before]),
        },
    }


def _by_run(con: duckdb.DuckDBPyConnection, sql: str, before: str, after: str) -> dict[str, Row]:
    return {row["run_id"]: row for row in read_rows(con, sql, [before, after])}


def _settings(before: Row, after: Row) -> list[Row]:
    """Return what differs of the configuration: columns of runs, and what only `config` says."""
    old, new = (
        _pieces(run["config"]) | {name: run[name] for name in _SETTINGS} for run in (before, after)
    )
    return [
        {"name": name, "before": old.get(name), "after": new.get(name)}
        for name in dict.fromkeys((*_SETTINGS, *old, *new))
        if old.get(name) != new.get(name)
    ]


def _pieces(config: str) -> dict[str, Any]:
    return dict(piece.split("=", 1) for piece in config.split() if "=" in piece)


def _caveats(before: Row, after: Row, settings: list[Row]) -> list[str]:
    notes = []
    if before["format"] != after["format"]:
        notes.append(
            f"other formats, {before['format']} and {after['format']}: their times are not of the"
            " same thing"
        )
    if before["config"] != after["config"]:
        names = [
            row["name"]
            for row in settings
            if row["name"] in _pieces(f"{before['config']} {after['config']}")
        ]
        notes.append(f"other configurations: {', '.join(names) or 'format'}")
    for side, row in (("before", before), ("after", after)):
        if row["simulated"]:
            notes.append(f"{side} is simulated: only its compute times hold")
        if row["complete"] is False:
            notes.append(f"{side} is incomplete")
    return notes


def _keyed(
    con: duckdb.DuckDBPyConnection,
    before: str,
    after: str,
    source: str,
    keys: tuple[str, ...],
    signs: Mapping[str, int],
) -> list[Row]:
    """Return rows of both runs joined by key, the one whose first figure changed most first."""
    values = ", ".join(
        f"any_value({name}) FILTER (run_id = ${place}) AS {name}_{side}"
        for name in signs
        for place, side in ((1, "before"), (2, "after"))
    )
    rows = read_rows(
        con,
        f"""
        SELECT {", ".join(keys)}, {values},
            CASE count(DISTINCT run_id) WHEN 2 THEN 'both'
                ELSE CASE any_value(run_id) WHEN $1 THEN 'before' ELSE 'after' END
            END AS seen_in
        FROM ({source})
        WHERE run_id IN ($1, $2)
        GROUP BY ALL
        ORDER BY ALL
        """,
        [before, after],
    )
    found = [
        {
            **{key: row[key] for key in keys},
            "seen_in": row["seen_in"],
            "figures": {
                name: _changed(sign, row[f"{name}_before"], row[f"{name}_after"])
                for name, sign in signs.items()
            },
        }
        for row in rows
    ]
    lead = next(iter(signs))
    return sorted(found, key=lambda row: -_weight(row["figures"][lead]))


def _weight(figure: Row) -> float:
    """Return how much changed; what one run does not have counts as nothing."""
    return abs(float(figure["after"] or 0) - float(figure["before"] or 0))


def _headline(before: Row, after: Row) -> list[Row]:
    figures = [
        {"figure": name, **_changed(sign, before[name], after[name])}
        for name, sign in WORSE.items()
        if before[name] is not None or after[name] is not None
    ]
    return sorted(figures, key=lambda row: -_part(row))


def _part(figure: Row) -> float:
    """Return the relative change: infinite from nothing, -1 where a run lacks the figure."""
    if figure["change_ratio"] is None:
        return math.inf if figure["change"] else -1.0
    return abs(float(figure["change_ratio"]))


def _changed(sign: int, before: float | None, after: float | None) -> Row:
    change = None if before is None or after is None else after - before
    ratio = change / before if change is not None and before else None
    return {
        "before": before,
        "after": after,
        "change": change,
        "change_ratio": ratio,
        "verdict": _verdict(sign, change, ratio),
    }


def _verdict(sign: int, change: float | None, ratio: float | None) -> str | None:
    if change is None or not sign:
        return None
    if not change or (ratio is not None and abs(ratio) < LEVEL):
        return "same"
    return "worse" if change * sign > 0 else "better"


def _less(one: Row, other: Row) -> list[str]:
    """Return figures that one run cannot compute and the other can, or for another reason."""
    return [entry for entry in one["not_computable"] if entry not in other["not_computable"]]
