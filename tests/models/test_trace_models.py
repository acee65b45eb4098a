"""Models on rank traces against references that walk every nanosecond or list every peer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.tiny_lakes import with_meanings
from tracelake.models.base import create_empty_tables
from tracelake.models.catalog import catalog
from tracelake.models.compute import compute, connect

PARTS = ("compute", "data", "in_op_comm", "p2p_recv", "p2p_send", "finalize", "other_step", "gap")
KINDS = {
    "forward_step": ("compute", "compute"),
    "backward_step": ("compute", "compute"),
    "get_batch": ("data", "data"),
    "recv_forward": ("p2p", "p2p_recv"),
    "send_forward": ("p2p", "p2p_send"),
    "dp_allreduce": ("collective", "finalize"),
    "optimizer_step": ("optimizer", "finalize"),
}


@dataclass
class Op:
    rank: int
    step: int
    seq: int
    op: str
    start: int
    end: int
    stage: int
    subs: list[tuple[int, int, bool]] = field(default_factory=list)

    @property
    def order(self) -> tuple[int, bool, int, int]:
        return self.start, self.op.startswith("send"), self.end, self.seq


def random_ops(rng: random.Random) -> list[Op]:
    """Two ranks, two steps; operations overlap, nest, repeat and leave gaps as they like."""
    ops = []
    for rank in (0, 1):
        now, seq = rng.randrange(4), 0
        for step in (1, 2):
            names = ["forward_step", "backward_step"] * rng.choice((1, 1, 2))
            for name in rng.sample(sorted(set(KINDS) - {"forward_step", "backward_step"}), 3):
                names.insert(rng.randrange(len(names) + 1), name)
            for name in names:
                start = now - rng.choice((0, 0, 0, 1, 5)) + rng.choice((0, 0, 1, 3))
                end = start + rng.choice((0, 1, 2, 5, 9))
                seq += 1
                op = Op(rank, step, seq, name, start, end, stage=rank)
                if KINDS[name][1] in ("compute", "data"):
                    op.subs = [
                        (at, at + rng.randrange(5), rng.random() < 0.3)
                        for at in (
                            rng.randrange(start - 2, end + 2) for _ in range(rng.randrange(4))
                        )
                    ]
                ops.append(op)
                now = max(now, end)
    return ops


def load(con: duckdb.DuckDBPyConnection, runs: Sequence[Sequence[Op]]) -> None:
    given: dict[str, list[dict[str, Any]]] = {"runs": [], "ops": [], "comms": []}
    for number, ops in enumerate(runs):
        run = {"run_id": f"r{number:04}"}
        given["runs"].append({**run, "simulated": False, "pp": 2, "micro_batches": 1})
        for o in ops:
            of = {**run, "rank": o.rank, "stage": o.stage, "step": o.step, "seq": o.seq}
            given["ops"].append(
                {**of, **times(o.start, o.end), "op": o.op, "category": KINDS[o.op][0]}
            )
            for number_in_op, (start, end, overlapped) in enumerate(o.subs, 1):
                given["comms"].append(
                    {
                        **of,
                        **times(start, end),
                        "sub_seq": number_in_op,
                        "parent_op": o.op,
                        "collective": "all_reduce",
                        "caller": "normlinear_bwd_async" if overlapped else "allreduce",
                    }
                )
    for name, rows in given.items():
        if rows:
            con.register("given", pa.Table.from_pylist([with_meanings(name, r) for r in rows]))
            con.execute(f"INSERT INTO {name} BY NAME FROM given")


def times(start: int, end: int) -> dict[str, int]:
    return {"start_ns": start, "end_ns": end, "duration_ns": end - start}


def partition(ops: Sequence[Op], rank: int, step: int) -> dict[str, int]:
    """The window of a step, one nanosecond at a time."""
    of_step = [o for o in ops if o.step == step]
    first = min(o.start for o in of_step)
    last = max(o.end for o in of_step if o.op == "backward_step")
    mine = sorted((o for o in ops if o.rank == rank), key=lambda o: o.order)
    parts = dict.fromkeys((*PARTS, "in_op_overlap"), 0)
    for now in range(first, last):
        owner = next((o for o in mine if o.start <= now < o.end), None)
        if owner is None:
            parts["gap"] += 1
        elif owner.step != step:
            parts["other_step"] += 1
        elif KINDS[owner.op][1] not in ("compute", "data"):
            parts[KINDS[owner.op][1]] += 1
        else:
            starts = [(max(s, owner.start), min(e, owner.end), a) for s, e, a in owner.subs]
            inside = sorted(
                ((s, e, k, a) for k, (s, e, a) in enumerate(starts)), key=lambda sub: sub[:3]
            )
            call = next((sub for sub in inside if sub[0] <= now < sub[1]), None)
            parts[KINDS[owner.op][1] if call is None else "in_op_comm"] += 1
            parts["in_op_overlap"] += call is not None and call[3]
    return parts


def computed(name: str, runs: Sequence[Sequence[Op]]) -> list[dict[str, Any]]:
    with connect() as con:
        con.execute(catalog().macros)
        create_empty_tables(con)
        load(con, runs)
        for model in catalog().upstream([name]):
            compute(con, model)
        found = con.execute(f"FROM {name}")
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@pytest.mark.parametrize("seed", range(3))
def test_window_is_partitioned_exactly(seed: int) -> None:
    rng = random.Random(seed)
    runs = [random_ops(rng) for _ in range(100)]
    judged = 0
    for row in computed("rank_bubbles", runs):
        if row["window_ns"] is None:
            continue
        expected = partition(runs[int(row["run_id"][1:])], row["rank"], row["step"])
        got = {part: row[f"{part}_ns"] for part in PARTS}
        got["in_op_overlap"] = round(row["in_op_overlap_ms"] * 1e6)
        assert got == expected, row
        assert sum(got[part] for part in PARTS) == row["window_ns"]
        judged += 1
    assert judged > 200


@pytest.mark.parametrize("seed", range(3))
def test_slowdown_is_against_the_median_of_the_others(seed: int) -> None:
    rng = random.Random(seed)
    runs = []
    for step in range(1, 13):
        own = [rng.choice((5, 7, 7, 8, 12, 30)) for _ in range(step)]
        runs.append(
            [
                Op(rank, step, step, "forward_step", 0, time, stage=0)
                for rank, time in enumerate(own)
            ]
        )
    found = computed("straggler_steps", [[op for ops in runs for op in ops]])
    rows = [row for row in found if row["in_verdict"]]
    assert len(rows) == sum(map(len, runs))
    for row in rows:
        rank, own = row["rank"], [op.end - op.start for op in runs[row["step"] - 1]]
        others = own[:rank] + own[rank + 1 :]
        assert row["peers"] == len(others)
        assert row["slowdown"] == (pytest.approx(own[rank] / median(others)) if others else None)
