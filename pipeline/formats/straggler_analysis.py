"""Traces of ByteDance-Seed/StragglerAnalysis: `trace-X.parquet`, and `meta-X.yaml` with its sizes.

The trace has a row per operation of one rank of each tensor-parallel group. Times are seconds as
float32 from the start of the step, so steps are placed one after another here. Operations of a rank
run on several streams. `line` is the number of the row.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tracelake.formats import Claim, FileFacts, Format, Run, RunFacts
from tracelake.formats.documents import BadDocumentError, DocumentParser, Documents, Tables

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

# optype -> op, category, stream, kind, pass, and of a communication its collective and group.
_Op = tuple[str, str | None, str, str | None, str | None, str | None, str | None]
_OPS: dict[str, _Op] = {
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
    del run
    meta: dict[str, str] = {}
    traces = {}
    for source, data in documents.items():
        if data.startswith(_MAGIC):
            traces[source] = _trace(data)
        else:
            found = _META.findall(data)
            meta |= {key.decode(): value.decode(errors="replace") for key, value in found}
    sizes = {
        key: int(meta[name])
        for name, key in _SIZES.items()
        if meta.get(name, "").isascii() and meta.get(name, "").isdigit() and len(meta[name]) < 9
    }
    columns: dict[str, dict[str, list[Any]]] = {"ops": {}, "comms": {}}
    ranks: set[int] = set()
    for source, trace in traces.items():
        ops, comms = _rows(source, trace)
        ranks |= set(ops["rank"])
        for table, rows in (("ops", ops), ("comms", comms)):
            for name, values in rows.items():
                columns[table].setdefault(name, []).extend(values)
    # A worker of each data-parallel rank and stage has rows.
    expected = sizes["dp"] * sizes["pp"] if {"dp", "pp"} <= sizes.keys() else None
    batches = columns["ops"].get("step"), columns["ops"].get("rank"), columns["ops"].get("op")
    facts = RunFacts(
        topology={**sizes, **_micro_batches(*batches, sizes.get("vpp", 1))},
        ranks=frozenset(ranks),
        ranks_expected=expected,
        ended=True,
        simulated=False,
        attributes={"trial_name": meta["trial_name"]} if meta.get("trial_name") else {},
    )
    return facts, {table: rows for table, rows in columns.items() if rows.get("line")}


def _micro_batches(steps: Any, ranks: Any, ops: Any, chunks: int) -> dict[str, int]:
    """Return forward passes per rank, step and chunk, where all are alike."""
    counts: dict[tuple[int, int], int] = {}
    for step, rank, op in zip(steps or (), ranks or (), ops or (), strict=True):
        if op == "forward_step":
            counts[step, rank] = counts.get((step, rank), 0) + 1
    alike = set(counts.values())
    return {"micro_batches": alike.pop() // max(1, chunks)} if len(alike) == 1 else {}


def _trace(data: bytes) -> pa.Table:
    """Return the rows of a trace, ordered by rank, step and start.

    Raises:
        BadDocumentError: It is no trace, or has values that no trace has.
    """
    try:
        table = pq.read_table(pa.BufferReader(data))
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise BadDocumentError("not_parquet") from error
    if not set(_COLUMNS) <= set(table.column_names):
        raise BadDocumentError("other_parquet", foreign=True)
    try:
        table = pa.table(
            {
                name: _column(table[name], _TYPES.get(name, pa.int64()))
                for name in (*_COLUMNS, *sorted({"mc", "mb_id"} & set(table.column_names)))
            }
        )
    except pa.ArrowException as error:
        raise BadDocumentError("other_columns") from error
    if any(table[name].null_count for name in _COLUMNS):
        raise BadDocumentError("out_of_range")
    table = table.set_column(
        table.column_names.index("start_ts"),
        "start_ts",
        _since_step(table["step"], table["start_ts"]),
    )
    times = np.array([table["start_ts"].to_numpy(), table["duration"].to_numpy()])
    numbers = [table[name].to_numpy() for name in ("dp_rank", "stage", "rank", "step", "seq_id")]
    if not (np.isfinite(times).all() and (times >= 0).all() and (times < 1e6).all()) or any(
        ((array < 0) | (array > 2**30)).any() for array in numbers
    ):
        raise BadDocumentError("out_of_range")
    workers = sorted(set(zip(*(array.tolist() for array in numbers[:3]), strict=True)))
    by_stage = sorted((stage, dp_rank, rank) for dp_rank, stage, rank in workers)
    if (
        len({rank for *_, rank in workers}) < len(workers)
        or len({worker[:2] for worker in workers}) < len(workers)
        # Places within a stage are in the order of ranks everywhere else.
        or any(a[0] == b[0] and a[2] > b[2] for a, b in itertools.pairwise(by_stage))
    ):
        raise BadDocumentError("ranks_contradict")
    table = table.append_column("line", pa.array(np.arange(1, table.num_rows + 1)))
    return table.sort_by([(name, "ascending") for name in ("rank", "step", "start_ts", "seq_id")])


def _column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column as another type; numbers that are no numbers are NULL in whole ones."""
    if pa.types.is_floating(column.type) and pa.types.is_integer(kind):
        import pyarrow.compute as pc  # noqa: PLC0415 - a twentieth of the start of any ingest

        column = pc.if_else(pc.is_nan(column), None, column)
    return column.cast(kind)


def _since_step(steps: pa.ChunkedArray, starts: pa.ChunkedArray) -> pa.Array:
    """Return starts from the first of each step: a trace may count from anywhere."""
    numbers, places = np.unique(steps.to_numpy(), return_inverse=True)
    first = np.full(len(numbers), np.inf)
    np.minimum.at(first, places, starts.to_numpy())
    return pa.array(starts.to_numpy() - first[places])


def _rows(source: int, trace: pa.Table) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Return columns of `ops` and `comms`."""
    optypes = trace["optype"].to_pylist()
    known = [_OPS.get(optype, (optype, None, "other", *[None] * 4)) for optype in optypes]
    names, categories, streams, kinds, passes, collectives, groups = (
        [one[place] for one in known] for place in range(7)
    )
    steps, ranks = trace["step"].to_numpy(), trace["rank"].to_numpy()
    begins = trace["start_ts"].to_numpy()
    ends = begins + trace["duration"].to_numpy()
    starts_ns = np.rint(begins * 1e9).astype(np.int64)
    ends_ns = np.rint(ends * 1e9).astype(np.int64)
    numbers, places = np.unique(steps, return_inverse=True)
    lengths = np.zeros(len(numbers), np.int64)
    np.maximum.at(lengths, places, ends_ns)
    shift = (np.cumsum(lengths) - lengths)[places]
    first = np.concatenate([[True], ranks[1:] != ranks[:-1]])
    seq = np.arange(len(ranks)) - np.maximum.accumulate(np.where(first, np.arange(len(ranks)), 0))
    batch = trace["mb_id"].to_pylist() if "mb_id" in trace.column_names else [-1] * len(optypes)
    chunk = trace["mc"].to_pylist() if "mc" in trace.column_names else [-1] * len(optypes)
    shared: dict[str, list[Any]] = {
        "source_id": [source] * len(optypes),
        "line": trace["line"].to_pylist(),
        "rank": ranks.tolist(),
        "stage": trace["stage"].to_pylist(),
        "step": steps.tolist(),
        "seq": (seq + 1).tolist(),
        "micro_batch": [None if number is None or number < 0 else number for number in batch],
        "group_kind": groups,
        "start_ns": (starts_ns + shift).tolist(),
        "end_ns": (ends_ns + shift).tolist(),
        "duration_ns": (ends_ns - starts_ns).tolist(),
        "pass": passes,
    }
    ops = shared | {
        "op": names,
        "category": categories,
        "stream": streams,
        "chunk": [None if number is None or number < 0 else number for number in chunk],
        "kind": kinds,
    }
    calls = [i for i, collective in enumerate(collectives) if collective]
    comms = {name: [values[i] for i in calls] for name, values in shared.items()}
    comms["collective"] = [collectives[i] for i in calls]
    comms["raw_func"] = [names[i] for i in calls]
    return ops, comms


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
