"""Traces of ByteDance-Seed/StragglerAnalysis: `trace-X.parquet`, and `meta-X.yaml` with its sizes.

The trace has a row per operation of one rank of each tensor-parallel group. Times are seconds as
float32 from the start of the step, so steps are placed one after another here. Operations of a rank
run on several streams. `line` is the number of the row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tracelake.formats import Claim, FileFacts, Format, Run, RunFacts
from tracelake.formats.documents import BadDocumentError, DocumentParser, Documents, Tables
from tracelake.schema.tables import tables

if TYPE_CHECKING:
    import polars as pl

_SIZES = {
    "world_size": "world_size",
    "dp_size": "dp",
    "pp_size": "pp",
    "tp_size": "tp",
    "vpp_size": "vpp",
}
_META = re.compile(
    rb"""(?m)^(?:\xef\xbb\xbf)?([a-z_]+):[ \t]*["']?([^\s"'#]*)["']?[ \t]*(?:#.*)?\r?$"""
)
_MAGIC = b"PAR1"
_TYPES = {"optype": pa.string(), "start_ts": pa.float64(), "duration": pa.float64()}
_COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id")

_SAID = ["optype", "op", "category", "stream", "kind", "pass", "collective", "group_kind"]
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


def _sniff(head: bytes) -> Claim:
    if head.startswith(_MAGIC):
        return Claim.MAYBE
    if b"trial_name" not in head:
        return Claim.NO
    keys = {key for key, _ in _META.findall(head[:4096])}
    return Claim.YES if {b"trial_name", b"dp_size", b"pp_size"} <= keys else Claim.NO


def _facts(path: str, head: bytes) -> FileFacts:
    del head
    name = PurePosixPath(path).stem
    return FileFacts(path, name.removeprefix("trace-").removeprefix("meta-") or name)


def _group(files: Sequence[FileFacts], gap_seconds: float) -> list[list[FileFacts]]:
    """Join a trace and the sizes of the same name in the same folder."""
    del gap_seconds
    found: dict[tuple[str, str], list[FileFacts]] = {}
    for file in files:
        found.setdefault((str(PurePosixPath(file.path).parent), file.stem), []).append(file)
    return list(found.values())


def _read(run: Run, documents: Documents) -> tuple[RunFacts, Tables]:
    """Return facts and rows of a run."""
    import polars as pl  # noqa: PLC0415 - slow to import, and few inputs are of this format

    del run
    meta: dict[str, str] = {}
    traces = []
    for source, data in documents.items():
        if data.startswith(_MAGIC):
            traces.append(_rows(source, _trace(data)))
        else:
            found = _META.findall(data)
            meta |= {key.decode(): value.decode(errors="replace") for key, value in found}
    sizes = {
        key: int(meta[name])
        for name, key in _SIZES.items()
        if meta.get(name, "").isascii() and meta.get(name, "").isdigit() and len(meta[name]) < 9
    }
    rows = pl.concat(traces, how="diagonal") if traces else pl.DataFrame({"rank": []})
    facts = RunFacts(
        topology={**sizes, **_micro_batches(rows, sizes.get("vpp", 1))},
        ranks=frozenset(rows["rank"].to_list()),
        # A worker of each data-parallel rank and stage has rows.
        ranks_expected=sizes["dp"] * sizes["pp"] if {"dp", "pp"} <= sizes.keys() else None,
        ended=True,
        simulated=False,
        attributes={"trial_name": meta["trial_name"]} if meta.get("trial_name") else {},
    )
    if rows.is_empty():
        return facts, {}
    calls = rows.filter(pl.col("collective").is_not_null()).with_columns(raw_func="op")
    shown = {"ops": rows, "comms": calls}
    return facts, {
        name: frame.select(c for c in tables()[name].storage_types if c in frame.columns).to_dict(
            as_series=False
        )
        for name, frame in shown.items()
        if len(frame)
    }


def _micro_batches(rows: pl.DataFrame, chunks: int) -> dict[str, int]:
    """Return forward passes per rank, step and chunk, where all are alike."""
    if rows.is_empty():
        return {}
    alike = rows.filter(op="forward_step").group_by("step", "rank").len()["len"].unique()
    return {"micro_batches": alike[0] // max(1, chunks)} if len(alike) == 1 else {}


def _trace(data: bytes) -> pl.DataFrame:
    """Return the rows of a trace, in its order.

    Raises:
        BadDocumentError: It is no trace, or has values that no trace has.
    """
    import polars as pl  # noqa: PLC0415 - see `_read`

    try:
        table = pq.read_table(pa.BufferReader(data))
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise BadDocumentError("not_parquet") from error
    if not set(_COLUMNS) <= set(table.column_names):
        raise BadDocumentError("other_parquet", foreign=True)
    names = (*_COLUMNS, *sorted({"mc", "mb_id"} & set(table.column_names)))
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
    import polars as pl  # noqa: PLC0415 - see `_read`

    known = pl.DataFrame([(optype, *said) for optype, said in _OPS.items()], _SAID, orient="row")
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


FORMAT = Format(
    name="straggler_analysis",
    doc="Published traces of StragglerAnalysis: Parquet with a row per operation, and its sizes.",
    version=1,
    tables=("ops", "comms"),
    sniff=_sniff,
    facts=_facts,
    group=_group,
    parser=lambda run, ledger: DocumentParser(_read, run, ledger),
    rejects={
        "not_parquet": "The file is no Parquet, or is damaged.",
        "other_columns": "A column of the trace has another type.",
        "out_of_range": "A value of the trace is missing, negative or too large.",
        "ranks_contradict": "A rank has several places, or a place several ranks.",
    },
    irrelevant={
        "other_parquet": "A Parquet file that is no trace.",
        "unread": "The rest of a document that cannot be read.",
    },
    volume="document",
    clock_tick_ns=10_000,
)
