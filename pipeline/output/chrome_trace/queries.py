"""Query the warehouse for a timeline: ranks, and every slice and arrow as JSON text.

DuckDB writes the text of an event, so that a slice costs Python a few string operations. Times are
integers of nanoseconds until they are printed. `$run`, `$first_step`, `$last_step`, `$first_rank`
and `$last_rank` are parameters. `timeline_ranks` and, of these, `timeline_chosen` are temporary
tables of ranks and their clocks: see `tracelake.output.chrome_trace.selection`.
"""

from __future__ import annotations

LARGE = ("ops", "comms", "collective_calls", "rank_bubbles")
"""Relations with a row per operation, call or step."""

# Columns of `ops`, `comms` and `collective_calls` that a slice has as arguments.
SLICE_ARGS = (
    *("step", "micro_batch", "phase", "seq", "sub_seq", "parent_op"),
    *("group_kind", "raw_group", "group_size", "bytes", "dtype", "shape", "tensor", "caller"),
    *("call", "size_bytes", "algbw_gbps", "busbw_gbps", "reason"),
    *("skew_ms", "wait_ms", "last_rank", "skew_reason", "description"),
)
# Columns of `rank_bubbles` that the slice of a step has.
STEP_ARGS = (
    *("window_ms", "compute_ms", "data_ms", "in_op_comm_ms", "p2p_recv_ms", "p2p_send_ms"),
    *("finalize_ms", "other_step_ms", "gap_ms", "idle_ms", "p2p_recv_wait_ms", "in_op_wait_ms"),
    *("in_op_overlap_ms", "bubble_ratio", "bubble_with_wait_ratio", "theory_bubble_ratio"),
    *("reason", "recv_reason"),
)


def _at(reading: str) -> str:
    """Return a clock's time as time of the trace; the rank's clock is `k`."""
    return f"aligned_ns({reading}, k.offset_ns, k.drift, k.origin_ns) - k.zero_ns"


def _struct(table: str, names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}': {table}.{name}" for name in names)


# Nanoseconds as the format's microseconds, with all decimals; an event without its thread, which
# is added when it is written.
MACROS = """
CREATE TEMP MACRO trace_us(ns) AS
    CASE WHEN ns % 1000 = 0 THEN (ns // 1000)::VARCHAR
    ELSE printf('%d.%03d', ns // 1000, ns % 1000) END;
CREATE TEMP MACRO trace_args(args) AS json_merge_patch('{}', to_json(args))::VARCHAR;
CREATE TEMP MACRO trace_slice(name, cat, pid, from_ns, to_ns, args) AS concat(
    '{"ph":"X","name":', to_json(name), ',"cat":', to_json(cat), ',"pid":', pid,
    ',"ts":', trace_us(from_ns), ',"dur":', trace_us(to_ns - from_ns), ',"args":', args
);
CREATE TEMP MACRO trace_flow(ph, name, id, pid, at_ns) AS concat(
    '{"ph":"', ph, '","name":', to_json(name), ',"cat":"flow","id":', id, ',"pid":', pid,
    ',"ts":', trace_us(at_ns), CASE WHEN ph = 'f' THEN ',"bp":"e"' END
);
"""

_CHOSEN = """run_id = $run AND step BETWEEN $first_step AND $last_step
        AND rank BETWEEN $first_rank AND $last_rank"""

# Events of calls that several of the chosen ranks made: a chain in order of arrival, from a send to
# its receive. Each is inside its slice and later than the one before it, for readers follow a chain
# in order of time; a call whose times contradict that has none.
ARROWS = f"""
CREATE OR REPLACE TEMP TABLE timeline_arrows AS
WITH members AS (
    SELECT
        c.call, c.collective, m.rank, m.seq, coalesce(m.sub_seq, 0) AS sub, k.clock, k.aligned,
        {_at("m.start_ns")} AS from_ns,
        {_at("m.end_ns")} AS to_ns
    FROM (FROM comms WHERE {_CHOSEN}) AS m
    JOIN (FROM collective_calls WHERE {_CHOSEN} AND matched) AS c
        ON c.rank = m.rank AND c.seq = m.seq AND c.sub_seq IS NOT DISTINCT FROM m.sub_seq
    JOIN timeline_chosen AS k ON k.rank = m.rank
),
placed AS (
    SELECT
        *,
        row_number() OVER chain AS place,
        count(*) OVER call AS members,
        bool_and(aligned) OVER call OR min(clock) OVER call = max(clock) OVER call AS comparable
    FROM members
    WINDOW
        call AS (PARTITION BY call),
        chain AS (PARTITION BY call ORDER BY collective = 'recv', from_ns, rank)
),
timed AS (
    SELECT *, place + max(from_ns - place) OVER (PARTITION BY call ORDER BY place) AS at_ns
    FROM placed
    WHERE members > 1
),
judged AS (
    SELECT
        *,
        comparable AND bool_and(at_ns < greatest(to_ns, from_ns + 1)) OVER (PARTITION BY call)
            AS drawn,
        dense_rank() OVER (ORDER BY call) AS id
    FROM timed
)
SELECT rank, seq, sub, id::INTEGER AS id, at_ns, drawn, place = 1 AS first, place = members AS last
FROM judged
"""
ARROWS_COUNT = """
SELECT
    coalesce(max(id), 0) AS calls, count(*) FILTER (first AND drawn) AS drawn
FROM timeline_arrows
"""

# Every operation and sub-operation with a time, in the order of its rank's records. The part of a
# receive after the start of its send is a slice inside it: Perfetto draws an arrow from the slice
# that starts first.
SLICES = f"""
WITH done AS (
    SELECT
        rank, seq, NULL::INTEGER AS sub_seq, step, stage, micro_batch, phase, op AS name,
        coalesce(category, 'other') AS kind, group_kind, NULL AS parent_op,
        start_ns, end_ns, shape, dtype, bytes, description, attributes, source_id, line
    FROM ops
    WHERE {_CHOSEN}
    UNION ALL
    SELECT
        rank, seq, sub_seq, step, stage, micro_batch, phase,
        coalesce(collective, raw_func) AS name,
        'in_op' AS kind, group_kind, parent_op,
        start_ns, end_ns, shape, dtype, bytes, NULL AS description, attributes, source_id, line
    FROM comms
    WHERE {_CHOSEN} AND sub_seq IS NOT NULL
),
timed AS (
    SELECT
        d.*, k.rank + 1 AS pid,
        {_at("d.start_ns")} AS from_ns,
        {_at("d.end_ns")} AS to_ns,
        m.raw_group, m.caller, m.tensor, c.call, c.collective, c.size_bytes, c.group_size,
        c.algbw_gbps, c.busbw_gbps, c.reason, c.skew_ms, c.wait_ms, c.last_rank, c.skew_reason,
        concat(s.path, '/' || s.member, ':', d.line) AS source,
        CASE WHEN c.wait_ms > 0
            THEN least(to_ns, from_ns + round(c.wait_ms * 1e6)::BIGINT)
        END AS waited_ns
    FROM done AS d
    JOIN timeline_chosen AS k ON k.rank = d.rank
    LEFT JOIN (FROM comms WHERE {_CHOSEN}) AS m
        ON m.rank = d.rank AND m.seq = d.seq AND m.sub_seq IS NOT DISTINCT FROM d.sub_seq
    LEFT JOIN (FROM collective_calls WHERE {_CHOSEN}) AS c
        ON c.rank = d.rank AND c.seq = d.seq AND c.sub_seq IS NOT DISTINCT FROM d.sub_seq
    LEFT JOIN sources AS s ON s.run_id = $run AND s.source_id = d.source_id
    WHERE d.start_ns IS NOT NULL AND d.end_ns IS NOT NULL
)
SELECT
    t.rank,
    t.kind,
    t.from_ns,
    t.to_ns,
    trace_slice(coalesce(t.name, t.kind), t.kind, t.pid, t.from_ns, t.to_ns, trace_args({{
        {_struct("t", SLICE_ARGS)},
        'attributes': CASE WHEN cardinality(t.attributes) > 0 THEN t.attributes END,
        'source': t.source
    }})) AS slice,
    CASE WHEN a.drawn THEN trace_flow(
        CASE WHEN a.first THEN 's' WHEN a.last THEN 'f' ELSE 't' END,
        CASE WHEN t.collective IN ('send', 'recv') THEN 'message' ELSE t.collective END,
        a.id + $arrows_before, t.pid, a.at_ns
    ) END AS flow,
    t.waited_ns,
    CASE WHEN t.waited_ns IS NOT NULL THEN trace_slice(
        concat('wait', ' for rank ' || t.last_rank), 'waiting', t.pid, t.from_ns, t.waited_ns,
        trace_args({{'step': t.step, 'call': t.call, 'in': t.name, 'last_rank': t.last_rank}})
    ) END AS wait,
    CASE WHEN t.collective = 'recv' AND t.waited_ns < t.to_ns THEN trace_slice(
        'transfer', t.kind, t.pid, t.waited_ns, t.to_ns, trace_args({{'call': t.call}})
    ) END AS transfer
FROM timed AS t
LEFT JOIN timeline_arrows AS a
    ON a.rank = t.rank AND a.seq = t.seq AND a.sub = coalesce(t.sub_seq, 0) AND a.drawn
ORDER BY t.rank, t.seq, t.sub_seq NULLS FIRST
"""

# Steps of the ranks, with their columns of the model.
RANK_STEPS = f"""
SELECT
    s.rank,
    'step' AS kind,
    s.from_ns,
    s.to_ns,
    trace_slice(
        concat('step ', s.step), 'step', s.rank + 1, s.from_ns, s.to_ns,
        trace_args({{'step': s.step, 'stage': s.stage, {_struct("b", STEP_ARGS)}}})
    ) AS slice
FROM (
    SELECT
        o.rank, o.step, min(o.stage) AS stage,
        min({_at("o.start_ns")}) AS from_ns,
        max({_at("o.end_ns")}) AS to_ns
    FROM (
        FROM ops WHERE {_CHOSEN} AND start_ns IS NOT NULL AND end_ns IS NOT NULL
    ) AS o
    JOIN timeline_chosen AS k ON k.rank = o.rank
    GROUP BY o.rank, o.step
) AS s
LEFT JOIN rank_bubbles AS b ON b.run_id = $run AND b.step = s.step AND b.rank = s.rank
ORDER BY s.rank, s.step
"""

# Pipeline windows: they end with the last backward step of any rank, as the model defines them.
WINDOWS = f"""
WITH ends AS (
    SELECT o.step, max({_at("o.end_ns")}) AS to_ns
    FROM ops AS o
    JOIN timeline_ranks AS k USING (rank)
    WHERE run_id = $run AND step BETWEEN $first_step AND $last_step AND kind = 'backward'
    GROUP BY o.step
),
windows AS (
    SELECT
        step,
        max(window_ns) AS window_ns,
        max(window_uncertainty_ms) AS window_uncertainty_ms,
        count(bubble_ratio) AS ranks,
        min(bubble_ratio) AS bubble_min_ratio,
        max(bubble_ratio) AS bubble_max_ratio,
        ordered_mean(bubble_ratio) AS bubble_ratio,
        max(theory_bubble_ratio) AS theory_bubble_ratio
    FROM rank_bubbles
    WHERE run_id = $run AND window_ns IS NOT NULL
    GROUP BY step
)
SELECT
    NULL AS rank,
    'window' AS kind,
    e.to_ns - w.window_ns AS from_ns,
    e.to_ns,
    trace_slice(
        concat('pipeline window of step ', step), 'window', $pid, from_ns, e.to_ns, trace_args({{
            'step': step, 'window_ms': ns_to_ms(w.window_ns),
            'window_uncertainty_ms': w.window_uncertainty_ms, 'ranks': w.ranks,
            'bubble_ratio': w.bubble_ratio, 'bubble_min_ratio': w.bubble_min_ratio,
            'bubble_max_ratio': w.bubble_max_ratio,
            'theory_bubble_ratio': w.theory_bubble_ratio
        }})
    ) AS slice
FROM ends AS e
JOIN windows AS w USING (step)
ORDER BY step
"""

# Clocks that the chosen ranks were read from.
CLOCKS = """
SELECT
    clock, aligned, any_value(basis) AS basis, any_value(reason) AS reason,
    any_value(offset_ms) AS offset_ms, any_value(drift_ppm) AS drift_ppm,
    any_value(uncertainty_ms) AS uncertainty_ms, any_value(zero_ns) AS zero_ns,
    count(*) AS ranks, min(rank) AS first_rank
FROM timeline_chosen
GROUP BY clock, aligned
ORDER BY first_rank
"""
