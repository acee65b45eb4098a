"""Lakes of a few rows, written in the lake's own layout without any parser."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tracelake.formats.rank_trace.batches import CLOCK_TICK_NS, overlapped
from tracelake.formats.rank_trace.layout import KINDS, PASSES
from tracelake.lake.layout import partition_of
from tracelake.lake.manifest import Change, RunEntry
from tracelake.lake.store import Lake
from tracelake.schema.tables import SCHEMA_VERSION, tables

Rows = Mapping[str, list[dict[str, Any]]]

OPTIONS = {"format": "rank_trace", "parser": 1, "schema": SCHEMA_VERSION, "forced": False}
"""Of a run that has inputs, as a manifest has them."""


def commit_run(
    lake: Lake,
    run_id: str,
    rows: Rows,
    *,
    schema_version: int | None = None,
    lacking: Collection[str] = (),
) -> None:
    """Commits a run of these rows by table; columns that are not named are NULL.

    Args:
        schema_version: What the manifest says of it.
        lacking: Columns that its part files do not have.
    """
    commit_runs(lake, {run_id: rows}, schema_version=schema_version, lacking=lacking)


def commit_runs(
    lake: Lake,
    runs: Mapping[str, Rows],
    *,
    schema_version: int | None = None,
    lacking: Collection[str] = (),
) -> None:
    """Commits runs at once, the rows of a table in one part, as an ingest of small runs does."""
    by_table: dict[str, list[dict[str, Any]]] = {}
    for run_id, rows in sorted(runs.items()):
        for table, given in rows.items():
            told = ({"run_id": run_id, **with_meanings(table, row)} for row in given)
            by_table.setdefault(table, []).extend(told)
    group = min(runs)
    staged: dict[str, Path] = {}
    finals: dict[str, str] = {}
    with lake.staging("test") as folder:
        for table, given in by_table.items():
            part = folder / f"{table}.parquet"
            schema = pa.schema(f.with_nullable(True) for f in tables()[table].part_schema)
            table_rows = pa.Table.from_pylist(given, schema=schema)
            kept = [name for name in schema.names if name not in lacking]
            pq.write_table(table_rows.select(kept), part)
            content = hashlib.sha256(part.read_bytes()).hexdigest()[:16]
            finals[table] = f"{table}/{partition_of('tiny', None)}/part-{content}.parquet"
            staged[finals[table]] = part
        options = {} if schema_version is None else {"schema": schema_version}
        entries = []
        for run_id, rows in runs.items():
            parts = {table: (finals[table],) for table in rows}
            generation = hashlib.sha256(repr(sorted(parts.values())).encode()).hexdigest()[:16]
            entries.append(RunEntry(run_id, group, generation, parts, options=options))
        lake.commit_all([Change(group, entries, staged)])


def with_meanings(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with what rank traces say of an operation by its name, and of a call by its caller."""
    known: dict[str, Any] = {}
    if table == "ops" and row.get("op"):
        other = "other" if row.get("category") and row["op"] != "ddp_grad_comm" else None
        known = {"kind": KINDS.get(row["op"]) or other, "pass": PASSES.get(row["op"])}
    elif table == "comms":
        inside = row.get("parent_op") or row.get("raw_func") or ""
        known = {"pass": PASSES.get(inside), "overlapped": overlapped(row.get("caller") or "")}
    elif table == "runs":
        known = {"clock_tick_ns": CLOCK_TICK_NS}
    return {**known, **row}


def source_record(path: str, **changed: Any) -> dict[str, Any]:
    """The record of an input as a manifest has it."""
    facts: dict[str, Any] = {
        "path": path,
        "stem": path,
        "rank": None,
        "host": None,
        "device": None,
        "stamp": None,
        "topology": {},
    }
    return {
        "path": path,
        "member": None,
        "size": 1,
        "mtime_ns": 1,
        "inode": None,
        "members": 1,
        "weight": 1,
        "position": None,
        "packed": False,
        "head_hash": "0",
        "place": None,
        "bytes": 1,
        "lines": 1,
        "content_hash": None,
        "duplicate_of": None,
        "facts": facts,
        **changed,
    }


def drop_run(lake: Lake, run_id: str) -> None:
    lake.commit_all([Change(run_id, [], {}, [run_id])])


def log_run(
    *,
    steps: int = 3,
    stages: int = 2,
    layer_ns: int = 1_000_000,
    rejected: int = 0,
    **facts: Any,
) -> Rows:
    """A training log: one layer per stage, layer k of it takes (k + 1) * layer_ns."""
    layers = [
        {
            "source_id": 0,
            "line": step * 10 + stage,
            "rank": stage,
            "stage": stage,
            "step": step,
            "layer": str(stage),
            "layer_index": stage,
            "total_ns": (stage + 1) * layer_ns,
            "ops": 8,
            "attribution": "block",
        }
        for step in range(1, steps + 1)
        for stage in range(stages)
    ]
    records = [
        {
            "source_id": 0,
            "line": step * 10 + 9,
            "epoch": 1,
            "step": step,
            "steps_per_epoch": steps,
            "copy": 0,
            "batches_covered": 2 if step == 1 else 1,
            "step_time_ns": 10 * layer_ns,
            "loss": 7.0 / step,
        }
        for step in range(1, steps)
    ]
    lines = len(layers) + len(records)
    run = {
        "format": "optimus",
        "config": "c",
        "pp": stages,
        "tp": 1,
        "world_size": stages,
        "micro_batches": 4,
        "ranks_seen": stages,
        "ranks_expected": stages,
        "simulated": False,
        **facts,
    }
    source = {
        "source_id": 0,
        "path": "log.txt",
        "format": "optimus",
        "lines": lines + rejected,
        "row_lines": lines,
        "context_lines": 0,
        "rejected": rejected,
        "irrelevant": [],
        "rows": lines,
    }
    rejects = [
        {"source_id": 0, "line": 1000 + n, "byte_offset": n, "reason": "bad", "text": "x"}
        for n in range(rejected)
    ]
    rows: Rows = {
        "runs": [run],
        "sources": [source],
        "layer_times": layers,
        "train_steps": records,
    }
    return {**rows, "rejects": rejects} if rejected else rows
