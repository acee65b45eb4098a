"""Define charts that compare: bandwidth by size, skew of arrival, stages and their layers."""

from __future__ import annotations

from functools import partial

from tracelake.output.html.charts.kind import (
    Drawing,
    Kind,
    colored,
    column,
    hints,
    labels,
    layer,
    layers,
    milliseconds,
    rows_high,
    several,
    stages,
)
from tracelake.output.html.links import PAGE_RATES
from tracelake.output.html.palette import var
from tracelake.output.html.reading import PAGE_RUNS
from tracelake.output.html.shapes import IN_MODEL

_COLLECTIVES = {
    "all_reduce": var("c0"),
    "all_gather": var("c3"),
    "reduce_scatter": var("c2"),
    "all_to_all": var("c4"),
    "send": var("c1"),
    "broadcast": var("c5"),
    "reduce": var("other"),
}
_LAYER_KINDS = {
    "embedding": var("c3"),
    "block": var("c0"),
    "head": var("c1"),
    "other": var("other"),
}
_SPLITS = {"as it ran": var("c0"), "best": var("c3")}


@partial(
    Kind,
    "bandwidth",
    "collective_bandwidth",
    "Median bus bandwidth by size S, as in nccl-tests: algbw is S / t, busbw is"
    " algbw times the collective's factor, comparable with the speed of the links. The dashed"
    " line is the rated speed of the link, without `--links` the best of the lake.",
    f"""
    SELECT
        run_id, collective, group_kind AS "group", size_bytes AS bytes,
        size_convention AS convention, group_size AS n, calls, dtype, time_basis AS basis,
        round(busbw_p50_gbps, 4) AS busbw, round(algbw_p50_gbps, 4) AS algbw,
        round(time_p50_ms, 4) AS ms, round(l.gbps, 4) AS rated, l.said AS rated_by
    FROM collective_bandwidth
    SEMI JOIN {PAGE_RUNS} USING (run_id)
    LEFT JOIN {PAGE_RATES} AS l USING (run_id, group_kind)
    WHERE busbw_p50_gbps > 0 AND size_bytes > 0
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY calls * time_p50_ms DESC) <= $points
    ORDER BY run_id, collective, group_kind, size_bytes, dtype
    """,
)
def _bandwidth() -> Drawing:
    log = {"type": "log"}
    sizes, speeds = (
        {"format": "~s", "tickCount": 6, "grid": False},
        {"format": "~g", "tickCount": 5},
    )
    base = {
        "x": column("bytes:Q", title="size (bytes)", scale=log, axis=sizes),
        "y": column("busbw:Q", title="busbw (GB/s)", scale=log, axis=speeds),
        "color": colored("collective", _COLLECTIVES),
    }
    points = base | {
        "shape": column("group:N", legend={"title": "group", "orient": "bottom"}),
        "tooltip": hints(
            "collective; group; n|ranks n|,; bytes|size S (bytes)|,; "
            "convention|S counts; dtype|type; calls|calls|,; "
            "ms|time t (ms)|,.3f; basis|t is; algbw|algbw S / t (GB/s)|,.2f; "
            "busbw|busbw (GB/s)|,.2f"
        ),
    }
    lines = base | {"detail": [column("group:N"), column("dtype:N")]}
    rated = (
        {"filter": "isValid(datum.rated)"},
        {"aggregate": [], "groupby": ["rated", "rated_by"]},
        {"window": [{"op": "row_number", "field": "", "as": "place"}]},
        {"calculate": "replace(datum.rated_by, ' of the lake', '')", "as": "short"},
    )
    rule = {"y": column("rated:Q"), "tooltip": hints("rated_by|line; rated|GB/s|,.2f")}
    named = rule | {
        # Lines close to each other have their names side by side.
        "x": column("place:Q", scale={"domain": [1, 5]}, axis=None),
        "text": column("short:N"),
    }
    look = {"align": "left", "dx": 4, "dy": -5, "fontSize": 11, "color": var("soft")}
    return {"resolve": {"scale": {"x": "independent"}}} | layers(
        layers(
            layer("line", lines, strokeWidth=0.8),
            layer("point", points, filled=True, size=55, opacity=1),
        ),
        layer("rule", rule, *rated, strokeDash=[5, 3], color=var("soft")),
        layer("text", named, *rated, **look),
    )


@partial(
    Kind,
    "skew",
    "collective_bandwidth",
    "Delay between the first and the last member of a call: 95 % of the calls are"
    " below the bar's end, half below the tick.",
    f"""
    SELECT
        run_id,
        replace(collective, 'recv', 'send') || ' · ' || coalesce(group_kind, '?') AS label,
        count(*) AS calls,
        round(quantile_cont(skew_ms, 0.5), 4) AS p50, round(quantile_cont(skew_ms, 0.95), 4) AS p95,
        round(max(skew_ms), 4) AS "max", round(max(clock_uncertainty_ms), 4) AS uncertainty
    FROM collective_calls SEMI JOIN {PAGE_RUNS} USING (run_id)
    WHERE skew_ms IS NOT NULL AND NOT overlapped
        AND rank = lowest_rank  -- every call once
    GROUP BY run_id, label
    ORDER BY run_id, p95 DESC, label
    """,
    shows=several("label"),
)
def _skew() -> Drawing:
    base = {
        "y": labels(labelLimit=170),
        "tooltip": hints(
            "label|call; calls|calls|,; p50|median (ms)|,.3f; "
            "p95|95 % of calls (ms)|,.3f; max|maximum (ms)|,.3f; "
            "uncertainty|clock uncertainty (ms)|,.3f"
        ),
    }
    most = column("p95:Q", title="skew of arrival (ms)", axis={"tickCount": 5})
    return rows_high(19) | layers(
        layer("bar", base | {"x": most}, color=var("recv"), height={"band": 0.7}),
        layer("tick", base | {"x": column("p50:Q")}, color=var("ink"), thickness=2),
    )


@partial(
    Kind,
    "layer_stages",
    "layer_stages",
    "Layers of each stage in order, by their median time.",
    f"""
    SELECT
        run_id, 'stage ' || stage AS label, layer,
        CASE WHEN layer_kind IN ({", ".join(f"'{kind}'" for kind in _LAYER_KINDS)}) THEN layer_kind
            ELSE 'other' END AS kind,
        round(micro_batch_ms, 4) AS ms, round(stage_share_ratio, 4) AS share,
        row_number() OVER (
            PARTITION BY run_id, stage ORDER BY {IN_MODEL}
        ) AS place
    FROM layer_stages SEMI JOIN {PAGE_RUNS} USING (run_id)
    WHERE micro_batch_ms IS NOT NULL
    ORDER BY run_id, stage, place
    """,
    wide=True,
)
def _layer_stages() -> Drawing:
    modules = "forward modules, per micro-batch (ms)"
    channels = {
        "x": column("ms:Q", title=modules, axis={"tickCount": 10}),
        "y": labels(),
        "color": colored("kind", _LAYER_KINDS),
        "order": column("place:Q"),
        "tooltip": hints(
            "label|stage; layer; kind; ms|per micro-batch (ms)|,.3f; share|of the stage|.1%"
        ),
    }
    return rows_high(19) | layer("bar", channels, stroke=var("paper"), strokeWidth=0.7)


@partial(
    Kind,
    "split",
    "stage_rebalance",
    "Stages as they ran, and with the best split of the layers.",
    f"""
    SELECT * FROM (
        SELECT run_id, stage, 'as it ran' AS split, round(current_micro_batch_ms, 4) AS ms,
            current_first_layer AS first_layer, current_last_layer AS last_layer,
            round(gain_ratio, 4) AS gain
        FROM stage_rebalance SEMI JOIN {PAGE_RUNS} USING (run_id)
        UNION ALL
        SELECT run_id, stage, 'best', round(micro_batch_ms, 4), first_layer, last_layer,
            round(gain_ratio, 4)
        FROM stage_rebalance SEMI JOIN {PAGE_RUNS} USING (run_id)
    )
    WHERE ms IS NOT NULL
    ORDER BY run_id, stage, split
    """,
    shows=several("stage"),
)
def _split() -> Drawing:
    channels = {
        "x": stages(),
        "xOffset": column("split:N", sort=list(_SPLITS)),
        "y": milliseconds("per micro-batch (ms)"),
        "color": colored("split", _SPLITS),
        "tooltip": hints(
            "stage; split; ms|per micro-batch (ms)|,.3f; "
            "first_layer|from layer; last_layer|to layer; "
            "gain|step saved|.1%"
        ),
    }
    return layer("bar", channels)


@partial(
    Kind,
    "balance",
    "stage_balance",
    "Time of each stage per micro-batch; the tick is the mean of all stages.",
    f"""
    SELECT run_id, stage, round(micro_batch_ms, 4) AS ms, round(share_ratio, 4) AS share,
        round(avg(micro_batch_ms) OVER (PARTITION BY run_id), 4) AS even
    FROM stage_balance SEMI JOIN {PAGE_RUNS} USING (run_id)
    WHERE micro_batch_ms IS NOT NULL
    ORDER BY run_id, stage
    """,
    shows=several("stage"),
)
def _balance() -> Drawing:
    bars = {
        "x": stages(),
        "y": milliseconds("per micro-batch (ms)"),
        "tooltip": hints(
            "stage; ms|per micro-batch (ms)|,.3f; share|of all stages|.1%; even|even (ms)|,.3f"
        ),
    }
    even = {"x": stages(), "y": column("even:Q")}
    return layers(
        layer("bar", bars, color=var("c0")), layer("tick", even, color=var("c1"), thickness=2)
    )


KINDS = (_balance, _bandwidth, _skew, _split, _layer_stages)
