"""What a capable user would write instead of `tracelake run`: three figures from rank traces.

    python -m tests.bench.analyses polars FOLDER TENSOR_PARALLEL_SIZE

Each reads the files of a folder, a folder per job, and prints by job the mean bubble ratio of its
ranks, the median bus bandwidth of its tensor-parallel all-reduces, and its slowest rank with its
slowdown. The formulas are those of docs/definitions.md in their plainest form: all ranks share a
clock, every line is well-formed, every call has its peers, each in the same order. Nothing is
stored, no other figure is computed, and no page is drawn. That favours them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.bench.peers.tools import extract

_OP = (
    r"^rank:(?P<rank>[0-9]+):(?P<op>[a-z_]+)\(stage_id=(?P<stage>[0-9]+),.*?,duration=(?P<ms>[0-9.]+)"
    r",.*?,timestamp=(?P<end>[0-9.]+),sub_operations="
)
_CALL_START = "trace_src_func="
_CALL = (
    r"^[A-Za-z0-9_]+,duration=(?P<ms>[0-9.]+),timestamp=[0-9.]+"
    r",input__shape=\[(?P<shape>[0-9, ]*)\],input__dtype=torch\.float16"
    r",func_name=[A-Za-z0-9_]+,group=tp,comm_func=allreduce"
)
_CALL_MS = r"^[A-Za-z0-9_]+,duration=([0-9.]+),"
_BYTES = 2  # of a value
# Operations of a rank's own work, and those in which it is busy.
_WORK = ("forward_step", "backward_step")
_BUSY = (*_WORK, "get_batch", "loss_func")

Figures = dict[str, list[float]]
"""By job: bubble ratio, bus bandwidth in GB/s, slowest rank, its slowdown."""


def by_polars(folder: Path, tp: int) -> Figures:
    """Return the figures of every job, computed with polars alone."""
    import polars as pl

    text, steps = pl.col("text"), ["job", "step"]
    lines = pl.scan_lines(folder / "**/*.txt", name="text", include_file_paths="path")
    calls = text.str.split(_CALL_START).list.slice(1)
    inside = calls.list.eval(pl.element().str.extract(_CALL_MS).cast(pl.Float64)).list.sum()
    ops = (
        lines.select(
            text.str.extract_groups(_OP),
            job=pl.col("path").str.extract(r"([^/]+)/[^/]+$"),
            calls=calls,
            comm_ms=inside,
        )
        .unnest("text")
        .cast({"rank": pl.Int32, "stage": pl.Int32, "ms": pl.Float64, "end": pl.Float64})
        .sort("job", "rank", "end")
        .with_columns(
            step=(pl.col("op") == "optimizer_step")
            .cum_sum()
            .shift(1, fill_value=0)
            .over("job", "rank"),
            start=pl.col("end") - pl.col("ms"),
        )
        .collect(engine="streaming")
    )
    windows = ops.group_by(steps).agg(
        opened=pl.col("start").min(),
        closed=pl.col("end").filter(pl.col("op") == "backward_step").max(),
    )
    within = pl.min_horizontal("end", "closed") - pl.max_horizontal("start", "opened")
    bubbles = (
        ops.filter(pl.col("op").is_in(_BUSY))
        .join(windows, on=steps)
        .group_by("job", "step", "rank")
        .agg(ratio=1 - within.clip(0).sum() / (pl.col("closed") - pl.col("opened")).first())
        .group_by("job")
        .agg(pl.col("ratio").mean())
    )
    own = (
        ops.filter(pl.col("op").is_in(_WORK))
        .group_by("job", "step", "stage", "rank")
        .agg(own=(pl.col("ms") - pl.col("comm_ms")).sum())
    )
    others = own.join(own, on=[*steps, "stage"], suffix="_other")
    slow = (
        others.filter(pl.col("rank") != pl.col("rank_other"))
        .group_by("job", "step", "rank")
        .agg(slowdown=pl.col("own").first() / pl.col("own_other").median())
        .group_by("job", "rank")
        .agg(pl.col("slowdown").median())
        .sort("slowdown", descending=True)
        .group_by("job")
        .first()
    )
    sizes = (
        pl.col("shape").str.split(", ").cast(pl.List(pl.Int64)).list.eval(pl.element().product())
    )
    speeds = (
        ops.lazy()
        .select("job", "rank", pl.col("calls"))
        .explode("calls", empty_as_null=False)
        .select("job", "rank", pl.col("calls").str.extract_groups(_CALL))
        .unnest("calls")
        .drop_nulls("ms")
        .with_columns(
            place=pl.int_range(pl.len()).over("job", "rank"), ms=pl.col("ms").cast(pl.Float64)
        )
        .group_by("job", pl.col("rank") // tp, "place")
        .agg(pl.col("ms").min(), bytes=sizes.list.first().first() * _BYTES)
        .group_by("job")
        .agg(gbps=(pl.col("bytes") * (2 * (tp - 1) / tp) / pl.col("ms") / 1e6).median())
        .collect(engine="streaming")
    )
    rows = bubbles.join(speeds, on="job").join(slow, on="job")
    return {
        job: rest for job, *rest in rows.select("job", "ratio", "gbps", "rank", "slowdown").rows()
    }


def by_duckdb(folder: Path, tp: int) -> Figures:
    """Return the figures of every job, computed with DuckDB alone."""
    import duckdb

    work, busy = (", ".join(f"'{op}'" for op in ops) for ops in (_WORK, _BUSY))
    con = duckdb.connect()
    con.execute(
        f"""
        CREATE TEMP TABLE parsed AS
        SELECT
            parse_path(filename)[-2] AS job,
            {extract("text", _OP)} AS found,
            string_split(text, '{_CALL_START}')[2:] AS calls
        FROM read_csv('{folder}/**/*.txt', columns = {{'text': 'VARCHAR'}}, delim = '\x01',
            quote = '', escape = '', header = false, auto_detect = false, filename = true);

        CREATE TEMP TABLE ops AS
        SELECT
            job, found.rank::INTEGER AS rank, found.stage::INTEGER AS stage, found.op AS op,
            found.ms::DOUBLE AS ms, found."end"::DOUBLE AS stop, stop - ms AS start, calls,
            coalesce(list_sum(
                list_transform(calls, lambda c: regexp_extract(c, '{_CALL_MS}', 1)::DOUBLE)
            ), 0) AS comm_ms,
            coalesce(
                count(*) FILTER (op = 'optimizer_step') OVER (
                    PARTITION BY job, rank ORDER BY stop
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ),
                0
            ) AS step
        FROM parsed
        """
    )
    rows = con.execute(
        f"""
        WITH windows AS (
            SELECT job, step, min(start) AS opened,
                max(stop) FILTER (op = 'backward_step') AS closed
            FROM ops GROUP BY ALL
        ),
        ratios AS (
            SELECT job, step, rank,
                1 - sum(greatest(0, least(stop, closed) - greatest(start, opened)))
                    / any_value(closed - opened) AS ratio
            FROM ops JOIN windows USING (job, step)
            WHERE op IN ({busy}) GROUP BY job, step, rank
        ),
        own AS (
            SELECT job, step, stage, rank, sum(ms - comm_ms) AS own
            FROM ops WHERE op IN ({work}) GROUP BY ALL
        ),
        slow AS (
            SELECT job, rank, median(slowdown) AS slowdown
            FROM (
                SELECT a.job, a.step, a.rank, any_value(a.own) / median(b.own) AS slowdown
                FROM own AS a JOIN own AS b USING (job, step, stage)
                WHERE a.rank <> b.rank GROUP BY a.job, a.step, a.rank
            )
            GROUP BY job, rank
        ),
        calls AS (
            SELECT job, rank, stop,
                unnest(calls) AS text, generate_subscripts(calls, 1) AS sub
            FROM ops
        ),
        timed AS (
            SELECT job, rank, found.ms::DOUBLE AS ms,
                list_product(string_split(found.shape, ', ')::BIGINT[]) * {_BYTES} AS bytes,
                row_number() OVER (PARTITION BY job, rank ORDER BY stop, sub) AS place
            FROM (
                SELECT *, {extract("text", _CALL)} AS found FROM calls
            )
            WHERE found.ms <> ''
        ),
        matched AS (
            SELECT job, any_value(bytes) * (2 * ({tp} - 1) / {tp}) / min(ms) / 1e6 AS gbps
            FROM timed GROUP BY job, rank // {tp}, place
        )
        SELECT job, ratio, gbps, rank, slowdown
        FROM (SELECT job, avg(ratio) AS ratio FROM ratios GROUP BY job)
        JOIN (SELECT job, median(gbps) AS gbps FROM matched GROUP BY job) USING (job)
        JOIN (
            SELECT job, arg_max(rank, slowdown) AS rank, max(slowdown) AS slowdown
            FROM slow GROUP BY job
        ) USING (job)
        """
    ).fetchall()
    return {job: rest for job, *rest in rows}


ANALYSES = {"polars": by_polars, "duckdb": by_duckdb}

if __name__ == "__main__":
    _, _name, _folder, _tp = sys.argv
    sys.stdout.write(json.dumps(ANALYSES[_name](Path(_folder), int(_tp))))
