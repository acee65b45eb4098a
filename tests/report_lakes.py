"""Lakes of a few rows, one run of each kind, with figures that can be told by heart."""

from __future__ import annotations

from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import Any

from tests.tiny_lakes import Rows, commit_runs
from tracelake.lake.store import Lake
from tracelake.models.build import build

MS = 1_000_000


def trace_run(
    *, slow: float = 1.0, slow_rank: int = 2, steps: int = 3, ranks: int = 4, **facts: Any
) -> Rows:
    """One stage; every step 100 ms forward, 20 of them an all_reduce of 1 MB, 200 ms backward."""
    ops, comms = [], []
    for step in range(1, steps + 1):
        for rank in range(ranks):
            of = {"source_id": 0, "rank": rank, "stage": 0, "step": step, "micro_batch": 0}
            start = step * 1000 * MS
            forward = int(100 * MS * (slow if rank == slow_rank else 1.0))
            for seq, op, duration in ((1, "forward_step", forward), (2, "backward_step", 200 * MS)):
                place = {**of, "seq": 10 * step + seq, "line": 10 * step + seq}
                times = {"start_ns": start, "end_ns": start + duration, "duration_ns": duration}
                ops.append({**place, "op": op, "category": "compute", **times})
                if seq == 1:
                    call = {"start_ns": start, "end_ns": start + 20 * MS, "duration_ns": 20 * MS}
                    what = {"collective": "all_reduce", "group_kind": "tp", "tensor": "x"}
                    size = {"shape": [500_000], "dtype": "float16", "bytes": 1_000_000}
                    named = {"sub_seq": 1, "parent_op": op, "caller": "reduce"}
                    comms.append({**place, **named, **what, **size, **call})
                start += duration
    run = {
        "format": "rank_trace",
        "config": "c",
        "pp": 1,
        "tp": ranks,
        "dp": 1,
        "world_size": ranks,
        "micro_batches": 1,
        "topology_source": [("tp", "name"), ("micro_batches", "printed")],
        "ranks_seen": ranks,
        "ranks_expected": ranks,
        "complete": True,
        "simulated": False,
        **facts,
    }
    source = {"source_id": 0, "path": "t.txt", "lines": 9, "row_lines": 9, "rejected": 0}
    return {"runs": [run], "sources": [source], "ops": ops, "comms": comms}


def plan_run() -> Rows:
    passes = [
        {
            "source_id": 0,
            "line": 3,
            "row": 1,
            "layer": "mlp",
            "pass": "forward",
            "compute_ns": 2 * MS,
            "collective": "all_gather",
            "group_kind": "tp",
            "bytes": 50_000_000,
        }
    ]
    run = {"format": "aicb_workload", "config": "p", "tp": 8, "pp": 4, "micro_batches": 9}
    source = {"source_id": 0, "path": "p.txt", "lines": 3, "row_lines": 3, "rejected": 0}
    return {"runs": [run], "sources": [source], "workload_passes": passes}


def link_run() -> Rows:
    """Tests of all pairs of four hosts, of which the first is slow."""
    tests = [
        {
            "source_id": 0,
            "line": line,
            "test": line,
            "collective": "all_reduce",
            "size_bytes": 1000,
            "placement": "out",
            "time_ns": 10,
            "ranks": 2,
            "busbw_gbps": 40 if "a" in hosts else 100,
            "hosts": list(hosts),
        }
        for line, hosts in enumerate(combinations("abcd", 2), 1)
    ]
    return {
        "runs": [
            {"format": "nccl_tests", "complete": True, "run_date": datetime(2025, 3, 1)},
        ],
        "sources": [{"source_id": 0, "path": "t.txt", "lines": 6, "rejected": 0}],
        "bandwidth_tests": tests,
    }


def make(root: Path, runs: dict[str, Rows]) -> Lake:
    lake = Lake.create(root)
    commit_runs(lake, runs)
    build(lake)
    return lake
