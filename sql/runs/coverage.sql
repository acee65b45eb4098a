-- What of a run was seen and understood, what cannot be computed from it, and what would change that.
-- @report Coverage
-- @grain run_id
-- @column steps BIGINT steps | Steps seen.
-- @column restarts BIGINT | How often the job began again in its log, as far as dates tell: a step that it trained once more counts with its later record. NULL without records.
-- @column rejects BIGINT lines | Lines that were not understood.
-- @column rows BIGINT rows | Rows stored, over all tables of records.
-- @column coverage_ratio DOUBLE | Ranks seen over expected, times lines that became rows over those and the rejected; NULL where the ranks to expect are unknown.
-- @column missing_ranks INTEGER[] | Ranks of a traced job without a record; NULL where the job's size is unknown.
-- @column missing_stages INTEGER[] | Pipeline stages without a rank that was seen; NULL where their number is unknown.
-- @column calls BIGINT calls | Communications, those of matched peers counted once.
-- @column matched_calls BIGINT calls | Communications of which every peer was seen.
-- @column contradictions VARCHAR[] | What contradicts that the sizes fit world_size and hold for the whole log, and that the ranks are of one job in Megatron's order, count the same steps, have each line of a step once and, without named hosts, share a clock: sentences that begin with their subject, at most 8.
-- @column not_computable VARCHAR[] | Figures that no row of the run has, each as `model.column: reason`.
-- @column hints VARCHAR[] | For each of not_computable what would give it; NULL where nothing does.
-- @column partly VARCHAR[] | Figures that some rows of the run lack and something would give, each as `model.column: reason (rows of rows)`.
-- @column partly_hints VARCHAR[] | For each of partly what would give it.
WITH lines AS (
    SELECT
        run_id,
        try_cast(sum(row_lines) AS BIGINT) AS row_lines,
        try_cast(sum(rejected) AS BIGINT) AS rejects,
        try_cast(sum("rows") AS BIGINT) AS "rows"
    FROM sources
    GROUP BY run_id
),
steps AS (
    SELECT run_id, count(*) AS steps, max(restarts) AS restarts
    FROM step_stats
    GROUP BY run_id
),
calls AS (
    SELECT run_id, sum(calls)::BIGINT AS calls, sum(matched_calls)::BIGINT AS matched_calls
    FROM collective_bandwidth
    GROUP BY run_id
),
listed AS (
    SELECT
        run_id,
        list(concat(figure, ': ', reason) ORDER BY figure) FILTER (whole) AS not_computable,
        list(remedy ORDER BY figure) FILTER (whole) AS hints,
        list(format('{}: {} ({} of {} rows)', figure, reason, times, out_of) ORDER BY figure)
            FILTER (NOT whole) AS partly,
        list(remedy ORDER BY figure) FILTER (NOT whole) AS partly_hints
    FROM abstentions
    GROUP BY run_id
),
contradictions AS (
    SELECT run_id, list(sentence ORDER BY kind, rank, sentence)[:8] AS contradictions
    FROM _contradictions
    GROUP BY run_id
)
SELECT
    r.run_id,
    r.ranks_seen,
    r.ranks_expected,
    s.steps,
    CASE WHEN f.run_id IS NULL THEN coalesce(l.rejects, 0) END AS rejects,
    CASE WHEN f.run_id IS NULL THEN coalesce(l.rows, 0) END AS "rows",
    CASE WHEN r.ranks_seen IS NULL THEN 1 ELSE ratio(r.ranks_seen, r.ranks_expected) END
        * ratio(l.row_lines, l.row_lines::HUGEINT + l.rejects) AS coverage_ratio,
    r.complete,
    m.missing_ranks,
    m.missing_stages,
    c.calls,
    c.matched_calls,
    coalesce(x.contradictions, []) AS contradictions,
    coalesce(n.not_computable, []) AS not_computable,
    coalesce(n.hints, []) AS hints,
    coalesce(n.partly, []) AS partly,
    coalesce(n.partly_hints, []) AS partly_hints,
    s.restarts
FROM runs AS r
LEFT JOIN model_failures AS f USING (run_id)
LEFT JOIN lines AS l USING (run_id)
LEFT JOIN steps AS s USING (run_id)
LEFT JOIN calls AS c USING (run_id)
LEFT JOIN _missing AS m USING (run_id)
LEFT JOIN listed AS n USING (run_id)
LEFT JOIN contradictions AS x USING (run_id)
