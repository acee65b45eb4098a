-- Are the clocks good enough to believe who came late?
-- @topic communication
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- A skew is published only where it exceeds what the clocks leave open: `believed_ratio` of the
-- matched calls. A run on one clock leaves nothing open. Ranks without an offset say why in
-- `reasons`; give `--hosts` when you ingest if hosts are not known. Simulated runs have no clocks.

WITH clocks AS (
    SELECT
        run_id,
        count(*) AS ranks,
        count(DISTINCT clock) AS clocks,
        max(uncertainty_ms) AS uncertainty_ms,
        max(abs(drift_ppm)) AS drift_ppm,
        list(DISTINCT reason) FILTER (reason IS NOT NULL) AS reasons
    FROM clock_offsets
    WHERE reason IS DISTINCT FROM 'simulated'
    GROUP BY run_id
),
skews AS (
    SELECT
        run_id,
        count(*) FILTER (matched) AS matched,
        count(skew_ms) AS believed,
        median(skew_ms) AS skew_p50_ms
    FROM collective_calls
    WHERE NOT coalesce(overlapped, false)
    GROUP BY run_id
)
SELECT
    c.run_id,
    c.ranks,
    c.clocks,
    c.uncertainty_ms,
    c.drift_ppm,
    s.skew_p50_ms,
    s.believed / nullif(s.matched, 0) AS believed_ratio,
    list_sort(c.reasons) AS reasons
FROM clocks AS c
LEFT JOIN skews AS s USING (run_id)
WHERE contains(c.run_id, $run)
ORDER BY c.uncertainty_ms DESC NULLS FIRST, c.run_id
