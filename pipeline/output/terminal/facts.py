"""Read what is known of one run as a document: `show` prints it in words or as JSON."""

from __future__ import annotations

from typing import Any, TypeAlias

import duckdb

from tracelake.schema.tables import reasons
from tracelake.warehouse.values import Row, read_rows

Document: TypeAlias = dict[str, Any]

# Points of the curve of step times; a longer run has medians of as many spans of steps.
CURVE_POINTS = 120
WORST = 8

_STEPS = """
    SELECT count(*) AS steps, count(*) FILTER (warmup) AS warmup_steps,
        count(step_ms) FILTER (NOT warmup) AS counted_steps,
        count(*) FILTER (outlier) AS outlier_steps,
        min(step_ms) FILTER (NOT warmup) AS min_ms,
        quantile_cont(step_ms, 0.5) FILTER (NOT warmup) AS p50_ms,
        quantile_cont(step_ms, 0.95) FILTER (NOT warmup) AS p95_ms,
        max(step_ms) FILTER (NOT warmup) AS max_ms,
        arg_max(step, step_ms) FILTER (NOT warmup) AS worst_step,
        arg_max(loss, step) AS last_loss,
        min(reason) FILTER (step_ms IS NULL) AS reason
    FROM step_stats WHERE run_id = $1
"""
_CURVE = f"""
    SELECT min(step) AS first_step, max(step) AS last_step,
        quantile_cont(step_ms, 0.5) AS step_ms
    FROM (
        SELECT *, (row_number() OVER (ORDER BY step) - 1) * {CURVE_POINTS}
            // greatest(count(*) OVER (), {CURVE_POINTS}) AS point
        FROM step_stats WHERE run_id = $1 AND step_ms IS NOT NULL AND NOT warmup
    )
    GROUP BY point ORDER BY point
"""
# Of each kind the worst findings, as sentences, each with its advice, and what lists them all; then
# incidents of hosts and links that the tests of the run show to be slow: they belong to no run.
_ATTENTION = """
    SELECT kind, arg_min(severity, level) AS severity, count(*) AS count,
        list(evidence)[:3] AS seen, list(advice)[:3] AS advice, format(every, kind, $1) AS query
    FROM (
        SELECT *, 'FROM findings WHERE kind = ''{}'' AND run_id = ''{}''' AS every
        FROM findings WHERE run_id = $1
        UNION ALL BY NAME
        SELECT kind, severity, level, subject, evidence, advice,
            'FROM incidents WHERE kind = ''{}'' AND list_contains(run_ids, ''{}'')' AS every
        FROM incidents WHERE runs_unit = 'test' AND list_contains(run_ids, $1)
        ORDER BY lost_ratio DESC NULLS LAST, slowdown DESC NULLS LAST, subject
    )
    GROUP BY kind, every
    ORDER BY every, min(level), max(lost_ratio) DESC NULLS LAST, kind
"""
# Of each kind of test the largest size that was reached, beside what pairs of hosts are held to.
_TESTS = f"""
    WITH largest AS (
        SELECT *,
            count(*) OVER of_kind AS sizes,
            sum(wrong) OVER of_kind AS wrong_values
        FROM bandwidth_results
        WHERE run_id = $1
        WINDOW of_kind AS (PARTITION BY test, collective, placement)
        QUALIFY row_number() OVER (
            PARTITION BY test, collective, placement ORDER BY size_bytes DESC, line
        ) = 1
    )
    SELECT l.test, l.collective, l.placement, l.ranks, l.nodes, l.sizes, l.size_bytes, l.dtype,
        l.time_ms, l.algbw_gbps, l.busbw_gbps, l.wrong_values,
        l.busbw_gbps / h.reference_gbps AS pair_ratio,
        -- The verdict on a pair rests on its latest test.
        CASE
            WHEN l.busbw_gbps = h.busbw_gbps THEN h.verdict
            WHEN h.verdict IS NOT NULL THEN 'tested_again'
        END AS pair_verdict,
        count(*) OVER () AS kinds
    FROM largest AS l
    LEFT JOIN link_health AS h
        ON h.scope = 'pair' AND l.placement = 'out' AND h.collective = l.collective
        AND h.size_bytes = l.size_bytes AND h.ranks_per_host = l.ranks_per_host
        AND [h.host, h.peer_host] = list_sort(list_distinct(l.hosts))
    ORDER BY l.test, l.collective, l.placement DESC
    LIMIT {WORST}
"""
_STAGES = "FROM stage_summary WHERE run_id = $1 ORDER BY stage"
_VERDICTS = """
    SELECT verdict, count(*) AS ranks FROM straggler_ranks
    WHERE run_id = $1 GROUP BY verdict ORDER BY verdict
"""
_WORST_RANKS = f"""
    SELECT rank, stage, host, device, verdict, slowdown, slow_steps, steps, time_lost_ms, reason,
        evidence
    FROM straggler_ranks
    WHERE run_id = $1 AND verdict IN ('straggler', 'suspect')
    ORDER BY verdict, time_lost_ms DESC NULLS LAST, rank
    LIMIT {WORST}
"""
# What the devices did in the steps; of traces of kernels alone.
_DEVICES = f"""
    WITH steps AS (
        SELECT d.*, coalesce(s.warmup, false) AS warmup
        FROM device_steps AS d
        LEFT JOIN step_stats AS s USING (run_id, step)
        WHERE d.run_id = $1
    )
    SELECT rank, count(*) AS steps, avg(window_ms) AS window_ms,
        sum(compute_ms) / sum(window_ms) AS compute_ratio,
        sum(exposed_comm_ms) / sum(window_ms) AS exposed_comm_ratio,
        sum(exposed_copy_ms) / sum(window_ms) AS exposed_copy_ratio,
        sum(idle_ms) / sum(window_ms) AS idle_ratio,
        sum(comm_ms * hidden_comm_ratio) / nullif(sum(comm_ms), 0) AS hidden_comm_ratio,
        count(*) OVER () AS ranks
    FROM steps
    WHERE warmup = (SELECT min(warmup) FROM steps)
    GROUP BY rank
    HAVING sum(window_ms) > 0
    ORDER BY sum(idle_ms) / sum(window_ms) DESC, rank
    LIMIT {WORST}
"""
_COLLECTIVES = f"""
    SELECT collective, group_kind, dtype, size_bytes, overlapped, group_size, calls, coarse_calls,
        calls * time_p50_ms AS time_ms, time_p50_ms, time_p95_ms, algbw_p50_gbps, busbw_p50_gbps,
        reason, count(*) OVER () AS kinds
    FROM collective_bandwidth
    WHERE run_id = $1 AND calls > 0
    ORDER BY time_ms DESC NULLS LAST, calls DESC, collective, group_kind, dtype, size_bytes,
        overlapped
    LIMIT {WORST}
"""
_TIMERS = f"""
    SELECT name, records, max_ms, share_ratio, ranks, spread_ms, slowest_rank,
        count(*) OVER () AS kinds
    FROM timer_summary
    WHERE run_id = $1 AND share_ratio IS NOT NULL
    ORDER BY max_ms DESC, name
    LIMIT {WORST}
"""
_LAYERS = f"""
    SELECT layer, layer_kind, steps, mean_ms, p50_ms, p95_ms, max_ms, cv_ratio, worst_step,
        outlier_steps, trend, trend_ratio, trend_reason, count(*) OVER () AS {{total}}
    FROM layer_stats
    WHERE run_id = $1 AND {{where}}
    ORDER BY {{order}}, layer_index NULLS LAST, layer
    LIMIT {WORST}
"""
_SPLIT = """
    SELECT stage, first_layer, last_layer, layers, micro_batch_ms, current_first_layer,
        current_last_layer, current_micro_batch_ms, gain_ratio, covered_ratio, bottleneck_layer,
        reason
    FROM stage_rebalance WHERE run_id = $1 ORDER BY stage
"""
_PLAN = f"""
    SELECT pass, collective, group_kind, group_size, calls, bytes, compute_ms, needed_gbps, reason,
        count(*) OVER () AS kinds
    FROM workload_comm
    WHERE run_id = $1
    ORDER BY bytes DESC, pass, collective, group_kind
    LIMIT {WORST}
"""
_OPPORTUNITIES = """
    SELECT kind, gain_ratio, change, confidence, evidence
    FROM opportunities WHERE run_id = $1 ORDER BY gain_ratio DESC, kind
"""
_VIEWS = """
    SELECT v.view_run_id, v.view_format, v.view_label, l.hash, v.related_by
    FROM run_views AS v
    JOIN run_list AS l ON l.run_id = v.view_run_id
    WHERE v.run_id = $1
    ORDER BY v.view_format, v.view_run_id
"""
_RELATED = """
    SELECT o.run_id, o.label, o.hash
    FROM run_list AS l
    JOIN run_list AS o ON o.hash = l.{column}
    WHERE l.run_id = $1
"""
_INPUTS = """
    SELECT count(*) AS files, sum(bytes)::BIGINT AS bytes, sum(lines)::BIGINT AS lines,
        sum(rejected)::BIGINT AS rejected
    FROM sources WHERE run_id = $1
"""
# Faults that were tolerated, the severest first; what is only information changes no figure.
_FAULTS = """
    SELECT f.name, f.severity, s.format, sum(f.count)::BIGINT AS count,
        count(DISTINCT f.source_id) AS files
    FROM faults AS f
    JOIN sources AS s USING (run_id, source_id)
    WHERE f.run_id = $1 AND f.severity <> 'info'
    GROUP BY f.name, f.severity, s.format
    ORDER BY list_position(['error', 'data_loss', 'incomplete', 'notice'], f.severity), f.name
"""


def read_run(con: duckdb.DuckDBPyConnection, run_id: str) -> Document:
    """Return all that `show` tells of a run; what is long is its worst, beside how many there are.

    Returns:
        `run`, `summary`, `baseline` and `coverage` are the run's rows of `runs`, `run_summary`,
        `run_history` and `coverage`; `not_computable` has an entry for each figure that is missing.
        Means over steps leave warm-up out.
    """
    coverage = _row(con, "coverage", run_id)
    slow = _LAYERS.format(total="layers", where="true", order="mean_ms DESC NULLS LAST")
    drift = _LAYERS.format(
        total="drifting_layers",
        where="trend IN ('rising', 'falling')",
        order="abs(trend_ratio) DESC",
    )
    return {
        "run_id": run_id,
        "run": _row(con, "runs", run_id),
        "copy_of": _related(con, run_id, "copy_of"),
        "continued_by": _related(con, run_id, "continued_by"),
        "running_until": _row(con, "run_list", run_id)["running_until"],
        "views": read_rows(con, _VIEWS, [run_id]),
        "inputs": read_rows(con, _INPUTS, [run_id])[0],
        "faults": _faults(con, run_id),
        "summary": _without(_row(con, "run_summary", run_id), "not_computable"),
        "baseline": _row(con, "run_history", run_id),
        "attention": read_rows(con, _ATTENTION, [run_id]),
        "opportunities": read_rows(con, _OPPORTUNITIES, [run_id]),
        "steps": {**read_rows(con, _STEPS, [run_id])[0], "curve": read_rows(con, _CURVE, [run_id])},
        "stages": read_rows(con, _STAGES, [run_id]),
        "stragglers": {
            "verdicts": {
                row["verdict"]: row["ranks"] for row in read_rows(con, _VERDICTS, [run_id])
            },
            "worst": read_rows(con, _WORST_RANKS, [run_id]),
        },
        "devices": _worst(con, _DEVICES, run_id, "ranks", "idlest"),
        "collectives": _worst(con, _COLLECTIVES, run_id, "kinds", "longest"),
        "timers": _worst(con, _TIMERS, run_id, "kinds", "longest"),
        "plan": _worst(con, _PLAN, run_id, "kinds", "largest"),
        "tests": _worst(con, _TESTS, run_id, "kinds", "largest"),
        "layers": _worst(con, slow, run_id, "layers", "slowest")
        | _worst(con, drift, run_id, "drifting_layers", "drifting"),
        "split": read_rows(con, _SPLIT, [run_id]),
        "coverage": _without(coverage, "not_computable", "hints", "partly", "partly_hints"),
        "not_computable": missing_figures(coverage["not_computable"], coverage["hints"]),
        "partly_computable": missing_figures(coverage["partly"], coverage["partly_hints"]),
    }


def why(reason: str | None) -> str:
    """Return a reason of the closed list with its meaning."""
    if reason is None or reason not in reasons():
        return reason or ""
    first, rest = reasons()[reason][:1], reasons()[reason][1:].rstrip(".")
    return f"{reason}, {first if rest[:1].isupper() else first.lower()}{rest}"


def _row(con: duckdb.DuckDBPyConnection, relation: str, run_id: str) -> Row:
    (row,) = read_rows(con, f"FROM {relation} WHERE run_id = $1", [run_id])
    return row


def _related(con: duckdb.DuckDBPyConnection, run_id: str, column: str) -> Row | None:
    """Return the run that a column of `run_list` names by its hash, if it names one."""
    return next(iter(read_rows(con, _RELATED.format(column=column), [run_id])), None)


def _faults(con: duckdb.DuckDBPyConnection, run_id: str) -> list[Row]:
    """Return the faults of the run's files, with what each means and what to do about it."""
    found = read_rows(con, _FAULTS, [run_id])
    if not found:
        return found
    from tracelake.formats import faults_of  # noqa: PLC0415 - slow to import

    for row in found:
        known = faults_of(row.pop("format")).get(row["name"])
        row["why"] = known and known.doc
    return found


def _worst(
    con: duckdb.DuckDBPyConnection, sql: str, run_id: str, total: str, name: str
) -> Document:
    """Return the worst rows by `name`, and of how many: that is in the column `total` of each."""
    rows = read_rows(con, sql, [run_id])
    return {total: rows[0][total] if rows else 0, name: [_without(row, total) for row in rows]}


def _without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def missing_figures(entries: list[str], hints: list[str | None]) -> list[Row]:
    """Return entries of coverage: figure, reason, what the reason means, and what would help."""
    found = []
    for entry, hint in zip(entries, hints, strict=True):
        figure, _, reason = entry.rpartition(": ")
        why = reasons().get(reason.partition(" ")[0])
        found.append({"figure": figure, "reason": reason, "why": why, "hint": hint})
    return found
