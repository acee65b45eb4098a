"""Make rows of the traces of StragglerAnalysis."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tracelake.formats.documents import BadDocumentError, Tables
from tracelake.schema.tables import tables

_TYPES = {"optype": pa.string(), "start_ts": pa.float64(), "duration": pa.float64()}
_COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id")

_OP_COLUMNS = ["optype", "op", "category", "stream", "kind", "pass", "collective", "group_kind"]
_OPS: dict[str, tuple[str | None, ...]] = {  # optype -> the others
    "forward-compute": ("forward_step", "compute", "compute", "forward", "forward", None, None),
    "backward-compute": ("backward_step", "compute", "compute", "backward", "backward", None, None),
    "forward-send": ("send_forward", "p2p", "forward_send", "send", "forward", "send", "pp"),
    "forward-recv": ("recv_forward", "p2p", "forward_recv", "recv", "forward", "recv", "pp"),
    "backward-send": ("send_backward", "p2p", "backward_send", "send", "backward", "send", "pp"),
    "backward-recv": ("recv_backward", "p2p", "backward_recv", "recv", "backward", "recv", "pp"),
    "params-all-gather": (
        "params_all_gather", "collective", "dp", "other", None, "all_gather", "dp",
    ),
    "grads-reduce-scatter": (
        "grads_reduce_scatter", "collective", "dp", "gradient_sync", None, "reduce_scatter", "dp",
    ),
    "separate-grads-all-reduce": (
        "separate_grads_all_reduce", "collective", "end", "gradient_sync", None, "all_reduce", "dp",
    ),
    "layernorm-grads-all-reduce": (
        "layernorm_grads_all_reduce", "collective", "end", "gradient_sync", None, None, None,
    ),
    "embedding-grads-all-reduce": (
        "ep_allreduce", "collective", "end", "gradient_sync", None, "all_reduce", "embedding",
    ),
    "optimizer-clip-main-grad": ("optimizer_clip", "collective", "end", "other", None, None, None),
    "optimizer": ("optimizer_step", "optimizer", "end", "optimizer", None, None, None),
    "gc": ("gc", "compute", "end", "other", None, None, None),
}  # fmt: skip


def read_traces(
    traces: Mapping[int, bytes], chunks: int
) -> tuple[frozenset[int], bool, dict[str, int], Tables]:
    """Return the ranks of a run, whether all have the same steps, its micro-batches, and its rows.

    Args:
        traces: The traces, by source.
        chunks: Virtual stages of a rank.

    Raises:
        BadDocumentError: One is no trace, or has values that no trace has.
    """
    frames = [_rows(source, _trace(data)) for source, data in traces.items()]
    rows = pl.concat(frames, how="diagonal") if frames else pl.DataFrame()
    if rows.is_empty():
        return frozenset(), True, {}, {}
    calls = rows.filter(pl.col("collective").is_not_null()).with_columns(raw_func="op")
    made = {
        name: frame.select(c for c in tables()[name].storage_types if c in frame.columns).to_dict(
            as_series=False
        )
        for name, frame in (("ops", rows), ("comms", calls))
        if len(frame)
    }
    steps = rows.group_by("rank").agg(pl.col("step").unique().sort())
    alike = steps["step"].n_unique() == 1
    return frozenset(steps["rank"].to_list()), alike, _micro_batches(rows, chunks), made


def _micro_batches(rows: pl.DataFrame, chunks: int) -> dict[str, int]:
    """Return forward passes per rank, step and chunk, if nine in ten are alike: rows get lost."""
    counts = rows.filter(op="forward_step").group_by("step", "rank").len()["len"]
    usual = counts.value_counts(sort=True)
    if usual.is_empty() or 10 * usual["count"][0] < 9 * len(counts):
        return {}
    return {"micro_batches": usual["len"][0] // max(1, chunks)}


def _trace(data: bytes) -> pl.DataFrame:
    """Return the rows of a trace, in its order.

    Raises:
        BadDocumentError: It is no trace, or has values that no trace has.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        there = set(file.schema_arrow.names)
        if not set(_COLUMNS) <= there:
            raise BadDocumentError("other_parquet", foreign=True)
        names = (*_COLUMNS, *sorted({"mc", "mb_id"} & there))
        table = file.read(list(names))
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise BadDocumentError("not_parquet") from error
    try:  # Arrow's casts fail where a number does not fit
        kinds = {name: _TYPES.get(name, pa.int64()) for name in names}
        columns = {name: _column(table[name], kind) for name, kind in kinds.items()}
    except pa.ArrowException as error:
        raise BadDocumentError("other_columns") from error
    trace = pl.DataFrame(columns)
    times, numbers = ("start_ts", "duration"), ("dp_rank", "stage", "rank", "step", "seq_id")
    # A trace may count from anywhere.
    trace = trace.with_columns(pl.col("start_ts") - pl.col("start_ts").min().over("step"))
    fits = pl.col(times).is_finite() & pl.col(times).is_between(0, 1e6, closed="left")
    if sum(trace.select(_COLUMNS).null_count().row(0)) or not all(
        trace.select(fits.all(), pl.col(numbers).is_between(0, 2**30).all()).row(0)
    ):
        raise BadDocumentError("out_of_range")
    workers = trace.select("stage", "dp_rank", "rank").unique().sort("stage", "dp_rank", "rank")
    if (
        workers["rank"].n_unique() < len(workers)
        or workers.select("stage", "dp_rank").n_unique() < len(workers)
        # Places within a stage are in the order of ranks everywhere else.
        or workers.select((pl.col("rank").diff() < 0).over("stage").any()).item()
    ):
        raise BadDocumentError("ranks_contradict")
    return trace


def _column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column as another type; numbers that are no numbers are NULL in whole ones."""
    if pa.types.is_floating(column.type) and pa.types.is_integer(kind):
        import pyarrow.compute as pc  # noqa: PLC0415 - a twentieth of the start of any ingest

        column = pc.if_else(pc.is_nan(column), None, column)
    return column.cast(kind)


def _rows(source: int, trace: pl.DataFrame) -> pl.DataFrame:
    """Return columns of `ops` and `comms`, by rank, step and start."""
    known = pl.DataFrame(
        [(optype, *kind) for optype, kind in _OPS.items()], _OP_COLUMNS, orient="row"
    )
    ends = pl.col("start_ts") + pl.col("duration")
    rows = (
        trace.with_row_index("line", 1)
        .sort("rank", "step", "start_ts", "seq_id", maintain_order=True)
        .join(known, "optype", "left", maintain_order="left")
        .with_columns(
            pl.col("op").fill_null(pl.col("optype")),
            pl.col("stream").fill_null("other"),
            source_id=source,
            seq=pl.int_range(1, pl.len() + 1).over("rank"),
            start_ns=(pl.col("start_ts") * 1e9).round().cast(pl.Int64),
            end_ns=(ends * 1e9).round().cast(pl.Int64),
            **{
                name: pl.when(pl.col(raw) >= 0).then(raw)
                for name, raw in (("micro_batch", "mb_id"), ("chunk", "mc"))
                if raw in trace.columns
            },
        )
    )
    steps = rows.group_by("step").agg(length=pl.col("end_ns").max()).sort("step")
    shift = steps.select("step", shift=pl.col("length").cum_sum() - pl.col("length"))
    return rows.join(shift, "step", "left", maintain_order="left").with_columns(
        pl.col("start_ns", "end_ns") + pl.col("shift"),
        duration_ns=pl.col("end_ns") - pl.col("start_ns"),
    )
