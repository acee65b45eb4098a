-- Which pass an operation belongs to: number of the forward or backward pass within the rank's step.
-- A pass is receive, loading of data, forward step, send, or receive, backward step, send, of which
-- any may be lacking. Operations of a name count in their order; where a line was lost, in that of the passes
-- around them. Other operations are passes by themselves, and so are those of an interleaved schedule,
-- where a message leaves one pass and feeds another.
-- @grain run_id, rank, seq
-- @column pass_number BIGINT | From 1; NULL where lines were lost and the others do not tell which.
-- @column passes BIGINT | Passes of the kind in the step: operations of the most frequent name.
WITH interleaved AS (
    SELECT DISTINCT o.run_id
    FROM ops AS o
    JOIN runs AS r USING (run_id)
    WHERE r.vpp > 1
        OR (o.kind = 'recv' AND o.pass = 'forward' AND o.stage = 0)
        OR (o.kind = 'send' AND o.pass = 'forward' AND o.stage = r.pp - 1)
),
placed AS (
    SELECT
        o.run_id, o.rank, o.seq,
        CASE WHEN i.run_id IS NULL THEN coalesce(o.pass, o.op) ELSE o.op END AS alike,
        CASE o.kind WHEN 'recv' THEN 1 WHEN 'data' THEN 2 WHEN 'send' THEN 4 ELSE 3 END AS place,
        -- One number to sort by, as in _comm_identities.
        hash(o.run_id, o.rank, o.step, alike) AS series,
        hash(series, o.op) AS own
    FROM ops AS o
    LEFT JOIN interleaved AS i USING (run_id)
),
counted AS (
    SELECT
        *,
        count(*) OVER (PARTITION BY own) AS times,
        row_number() OVER (PARTITION BY own ORDER BY seq) AS number
    FROM placed
),
sums AS (
    SELECT series, max(times) AS passes, min(times) < passes AS uneven
    FROM counted
    GROUP BY series
),
begins AS (
    -- Where operations of one name are fewer than of another, the passes are told by their order.
    SELECT
        run_id, rank, seq, series,
        coalesce(place <= lag(place) OVER (PARTITION BY series ORDER BY seq), true) AS begins
    FROM counted
    SEMI JOIN (SELECT series FROM sums WHERE uneven) AS lost USING (series)
),
begun AS (
    SELECT
        run_id, rank, seq,
        count(CASE WHEN begins THEN 1 END) OVER (PARTITION BY series) AS begun,
        count(CASE WHEN begins THEN 1 END) OVER (PARTITION BY series ORDER BY seq) AS begun_before
    FROM begins
)
SELECT
    run_id,
    rank,
    seq,
    CASE WHEN times = passes THEN number WHEN begun = passes THEN begun_before END AS pass_number,
    passes
FROM counted
JOIN sums USING (series)
LEFT JOIN begun USING (run_id, rank, seq)
