-- Which layer gets slower in the course of a run?
-- @topic steps
-- @param run VARCHAR = "" | Part of the run's id; every run by default.
-- @param top UBIGINT = 20 | Rows at most.
-- `rising` is beyond chance and at least 5 %: one layer alone speaks for its data or kernel, all
-- layers of a stage for the device. `few_steps`: a trend needs ten steps that count.

SELECT run_id, layer, steps, p50_ms, cv_ratio, trend, trend_ratio, trend_reason, outlier_steps
FROM layer_stats
WHERE reason IS NULL AND contains(run_id, $run)
ORDER BY
    list_position(['rising', 'falling', 'steady'], trend) NULLS LAST,
    abs(trend_ratio) DESC NULLS LAST,
    run_id,
    layer_index NULLS FIRST,
    layer
LIMIT $top
