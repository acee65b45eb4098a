"""Findings, incidents and opportunities over lakes whose faults are known, asked as a user asks."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import statistics
import tarfile
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import Command
from tests.lakes import asked, ingest_and_build
from tests.report_lakes import MS, make, trace_run
from tests.tiny_lakes import Rows, commit_run, commit_runs, log_run
from tests.traces import plan, trace, trace_name, write
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.models.catalog import catalog
from tracelake.nightly.gates import GATES

Row = dict[str, Any]


def day(number: int) -> datetime:
    return datetime(2025, 3, 1) + timedelta(days=number)


def ask(tracelake: Command, lake: Lake, sql: str) -> list[Row]:
    return asked(tracelake, lake.root, sql)


def nights(slow: Iterable[float], *, first: int = 0, job: str = "") -> dict[str, Rows]:
    """A run of a job per night whose rank 2 is so many times slower."""
    return {
        f"{job}night{n:02}": trace_run(slow=factor, run_date=day(n), config=job or "c")
        for n, factor in enumerate(slow, first)
    }


def pipelined(
    *, stage_ms: Sequence[float] = (10, 10), data_ms: float = 0, host: bool = True, **facts: Any
) -> Rows:
    """Stages of two ranks that work one after another, 3 steps of 4 micro-batches."""
    ops, stages, micro_batches = [], len(stage_ms), 4
    for step in range(1, 4):
        start = step * 1000.0
        for stage, rank in ((s, 2 * s + r) for s in range(stages) for r in range(2)):
            at = start + sum(stage_ms[:stage]) + (data_ms if stage else 0)
            work = [("get_batch", "data", data_ms)] if data_ms and stage == 0 else []
            for _ in range(micro_batches):
                work += [("forward_step", "compute", stage_ms[stage])]
            for _ in range(micro_batches):
                work += [("backward_step", "compute", 2 * stage_ms[stage])]
            for number, (op, category, length) in enumerate(work):
                begin, end = round(at * MS), round((at + length) * MS)
                ops.append(
                    {
                        "source_id": rank,
                        "rank": rank,
                        "stage": stage,
                        "step": step,
                        "seq": 100 * step + number,
                        "line": 100 * step + number,
                        "op": op,
                        "category": category,
                        "start_ns": begin,
                        "end_ns": end,
                        "duration_ns": end - begin,
                    }
                )
                at += length
    sources = [
        {
            "source_id": rank,
            "path": f"{rank}.txt",
            "rank": rank,
            "lines": 9,
            "row_lines": 9,
            "rejected": 0,
            "host": f"node{rank // 2}" if host else None,
        }
        for rank in range(2 * stages)
    ]
    run = {
        "format": "rank_trace",
        "config": "c",
        "tp": 2,
        "pp": stages,
        "dp": 1,
        "world_size": 2 * stages,
        "micro_batches": micro_batches,
        "ranks_seen": 2 * stages,
        "ranks_expected": 2 * stages,
        "complete": True,
        "simulated": False,
        "topology_source": [("tp", "name"), ("micro_batches", "printed")],
        **facts,
    }
    return {"runs": [run], "sources": sources, "ops": ops}


def grouped(times_ms: Sequence[float]) -> Rows:
    """Pairs of one stage that make 5 all-reduces per step, each pair at its own speed."""
    ops, comms = [], []
    for step in range(1, 4):
        for rank in range(2 * len(times_ms)):
            place = {"source_id": 0, "rank": rank, "stage": 0, "step": step, "seq": step}
            begin = step * 1000 * MS
            inside = round(times_ms[rank // 2] * MS)
            ops.append(
                {
                    **place,
                    "line": step,
                    "op": "forward_step",
                    "category": "compute",
                    "start_ns": begin,
                    "end_ns": begin + 50 * MS + 5 * inside,
                    "duration_ns": 50 * MS + 5 * inside,
                }
            )
            for call in range(5):
                start = begin + (10 * (call + 1)) * MS + call * inside
                comms.append(
                    {
                        **place,
                        "line": step,
                        "sub_seq": call + 1,
                        "parent_op": "forward_step",
                        "collective": "all_reduce",
                        "raw_func": "allreduce",
                        "group_kind": "tp",
                        "dtype": "int8",
                        "shape": [8_000_000],
                        "bytes": 8_000_000,
                        "start_ns": start,
                        "end_ns": start + inside,
                        "duration_ns": inside,
                    }
                )
    ranks = 2 * len(times_ms)
    run = {
        "format": "rank_trace",
        "config": "c",
        "tp": 2,
        "pp": 1,
        "dp": ranks // 2,
        "world_size": ranks,
        "ranks_seen": ranks,
        "ranks_expected": ranks,
        "complete": True,
        "micro_batches": 1,
        "simulated": False,
        "topology_source": [("tp", "name")],
    }
    source = {"source_id": 0, "path": "t.txt", "lines": 9, "row_lines": 9, "rejected": 0}
    return {"runs": [run], "sources": [source], "ops": ops, "comms": comms}


@pytest.fixture(scope="module")
def incident_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    root = tmp_path_factory.mktemp("incident") / "lake"
    return make(root, nights([1, 1, 1, 1, 1.5, 1.5, 1.5]))


def test_a_finding_says_what_how_bad_since_when_why_what_it_costs_and_what_to_do(
    tracelake: Command, incident_lake: Lake
) -> None:
    (found,) = ask(
        tracelake,
        incident_lake,
        "FROM findings WHERE run_id = 'night06' AND kind = 'straggler'",
    )
    assert (found["severity"], found["gate"], found["subject"]) == (
        "critical",
        "straggler",
        "rank 2",
    )
    assert found["since"] == str(day(4))
    assert found["evidence"].startswith("rank 2 (stage 0): forward_step took 1.62 times as long")
    # 50 ms of 350 ms are lost, on each of 4 ranks, in 3 steps.
    assert found["cost_gpu_hours"] == pytest.approx(4 * 3 * 50 / 3.6e6)
    assert found["cost_basis"] == "replay"
    # Only forward_step is slow: no fault of the device.
    assert found["advice"].startswith("Likely its work or its data, not the device")


def test_of_nights_some_of_which_were_replayed_these_alone_say_what_an_incident_costs(
    tracelake: Command, series: Lake
) -> None:
    """A cancelled night cannot be replayed; the bound of its slow rank is ten times as high."""
    cancelled = "FROM findings WHERE kind = 'straggler' AND run_id = 'cancellednight05'"
    (found,) = ask(tracelake, series, cancelled)
    assert (found["cost_basis"], found["cost_bound"]) == ("bound", "at_most")
    query = "FROM incidents WHERE subject = 'rank 2' AND config = 'cancelled'"
    (incident,) = ask(tracelake, series, query)
    assert (incident["cost_basis"], incident["cost_bound"]) == ("replay", None)
    assert incident["cost_gpu_hours_per_day"] == pytest.approx(4 * 24 * 50 / 350)


def test_one_truth_about_a_straggler(
    tracelake: Command, incident_lake: Lake, tmp_path: Path
) -> None:
    lake, run = incident_lake, "night06"
    (summary,) = ask(tracelake, lake, f"FROM run_summary WHERE run_id = '{run}'")
    (cost,) = ask(
        tracelake,
        lake,
        f"SELECT sum(cost_gpu_hours) AS c FROM findings WHERE run_id = '{run}'"
        " AND gate = 'straggler'",
    )
    assert summary["gpu_hours_lost"] == pytest.approx(cost["c"])
    evidence = ask(
        tracelake, lake, f"SELECT kind, evidence FROM findings WHERE run_id = '{run}' ORDER BY kind"
    )
    shown = json.loads(tracelake("show", run, "--lake", lake.root, "--format", "json").out)
    assert sorted((k["kind"], e) for k in shown["attention"] for e in k["seen"]) == sorted(
        (row["kind"], row["evidence"]) for row in evidence
    )
    page = tmp_path / "page.html"
    report = ("report", "--lake", lake.root, "-o", page, "--run", run)
    failed = tracelake(*report, "--fail-on", ",".join(GATES))
    assert failed.code == 5
    text = page.read_text()
    for row in evidence:
        assert row["evidence"] in text
        assert row["evidence"] in failed.err
    listed = tracelake("runs", "--lake", lake.root, "--attention", "--format", "json")
    (kinds,) = [row["attention"] for row in json.loads(listed.out) if row["run_id"] == run]
    assert set(kinds.split(", ")) == {row["kind"] for row in evidence}


def late(since: int = 5, **facts: Any) -> Rows:
    """Rank 2 is twice as slow in forward steps from one of 12 steps; before it is 0.1 ms over."""
    fine, slow = (trace_run(slow=n, steps=12, **facts) for n in (1.001, 2.0))
    ops = [
        fast if fast["step"] < since else op
        for fast, op in zip(fine["ops"], slow["ops"], strict=True)
    ]
    return {**fine, "ops": ops}


def test_a_rank_that_becomes_slow_within_a_run_says_so_by_one_statistic(
    tracelake: Command, jobs: Lake
) -> None:
    of_run = "run_id = 'late'"
    verdict = f"FROM straggler_ranks WHERE verdict = 'straggler' AND {of_run}"
    (rank,) = ask(tracelake, jobs, verdict)
    # The median over steps, as the slowdown; summed over steps it would be 1.83.
    assert rank["evidence"] == (
        "rank 2 (stage 0): forward_step took 2.25 times as long as the median of 3 peers,"
        " backward_step 1.00 times; slow in 8 of 12 steps, since step 5."
    )
    assert rank["slowdown"] == pytest.approx(380 / 280)
    assert (rank["forward_slowdown"], rank["since_step"]) == (pytest.approx(180 / 80), 5)
    (summary,) = ask(tracelake, jobs, f"FROM run_summary WHERE {of_run}")
    assert summary["time_lost_ms"] == rank["time_lost_ms"] == pytest.approx(8 * 100 + 4 * 0.1)


def test_a_rank_that_becomes_slow_too_late_for_a_verdict_is_named_with_the_slower_steps(
    tracelake: Command, jobs: Lake
) -> None:
    """Three steps are enough, where it is slow in all of them and the steps are longer; two not."""
    verdicts = "FROM straggler_ranks WHERE run_id IN ('later', 'latest') AND slow_steps > 0"
    rows = ask(tracelake, jobs, f"SELECT run_id, verdict, since_step {verdicts} ORDER BY 1")
    assert [tuple(row.values()) for row in rows] == [("later", "ok", 10), ("latest", "ok", 11)]
    (found,) = findings_of(tracelake, jobs, "later", "latest")
    assert (found["run_id"], found["kind"], found["severity"]) == ("later", "slowed", "critical")
    assert (found["rank"], found["stage"]) == (2, 0)
    assert found["evidence"] == (
        "steps take 400.0 ms since step 10, 33.3 % longer than before (300.1 ms): 3 of 12 steps;"
        " rank 2 (stage 0) computes 1.36 times as long as the median of 3 peers from step 10 on."
    )
    assert found["brief"] == "33.3 % longer since step 10, with rank 2"
    assert found["advice"] == "Check clocks, temperature and ECC of rank 2, or drain it."


def test_good_runs_of_the_same_night_end_no_incident(tracelake: Command, tmp_path: Path) -> None:
    """It is over after 3 good runs that span 36 hours; then the same is another incident."""
    first = datetime(2025, 3, 1, 22)
    begun = {0: False, 1: True, 2: True, 3: True, 38: False, 39: True, 40: True, 41: True}
    states: dict[int, list[Row]] = {}
    for last in (41, 75, 76):
        runs = {
            f"after{hours:02}": log_run(complete=whole, run_date=first + timedelta(hours=hours))
            for hours, whole in {**begun, 74: True, 75: True, 76: False}.items()
            if hours <= last
        }
        lake = make(tmp_path / str(last), runs)
        shown = "SELECT run_ids, open FROM incidents WHERE kind = 'incomplete' ORDER BY since"
        states[last] = ask(tracelake, lake, shown)
    assert states[41] == [{"run_ids": ["after00", "after38"], "open": True}]
    assert states[75] == [{"run_ids": ["after00", "after38"], "open": False}]
    assert states[76] == [*states[75], {"run_ids": ["after76"], "open": True}]


def two_slow_ranks() -> Rows:
    one, other = (trace_run(ranks=8, slow=1.5, slow_rank=rank) for rank in (2, 5))
    slow = {(op["rank"], op["seq"]): op for op in other["ops"] if op["rank"] == 5}
    return {**one, "ops": [slow.get((op["rank"], op["seq"]), op) for op in one["ops"]]}


def costs(tracelake: Command, lake: Lake, run_id: str = "%") -> dict[str, tuple[Any, ...]]:
    rows = ask(
        tracelake, lake, f"FROM findings WHERE kind <> 'regressed' AND run_id LIKE '{run_id}'"
    )
    return {
        row["subject"]: (row["cost_gpu_hours"], row["cost_basis"], row["cost_bound"])
        for row in rows
    }


def test_slow_ranks_of_a_run_have_the_cost_of_the_run_by_replay(
    tracelake: Command, jobs: Lake
) -> None:
    (run,) = ask(tracelake, jobs, "FROM whatif_runs WHERE run_id = 'both'")
    # Each waits for the other: mending one alone would save nothing.
    most = "SELECT max(lost_ms) AS ms FROM whatif_ranks WHERE run_id = 'both'"
    (alone,) = ask(tracelake, jobs, most)
    assert alone["ms"] == pytest.approx(0)
    assert run["gpu_hours_lost"] == pytest.approx(8 * 3 * 50 / 3.6e6)
    replayed = (pytest.approx(run["gpu_hours_lost"]), "replay", None)
    assert costs(tracelake, jobs, "both") == {"rank 2": replayed, "rank 5": replayed}


def test_a_cost_says_everywhere_whether_it_is_a_bound_and_which(
    tracelake: Command, tmp_path: Path
) -> None:
    pair = trace_run(ranks=2, slow=1.5, slow_rank=1, run_date=day(0))
    lake = make(tmp_path / "pair", {"pair": pair})
    (cost,) = costs(tracelake, lake).values()
    # The median of the two is half way.
    assert cost == (pytest.approx(2 * 3 * 25 / 3.6e6), "replay", "at_least")
    root, page, text = lake.root, tmp_path / "page.html", tmp_path / "page.md"
    for out in (page, text):
        assert tracelake("report", "--lake", root, "-o", out).code == 0
    assert "at least, if the job runs all day" in page.read_text()
    assert not re.search(r"·\s*(·|</small>)", page.read_text())  # its one run is not counted
    for told in (page.read_text(), text.read_text()):
        assert "It cost 0.15 GPU s at least." in told
    assert "It costs 3.43 GPU h a day at least." in text.read_text()
    more = write(tmp_path / "in", {"plan.txt": plan()})
    ended = tracelake("run", more, "--lake", root, "--metrics", tmp_path / "x.prom").out
    assert re.search(r"rank 1 in pair: suspect since [0-9-]{10}, cause", ended)
    assert "GPU h a day at least  tracelake show" in ended
    metrics = (tmp_path / "x.prom").read_text()
    assert 'tracelake_incident_cost_gpu_hours_per_day{incident="' in metrics
    assert 'bound="at_least"} 3.4' in metrics
    assert "a day, at most" not in metrics


def test_a_replay_of_two_peers_with_asynchronous_calls_is_no_limit(
    tracelake: Command, tmp_path: Path
) -> None:
    """The only peer's call is cut off where the slow rank starts it: the replay finds too much."""
    asked = ("--formats", "rank_trace", "--steps", "2", "--pp", "4")
    for name, more in (("clean", ()), ("slow", ("--slow-rank", "3"))):
        assert tracelake("synth", tmp_path / "in" / name, *asked, *more).code == 0
    lake = tmp_path / "lake"
    assert tracelake("run", tmp_path / "in", "--lake", lake, "--quiet").code == 0
    steps = ask(
        tracelake, Lake.open(lake), "SELECT max(step_ms) AS ms FROM step_stats GROUP BY run_id"
    )
    clean, slow = sorted(row["ms"] for row in steps)
    (found,) = ask(tracelake, Lake.open(lake), "FROM findings WHERE kind = 'suspect'")
    assert found["lost_ratio"] > 1.1 * (slow - clean) / slow
    assert (found["cost_basis"], found["cost_bound"]) == ("replay", None)


def test_a_bound_that_leaves_out_kernels_in_asynchronous_calls_is_no_limit(
    tracelake: Command, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    words = ("--ranks", "8", "--pp", "2", "--steps", "3", "--slow-rank", "5")
    assert tracelake("synth", archive, *words, "--formats", "rank_trace").code == 0
    lakes = [ingest_and_build(archive, tmp_path / "whole")]
    next(archive.rglob("*rank0_*")).unlink()
    lakes.append(ingest_and_build(archive, tmp_path / "without_rank_0"))
    (whole, by, _), (least, *bound) = (costs(tracelake, lake)["rank 5"] for lake in lakes)
    assert (by, bound) == ("replay", ["bound", None])
    assert least < whole


def test_what_no_incident_joins_is_named_at_the_end_of_run_and_for_alerts(
    tracelake: Command, tmp_path: Path
) -> None:
    torn = trace_run(complete=False, ranks_expected=8, world_size=8, config="torn")
    runs = {"undated": trace_run(slow=1.5), "torn": torn}
    lake = Lake.create(tmp_path / "lake")
    commit_runs(lake, runs)
    more = write(tmp_path / "in", {"plan.txt": plan()})
    ended = tracelake("run", more, "--lake", lake.root, "--metrics", tmp_path / "x.prom")
    for said, run in (
        ("critical rank 2 in undated: straggler, cause work, 0.6 GPU s by replay", "undated"),
        ("warning  torn: incomplete, 4 of 8 ranks were seen", "torn"),
    ):
        assert f"{said}  tracelake show --lake {lake.root} {run}" in ended.out
    alone = 'tracelake_findings{kind="straggler",severity="critical",in_incident="no"} 1'
    assert alone in (tmp_path / "x.prom").read_text().splitlines()


def whole_host(*factors: float) -> Rows:
    """Of four hosts of two ranks, one is slow."""
    rows = trace_run(ranks=8, run_date=day(0))
    slow_ops = {
        (op["rank"], op["seq"]): op
        for rank, factor in zip((6, 7), factors, strict=True)
        for op in trace_run(ranks=8, slow=factor, slow_rank=rank)["ops"]
        if op["rank"] == rank
    }
    ops = [slow_ops.get((op["rank"], op["seq"]), op) for op in rows["ops"]]
    for op in ops:
        op["source_id"] = op["rank"]
    sources = [
        {**rows["sources"][0], "source_id": r, "path": f"{r}.txt", "host": f"node{r // 2}"}
        for r in range(8)
    ]
    return {**rows, "ops": ops, "sources": sources, "comms": []}


BEGUN = [("last_step", "-1"), ("planned_steps", "10")]
FAULTS = [
    {"source_id": 0, "name": "truncated", "severity": "data_loss", "count": 3, "line": 7},
    {"source_id": 0, "name": "crlf", "severity": "notice", "count": 9},
]


def awaited(steps: int) -> Rows:
    """In the first step rank 2 comes 2 s late, and the others wait for it in their call."""
    rows, late = trace_run(steps=steps), 2000 * MS

    def moved(row: Row, *names: str) -> Row:
        first = row["step"] == 1
        return {**row, **{name: row[name] + late for name in names if first}}

    ops = [
        moved(op, "end_ns", "duration_ns")
        if op["rank"] != 2 and op["op"] == "forward_step"
        else moved(op, "start_ns", "end_ns")
        for op in rows["ops"]
    ]
    comms = [
        moved(call, "start_ns", "end_ns")
        if call["rank"] == 2
        else moved(call, "end_ns", "duration_ns")
        for call in rows["comms"]
    ]
    return {**rows, "ops": ops, "comms": comms}


def by_turns(steps: int) -> Rows:
    """In each step another rank takes twice as long, forward or backward."""
    rows, late = trace_run(steps=steps), 200 * MS

    def turned(op: Row) -> Row:
        turn, rank = divmod(op["step"], 4)
        slow = ("forward_step", "backward_step")[turn % 2]
        if op["rank"] != rank or (slow, op["op"]) == ("backward_step", "forward_step"):
            return op
        moved = "duration_ns" if op["op"] == slow else "start_ns"
        return {**op, "end_ns": op["end_ns"] + late, moved: op[moved] + late}

    return {**rows, "ops": [turned(op) for op in rows["ops"]]}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Runs of jobs that have nothing to do with each other."""
    stages = [(10, 10)] * 4 + [(10, 14)]
    by_job: dict[str, dict[str, Rows]] = {
        "short": {"short": trace_run(slow=1.5, steps=1)},
        "stages": {
            f"named{n}": pipelined(stage_ms=ms, run_date=day(n)) for n, ms in enumerate(stages)
        },
        "no hosts": {
            f"unnamed{n}": pipelined(stage_ms=ms, host=False, run_date=day(n))
            for n, ms in enumerate(stages)
        },
        "host": {"host": whole_host(1.5, 1.5)},
        "links": {"uneven_links": grouped([0.2, 0.2, 4.0, 0.2])},
        "even links": {"even_links": grouped([0.2, 0.25, 0.2, 0.3])},
        "data": {
            "slow_data": pipelined(data_ms=40, host=False),
            "fast_data": pipelined(data_ms=1, host=False),
        },
        "lossy": {"lossy": {**trace_run(), "faults": FAULTS}},
        "partial": {
            "bad": log_run(rejected=2, complete=True),
            "partial": trace_run(complete=False, ranks_expected=8, world_size=8),
            "played": trace_run(complete=False, simulated=True),
        },
        "splits": {
            "one": pipelined(micro_batches=1),
            "uneven": pipelined(stage_ms=(10, 16)),
            "even": pipelined(),
        },
        "late": {"late": late()},
        "later": {"later": late(10)},
        "latest": {"latest": late(11)},
        "two ranks": {"both": two_slow_ranks()},
        "begun": {"begun": log_run(complete=False, ranks_seen=None, attributes=BEGUN)},
        "calm": {"calm": trace_run()},
        "awaited": {"awaited": awaited(steps=6)},
        "by turns": {"by_turns": by_turns(steps=12)},
    }
    runs = {run: rows for job in by_job.values() for run, rows in job.items()}
    for job, its_runs in by_job.items():
        for rows in its_runs.values():
            rows["runs"][0]["config"] = job
    return make(tmp_path_factory.mktemp("jobs") / "lake", runs)


def findings_of(tracelake: Command, lake: Lake, *runs: str) -> list[Row]:
    return ask(tracelake, lake, f"FROM findings WHERE list_contains({list(runs)}, run_id)")


def test_levels_sort_by_severity(tracelake: Command, jobs: Lake) -> None:
    places = {"critical": 1, "warning": 2, "notice": 3}
    for relation in ("findings", "incidents"):
        rows = ask(tracelake, jobs, f"SELECT DISTINCT severity, level FROM {relation}")
        assert {row["severity"] for row in rows} >= {"warning"}, relation
        assert {row["severity"]: row["level"] for row in rows}.items() <= places.items(), relation


def test_suspects_are_no_zero(tracelake: Command, jobs: Lake) -> None:
    (summary,) = ask(tracelake, jobs, "FROM run_summary WHERE run_id = 'short'")
    assert (summary["stragglers"], summary["suspects"]) == (0, 1)
    (found,) = findings_of(tracelake, jobs, "short")
    assert (found["kind"], found["severity"]) == ("suspect", "warning")
    assert summary["time_lost_ms"] == pytest.approx(50)
    assert found["cost_gpu_hours"] == pytest.approx(summary["gpu_hours_lost"])


def test_an_incident_joins_the_findings_of_a_series_and_leaves_out_what_it_explains(
    tracelake: Command, incident_lake: Lake
) -> None:
    (incident,) = ask(tracelake, incident_lake, "FROM incidents")
    assert (incident["kind"], incident["subject"]) == ("recurring", "rank 2")
    assert (incident["since"], incident["last_seen"]) == (str(day(4)), str(day(6)))
    assert (incident["slow_runs"], incident["runs"], incident["open"]) == (3, 3, True)
    # A seventh of the time of 4 ranks, all day.
    assert incident["cost_gpu_hours_per_day"] == pytest.approx(4 * 24 * 50 / 350)
    regressed = ask(tracelake, incident_lake, "FROM findings WHERE kind = 'regressed'")
    assert regressed


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> list[Lake]:
    """A lake of three jobs, and what it was after some more of their nights, twice."""
    folder = tmp_path_factory.mktemp("growing")
    logs = {
        f"log{n:02}": log_run(layer_ns=ns, complete=True, run_date=day(n), config="log")
        for n, ns in enumerate([1_000_000] * 15 + [1_300_000] * 13)
    }
    late = waits("late", [0] * 7 + [15] * 2)
    slow = nights([1, 1, 1, 1.5, 1.5, 1.5, 1, 1, 1, 1.5], job="slow")
    found: list[Lake] = []
    for number, upto in enumerate(((20, 8, 5), (28, 9, 9), (28, 9, 10))):
        root = folder / str(number)
        lake = Lake.open(shutil.copytree(found[-1].root, root)) if found else Lake.create(root)
        there = lake.snapshot().runs
        for runs, count in zip((logs, late, slow), upto, strict=True):
            for run_id in [*runs][:count]:
                if run_id not in there:
                    commit_run(lake, run_id, runs[run_id])
        build(lake)
        found.append(lake)
    return found


def test_a_slowdown_seen_as_regression_and_as_drift_is_one_incident(
    tracelake: Command, growing: list[Lake]
) -> None:
    lake, grown, _ = growing
    step, of_job = "subject = 'step_p50_ms'", "config = 'log'"
    kinds = ask(
        tracelake,
        lake,
        "SELECT kind, count(*) AS n FROM findings"
        f" WHERE {step} AND run_id LIKE 'log%' GROUP BY ALL",
    )
    assert {row["kind"]: row["n"] for row in kinds} == {"regressed": 5, "drifted": 3}
    (incident,) = ask(tracelake, lake, f"FROM incidents WHERE {step} AND {of_job}")
    summed = f"SELECT sum(cost_gpu_hours_per_day) AS hours FROM incidents WHERE {of_job}"
    (cost,) = ask(tracelake, lake, summed)
    assert (incident["since"], incident["slow_runs"], incident["runs"]) == (str(day(15)), 5, 5)
    assert incident["evidence"].startswith("step_p50_ms 13 is 30.0 % over the median 10 of")
    # 3 of 13 ms on 2 ranks, once.
    assert cost["hours"] == pytest.approx(2 * 24 * 3 / 13)
    # The baseline follows, so that only the drift is left: the incident goes on.
    (later,) = ask(tracelake, grown, f"FROM incidents WHERE {step} AND {of_job}")
    assert (later["incident"], later["kind"]) == (incident["incident"], "drifted")
    assert (later["slow_runs"], later["runs"], later["open"]) == (13, 13, True)
    assert later["cost_gpu_hours_per_day"] == pytest.approx(cost["hours"])
    assert "the median of the latest 5 runs, 13" in later["evidence"]


def longer(rows: Rows, factor: float) -> Rows:
    """The run with backward steps that take so many times as long on every rank."""
    ops = [
        {**op, "duration_ns": int(op["duration_ns"] * factor)}
        if op["op"] == "backward_step"
        else op
        for op in rows["ops"]
    ]
    return {**rows, "ops": [{**op, "end_ns": op["start_ns"] + op["duration_ns"]} for op in ops]}


def later_stage(rows: Rows, late_ms: float) -> Rows:
    """The run with a second stage that starts later: steps take longer, in which ranks wait."""
    late = {key: round(late_ms * MS) for key in ("start_ns", "end_ns")}
    ops = [
        {**op, **{key: op[key] + ns for key, ns in late.items()}} if op["stage"] else op
        for op in rows["ops"]
    ]
    return {**rows, "ops": ops}


def waits(job: str, late_ms: Iterable[float]) -> dict[str, Rows]:
    """A run of a job per night whose second stage starts so much later."""
    return {
        f"{job}{n}": later_stage(pipelined(run_date=day(n), host=False, config=job), ms)
        for n, ms in enumerate(late_ms)
    }


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Jobs whose rank 2 becomes slow, each in a way of its own, and two whose ranks wait longer."""
    later = nights([1.5] * 3, first=8, job="long_before")
    incomplete = nights([1, 1.5, 1.5, 1.5, 1.5, 1, 1, 1.5, 1.5], job="incomplete")
    for rows in [*incomplete.values()][1:5]:
        rows["runs"][0].update(complete=False, ranks_expected=8)
    cancelled = nights([1, 1, 1, 1, 1.5, 5, 1.5], job="cancelled")
    cancelled["cancellednight05"]["runs"][0]["complete"] = False
    runs = {
        **nights([1] * 14 + [1.5] * 4, job="drift"),
        **nights([1.5] * 8, job="long_before"),
        **{run: longer(rows, 1.5) for run, rows in later.items()},
        **nights([1.4] * 8 + [3] * 3, job="much_worse"),
        **incomplete,
        **cancelled,
        **waits("twice", [0] * 6 + [30] * 2),
        **waits("once", [0] * 7 + [15]),
    }
    return make(tmp_path_factory.mktemp("series") / "lake", runs)


def test_a_slow_rank_explains_a_drift_too(tracelake: Command, series: Lake) -> None:
    last = "FROM findings WHERE run_id = 'driftnight17'"
    kinds = ask(tracelake, series, f"SELECT DISTINCT kind {last}")
    assert {row["kind"] for row in kinds} >= {"drifted", "regressed", "recurring"}
    (incident,) = ask(tracelake, series, "FROM incidents WHERE config = 'drift'")
    assert (incident["kind"], incident["subject"]) == ("recurring", "rank 2")
    assert incident["cost_gpu_hours_per_day"] == pytest.approx(4 * 24 * 50 / 350)


def test_slower_steps_explain_the_other_figures_that_changed(
    tracelake: Command, series: Lake
) -> None:
    (incident,) = ask(tracelake, series, "FROM incidents WHERE config = 'twice'")
    assert (incident["subject"], incident["slow_runs"]) == ("step_p50_ms", 2)
    # 30 of 160 ms on 4 ranks, all day.
    assert incident["cost_gpu_hours_per_day"] == pytest.approx(4 * 24 * 30 / 160)
    of_job = "SELECT DISTINCT subject, incident FROM findings WHERE run_id LIKE 'twice%'"
    found = ask(tracelake, series, of_job)
    assert {row["subject"]: row["incident"] for row in found} == {
        "step_p50_ms": incident["incident"],
        "bubble_ratio": incident["incident"],
    }


def test_what_is_confirmed_is_not_explained_by_what_is_not(
    tracelake: Command, series: Lake
) -> None:
    """Of steps that are 11 % slower once, and a bubble that doubles, the bubble is the alarm."""
    found = ask(tracelake, series, "FROM incidents WHERE config = 'once'")
    assert {row["subject"]: row["severity"] for row in found} == {
        "step_p50_ms": "notice",
        "bubble_ratio": "critical",
    }


def test_a_regression_waits_for_the_next_run_until_there_is_one(
    tracelake: Command, growing: list[Lake]
) -> None:
    lake, grown, _ = growing
    of_night = "run_id = 'late7' AND subject = 'step_p50_ms'"
    (alone,) = ask(tracelake, lake, f"FROM findings WHERE {of_night}")
    assert alone["advice"].startswith("Wait for the next run")
    (followed,) = ask(tracelake, grown, f"FROM findings WHERE {of_night}")
    assert followed["advice"] == "See what changed: tracelake diff late6 late7"
    assert followed["severity"] == alone["severity"] == "notice"
    assert followed["evidence"] == alone["evidence"]


def test_a_rank_that_was_slow_long_before_explains_no_later_regression(
    tracelake: Command, series: Lake
) -> None:
    of_both = "config = 'long_before' AND subject IN ('rank 2', 'step_p50_ms')"
    rows = ask(tracelake, series, f"FROM incidents WHERE {of_both}")
    assert {(row["subject"], row["since"]) for row in rows} == {
        ("rank 2", str(day(0))),
        ("step_p50_ms", str(day(8))),
    }
    # A rank that loses much more than before is what is new.
    of_job = "kind = 'regressed' AND run_id LIKE 'much_worse%'"
    assert ask(tracelake, series, f"FROM findings WHERE {of_job}")
    (incident,) = ask(tracelake, series, "FROM incidents WHERE config = 'much_worse'")
    assert (incident["subject"], incident["since"]) == ("rank 2", str(day(0)))


def test_what_incomplete_runs_before_had_is_not_what_a_change_is_compared_with(
    tracelake: Command, series: Lake
) -> None:
    """A baseline has complete runs alone: in none of these the rank was slow before."""
    of_job = "kind = 'regressed' AND run_id LIKE 'incomplete%'"
    assert ask(tracelake, series, f"FROM findings WHERE {of_job}")
    others = "config = 'incomplete' AND kind <> 'incomplete'"
    found = ask(tracelake, series, f"FROM incidents WHERE {others}")
    assert [(row["subject"], row["since"]) for row in found] == [("rank 2", str(day(1)))]


def test_an_incident_keeps_its_name_and_ends_after_three_good_runs(
    tracelake: Command, growing: list[Lake]
) -> None:
    of_job = "FROM incidents WHERE config = 'slow' ORDER BY since"
    (before,), (after,), again = (ask(tracelake, lake, of_job) for lake in growing)
    assert after["incident"] == before["incident"]
    assert (after["slow_runs"], after["open"]) == (3, False)
    assert [row["since"] for row in again] == [str(day(3)), str(day(9))]
    assert again[0]["incident"] == before["incident"]


def logs(job: str, layers_ms: Iterable[float | None], *, first: int = 0) -> dict[str, Rows]:
    """A log of a job per night, whose step takes ten times as long; of None one without steps."""
    return {
        f"{job}{n:03}": log_run(
            layer_ns=round((ms or 0) * MS),
            steps=3 if ms else 0,
            config=job,
            complete=bool(ms),
            ranks_seen=None,
            run_date=day(n),
        )
        for n, ms in enumerate(layers_ms, first)
    }


@pytest.fixture(scope="module")
def gaps(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Jobs with runs that could not have had what is wrong with the others."""
    absent = {
        f"{job}away{n:02}": trace_run(ranks=2, run_date=day(n), config=job)
        for job, nights_away in (("turns", (2, 3, 4, 6, 7, 8)), ("left", range(4, 26)))
        for n in nights_away
    }
    turns = {f"turns{n}": trace_run(slow=1.5, run_date=day(n), config="turns") for n in (1, 5, 9)}
    stages = [(10, 10)] * 4 + [(10, 14)] * 9
    alone = {
        f"aloneone{n:02}": trace_run(ranks=1, run_date=day(n), config="alone") for n in range(4, 26)
    }
    cut = logs("cut", [1] * 10, first=5)
    for rows in cut.values():
        rows["runs"][0].update(complete=False, ranks_seen=1, ranks_expected=2)
    short = {
        f"short{n}": trace_run(slow=1.5, steps=2, run_date=day(n), config="short") for n in range(3)
    }
    noisy = (262, 259, 260, 261, 262, 261, 258, 261, 259, 258, 259, 261, 258, 259, 263)
    runs = {
        **logs("worse", [1] * 6 + [1.3] * 25 + [1.8] * 5),
        **{
            f"always{n}": trace_run(slow=1.5, steps=2, run_date=day(n), config="always")
            for n in range(3)
        },
        **nights([1.5] * 7, job="always", first=3),
        **logs("healed", [1] * 4 + [1.3] * 2 + [1] * 4),
        **logs("blip", [1] * 4 + [1.3] * 7 + [1] + [1.3] * 7),
        **logs("noisy", [20 + 0.1 * (n % 3) for n in range(7)] + [ms / 10 for ms in noisy]),
        **logs("cut", [1] * 4 + [1.3]),
        **cut,
        **short,
        **nights([1.5] * 2 + [1] * 7, job="short", first=3),
        **nights([1.5] * 3, job="alone", first=1),
        **alone,
        **logs("crashed", [1, 1, 1, 1, 1.3, 1.3, None, None, None, 1.3, 1.3]),
        **logs("restarted", [1] * 4 + [None] * 25 + [1.3, 1.3]),
        **logs("by_turns", [1] * 6 + [1.15, None, 1.15, None]),
        **logs("again", [1] * 15 + [1.3] * 5),
        **logs("again", [1] * 11 + [1.3] * 6, first=200),
        **nights([1.5, 1.5, 1.5], job="left", first=1),
        **turns,
        **absent,
        **{
            f"staged{n:02}": pipelined(stage_ms=ms, run_date=day(n), config="staged")
            for n, ms in enumerate(stages)
        },
    }
    return make(tmp_path_factory.mktemp("gaps") / "lake", runs)


def incidents_of(tracelake: Command, lake: Lake, config: str, what: str = "true") -> list[Row]:
    sql = f"FROM incidents WHERE config = '{config}' AND {what} ORDER BY since"
    return ask(tracelake, lake, sql)


def test_runs_that_broke_off_before_a_step_end_no_regression(
    tracelake: Command, gaps: Lake
) -> None:
    (incident,) = incidents_of(tracelake, gaps, "crashed", "subject = 'step_p50_ms'")
    assert (incident["since"], incident["slow_runs"], incident["open"]) == (str(day(4)), 4, True)


def test_runs_that_broke_off_before_a_step_are_in_no_baseline(
    tracelake: Command, gaps: Lake
) -> None:
    sql = "FROM run_history WHERE run_id LIKE 'restarted%' AND step_p50_ms IS NOT NULL"
    runs = ask(tracelake, gaps, f"{sql} ORDER BY run_date")
    assert [row["verdict"] for row in runs] == [*["not_comparable"] * 3, "ok", *["regressed"] * 2]
    assert [row["baseline_runs"] for row in runs] == [0, 1, 2, 3, 4, 5]


def test_the_run_before_that_has_the_figure_confirms_a_regression(
    tracelake: Command, gaps: Lake
) -> None:
    sql = "FROM findings WHERE run_id LIKE 'by_turns%' AND subject = 'step_p50_ms'"
    found = ask(tracelake, gaps, f"{sql} ORDER BY run_id")
    assert [(row["run_id"], row["gate"]) for row in found] == [
        ("by_turns006", None),
        ("by_turns008", "regression"),
    ]


def test_a_drift_does_not_begin_before_good_runs(tracelake: Command, gaps: Lake) -> None:
    sql = "FROM findings WHERE run_id LIKE 'again2%' AND kind = 'drifted'"
    found = ask(tracelake, gaps, sql)
    assert found
    assert {row["since"] for row in found} == {str(day(211))}
    first, second = incidents_of(tracelake, gaps, "again", "subject = 'step_p50_ms'")
    assert (first["since"], first["open"]) == (str(day(15)), False)
    assert (second["since"], second["slow_runs"], second["open"]) == (str(day(211)), 6, True)


def test_a_rank_that_is_not_in_each_run_is_one_incident(tracelake: Command, gaps: Lake) -> None:
    (incident,) = incidents_of(tracelake, gaps, "turns")
    assert (incident["kind"], incident["subject"]) == ("recurring", "rank 2")
    assert (incident["since"], incident["slow_runs"], incident["open"]) == (str(day(1)), 3, True)
    # After 20 runs without it nobody can say that it is well.
    (left,) = incidents_of(tracelake, gaps, "left", "subject = 'rank 2'")
    assert (left["kind"], left["slow_runs"], left["open"]) == ("recurring", 3, False)


def test_runs_of_one_rank_say_nothing_of_another(tracelake: Command, gaps: Lake) -> None:
    (incident,) = incidents_of(tracelake, gaps, "alone", "subject = 'rank 2'")
    assert (incident["slow_runs"], incident["open"]) == (3, True)


def test_good_runs_end_a_regression_also_where_they_are_incomplete(
    tracelake: Command, gaps: Lake
) -> None:
    for job in ("healed", "cut"):
        (incident,) = incidents_of(tracelake, gaps, job, "kind = 'regressed'")
        assert (incident["since"], incident["open"]) == (str(day(4)), False), job


def test_runs_without_stragglers_end_a_regression_of_their_number(
    tracelake: Command, gaps: Lake
) -> None:
    """Of none in the baseline no ratio is allowed."""
    (incident,) = incidents_of(tracelake, gaps, "short", "subject = 'stragglers'")
    assert (incident["kind"], incident["open"]) == ("regressed", False)


def test_a_number_of_stragglers_that_stays_is_an_open_regression(
    tracelake: Command, gaps: Lake
) -> None:
    """Of the second run on the baseline has one, too: the first found none."""
    (incident,) = incidents_of(tracelake, gaps, "always", "subject = 'stragglers'")
    assert (incident["since"], incident["slow_runs"]) == (str(day(3)), 1)
    assert incident["open"]


def test_a_further_regression_is_an_incident_while_the_first_lasts(
    tracelake: Command, gaps: Lake
) -> None:
    found = incidents_of(tracelake, gaps, "worse")
    assert [(row["since"], row["open"]) for row in found] == [
        (str(day(6)), True),
        (str(day(31)), True),
    ]


def test_findings_name_incidents_that_there_are(tracelake: Command, gaps: Lake) -> None:
    without = "FROM findings WHERE incident NOT IN (SELECT incident FROM incidents)"
    assert ask(tracelake, gaps, without) == []


def test_one_good_run_ends_no_regression(tracelake: Command, gaps: Lake) -> None:
    (incident,) = incidents_of(tracelake, gaps, "blip")
    assert (incident["since"], incident["open"]) == (str(day(4)), True)


def test_while_a_regression_lasts_a_drift_is_no_new_one(tracelake: Command, gaps: Lake) -> None:
    (incident,) = incidents_of(tracelake, gaps, "noisy")
    assert (incident["since"], incident["open"]) == (str(day(7)), True)
    known = "SELECT DISTINCT incident FROM findings WHERE run_id LIKE 'noisy%'"
    assert ask(tracelake, gaps, known) == [{"incident": incident["incident"]}]


def test_a_page_of_new_runs_has_what_goes_on_in_their_jobs(
    tracelake: Command, gaps: Lake, tmp_path: Path
) -> None:
    """The latest run of the job has no finding, because its baseline is as slow."""
    latest = "SELECT run_id FROM findings WHERE run_id = 'blip018'"
    assert ask(tracelake, gaps, latest) == []
    page = tmp_path / "page.html"
    report = ("report", "--lake", gaps.root, "--run", "blip018", "--output", page)
    assert tracelake(*report).code == 0
    (incident,) = incidents_of(tracelake, gaps, "blip")
    assert incident["incident"] in page.read_text()


def test_a_stage_that_stays_slow_is_open_when_its_baseline_is_slow(
    tracelake: Command, gaps: Lake
) -> None:
    (incident,) = incidents_of(tracelake, gaps, "staged")
    assert (incident["kind"], incident["since"]) == ("slow_stage", str(day(4)))
    assert incident["slow_runs"] < 6
    assert incident["open"]


def test_to_wait_for_a_late_rank_is_no_exposed_communication(
    tracelake: Command, jobs: Lake
) -> None:
    sql = "SELECT comm_ratio FROM run_summary WHERE run_id = 'awaited'"
    (summary,) = ask(tracelake, jobs, sql)
    assert summary["comm_ratio"] > 0.4
    sql = "SELECT kind FROM opportunities WHERE run_id = 'awaited'"
    assert ask(tracelake, jobs, sql) == []


def test_of_a_job_with_one_stage_it_is_no_cause(tracelake: Command, jobs: Lake) -> None:
    (run,) = ask(tracelake, jobs, "FROM whatif_runs WHERE run_id = 'by_turns'")
    assert run["s_peer"] > 1.1
    assert run["cause"] == "one_kind"


def test_a_stage_that_became_slow_is_named_with_its_host(tracelake: Command, jobs: Lake) -> None:
    slow = "FROM findings WHERE kind = 'slow_stage' ORDER BY run_id"
    named, unnamed = ask(tracelake, jobs, slow)
    assert (named["run_id"], named["stage"], named["host"]) == ("named4", 1, "node1")
    assert named["evidence"].startswith("stage 1 on host node1 took 42.00 ms per micro-batch")
    assert named["cause"] == "node"
    assert (unnamed["run_id"], unnamed["host"], unnamed["cause"]) == ("unnamed4", None, "stage")


def test_a_whole_host_that_is_slow_is_one_finding(tracelake: Command, jobs: Lake) -> None:
    found = findings_of(tracelake, jobs, "host")
    (node,) = (row for row in found if row["kind"] == "slow_node")
    assert (node["subject"], node["severity"]) == ("host node3", "critical")
    ranks = [(row["rank"], row["cause"]) for row in found if row["kind"] == "straggler"]
    assert sorted(ranks) == [(6, "node"), (7, "node")]
    # Its ranks are no incident of their own: the cost is the same, and the host is to be drained.
    incidents = ask(tracelake, jobs, f"FROM incidents WHERE latest_run = '{node['run_id']}'")
    assert [(row["kind"], row["subject"]) for row in incidents] == [("slow_node", "host node3")]
    assert {row["incident"] for row in found} == {node["incident"]}


def test_a_host_is_slow_where_one_of_its_ranks_is_just_below_the_bound(
    tracelake: Command, tmp_path: Path
) -> None:
    # Of 280 ms of its own rank 7 takes 22 more: less than a tenth.
    lake = make(tmp_path / "lake", {"host": whole_host(1.45, 1.22)})
    found = ask(tracelake, lake, "FROM findings ORDER BY kind")
    assert [(row["kind"], row["subject"], row["cause"]) for row in found] == [
        ("slow_node", "host node3", "node"),
        ("straggler", "rank 6", "node"),
    ]
    assert "the other rank on node3 is slow too" in found[1]["advice"]


def passed(rank: int, name: str, end: float, length: float, group: str = "None") -> str:
    """Write a line of a trace; all that is sent or reduced is of one size."""
    sized = ("[1000]", "torch.float32") if group != "None" else ("None", "None")
    return (
        f"rank:{rank}:{name}(stage_id={rank // 3 if group != 'dp' else 0},batch_id=0,"
        f"mg_state=steady,duration={length},description=None,group_kind={group},"
        f"input__shape={sized[0]},input__dtype={sized[1]},timestamp={end},sub_operations=[])\n"
    )


def test_a_group_that_reduces_gradients_slowly_is_a_slow_link(
    tracelake: Command, tmp_path: Path
) -> None:
    """What trainers print there is no size of a message; within a stage it is the same."""
    folder = tmp_path / "in" / "node0"
    folder.mkdir(parents=True)
    for rank in range(6):
        reduce, lines = 40 if rank % 3 == 1 else 10, []
        for start in range(1000, 5000, 1000):
            begun = start + 30
            ends = (begun + reduce, begun + 60)
            lines += [
                passed(rank, "forward_step", start + 10, 10).replace("stage_id=1", "stage_id=0"),
                passed(rank, "backward_step", begun, 20).replace("stage_id=1", "stage_id=0"),
                passed(rank, "dp_allreduce", ends[0], reduce, "dp"),
                passed(rank, "optimizer_step", ends[1], 5).replace("stage_id=1", "stage_id=0"),
            ]
        name = f"wd6_tp3_pp1_numl4_bs1_Tok_rank{rank}_20250101000000.txt"
        (folder / name).write_text("".join(lines))
    lake = ingest_and_build(tmp_path / "in", tmp_path / "lake")
    (found,) = ask(tracelake, lake, "FROM findings WHERE kind = 'slow_link'")
    assert found["subject"] == "group dp 1-4"
    assert "(within host node0): all_reduce took 40.00 ms" in found["evidence"]
    assert found["advice"].startswith("Test the links within node0 ")


def test_a_link_that_is_slow_both_ways_is_one_finding(tracelake: Command, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for rank in range(6):
        sent, lines = 20 if rank % 3 == 1 else 1, []
        for start in range(1000, 5000, 1000):
            there, back = start + 10 + sent, start + 70 + sent
            mine = [
                ("forward_step", start + (10 if rank < 3 else 45), 10, "None"),
                ("send_forward" if rank < 3 else "recv_forward", there, sent, "pp"),
                ("recv_backward" if rank < 3 else "send_backward", back, sent, "pp"),
                ("backward_step", start + (150 if rank < 3 else 70), 20, "None"),
            ]
            mine.sort(key=lambda what: what[1])
            lines += [passed(rank, *what) for what in mine]
            lines.append(passed(rank, "optimizer_step", start + 200, 5))
        name = f"wd6_tp3_pp2_numl4_bs1_Tok_rank{rank}_20250101000000.txt"
        (folder / name).write_text("".join(lines))
    lake = ingest_and_build(folder, tmp_path / "lake")
    (found,) = ask(tracelake, lake, "FROM findings WHERE kind = 'slow_link'")
    assert found["subject"] == "link rank 1 <-> rank 4"
    # 19 ms more on the way there, and as much on the way back, of a step of 205 ms.
    assert found["lost_ratio"] == pytest.approx(38 / 200, rel=0.05)


def test_a_trace_that_is_cut_on_another_clock_is_said_once(
    tracelake: Command, tmp_path: Path
) -> None:
    texts = {f"node{r}/{trace_name(r)}": trace(r, steps=4) for r in range(2)}
    cut = f"node1/{trace_name(1)}"
    texts[cut] = "".join(texts[cut].splitlines(keepends=True)[:5])
    lake = ingest_and_build(write(tmp_path / "in", texts), tmp_path / "lake")
    (found,) = ask(tracelake, lake, "FROM findings")
    assert (found["kind"], found["brief"]) == ("incomplete", "step 2 of rank 1 has not ended")


def test_a_link_many_times_slower_than_its_like_is_named(tracelake: Command, jobs: Lake) -> None:
    (found,) = ask(tracelake, jobs, "FROM findings WHERE kind = 'slow_link'")
    assert (found["run_id"], found["subject"]) == ("uneven_links", "group tp 4-5")
    assert found["evidence"].startswith("group tp 4-5: all_reduce of 8000000 bytes took 4.00 ms")
    assert "20.0 times as long" in found["evidence"]


def test_waiting_for_data_is_a_finding_of_its_own(tracelake: Command, jobs: Lake) -> None:
    (found,) = ask(tracelake, jobs, "FROM findings WHERE kind = 'data_loading'")
    assert (found["run_id"], found["subject"], found["cause"]) == ("slow_data", "get_batch", "data")
    assert found["evidence"].startswith("get_batch: the job waited ")
    # Stage 1 waits for it as well, and has a share of the time: no limit of what it costs.
    assert (found["cost_basis"], found["cost_bound"]) == ("bound", None)


def data_parallel(
    folder: Path,
    load_ms: Callable[[int, int], float] = lambda *_: 1,
    backward_ms: Callable[[int, int], float] = lambda *_: 40,
) -> None:
    """Write traces of 4 ranks and 8 steps: load, compute, go back for so long, and meet."""
    folder.mkdir(parents=True)
    for rank in range(4):
        lines, start = [], 1000.0
        for step in range(8):
            load, back = load_ms(rank, step), backward_ms(rank, step)
            met = start + 25 + max(load_ms(r, step) + backward_ms(r, step) for r in range(4))
            works = (
                ("get_batch", start, start + load),
                ("forward_step", start + load, start + load + 20),
                ("backward_step", start + load + 20, start + load + 20 + back),
                ("optimizer_step", start + load + 20 + back, met),
            )
            lines += [
                f"rank:{rank}:{op}(stage_id=0,batch_id=0,mg_state=steady,duration={end - at:.2f},"
                "description=None,group_kind=None,input__shape=None,input__dtype=None,"
                f"timestamp={end:.2f},sub_operations=[])\n"
                for op, at, end in works
            ]
            start = met + 1
        name = f"wd4_tp1_pp1_numl4_bs1_GPT2_rank{rank}_20250301090000.txt"
        (folder / name).write_text("".join(lines))


def test_one_rank_that_loads_slowly_is_named_because_all_wait_for_it(
    tracelake: Command, tmp_path: Path
) -> None:
    """Shares of busy time hide it: the other ranks compute meanwhile, and wait at the end."""
    logs = tmp_path / "logs"
    data_parallel(logs / "one", lambda rank, _: 31 if rank == 2 else 1)
    data_parallel(logs / "in_turns", lambda rank, step: 31 if rank == step % 4 else 1)
    data_parallel(logs / "a_little", lambda rank, _: 4 if rank == 2 else 1)
    # Each fourth step loads for 61 ms: 16 of 81 ms in the mean. The median step has 66 ms.
    data_parallel(logs / "at_times", lambda _, step: 61 if step % 4 == 3 else 1)
    data_parallel(logs / "even")
    done = tracelake("run", logs, "--lake", tmp_path / "lake", "--quiet")
    assert done.code == 0, done.err
    found = ask(
        tracelake,
        Lake.open(tmp_path / "lake"),
        "SELECT label, f.* FROM findings AS f JOIN runs USING (run_id)"
        " WHERE kind = 'data_loading' ORDER BY label DESC",
    )
    assert [row["label"] for row in found] == ["one", "in_turns", "at_times"]
    one, in_turns, at_times = found
    assert (one["subject"], one["rank"], one["cause"]) == ("get_batch", 2, "data")
    # Without 30 ms a step of 96 ms takes 66.
    assert one["evidence"] == (
        "get_batch: ranks that load as fast as their peers would save 30.0 ms of a step of 96.0 ms"
        " (31.2 %); rank 2 loads for 31.0 ms a step, its peers for 1.0 ms."
    )
    assert one["lost_ratio"] == pytest.approx(30 / 96)
    assert one["cost_basis"] == "replay"
    assert in_turns["rank"] is None
    assert in_turns["evidence"].endswith("; no single rank is slow throughout.")
    assert at_times["evidence"] == (
        "get_batch: the job waited 16.0 ms of a step of 81.0 ms (19.8 %) for data."
    )
    assert (at_times["rank"], at_times["cost_basis"]) == (None, "bound")


def test_a_log_says_itself_how_long_its_steps_waited_for_data(
    tracelake: Command, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for name, waited in (("starved", 0.06), ("fed", 0.004), ("short", 0.06)):
        lines = [
            f"Epoch: [0][{i:>3}/30]\tTime  0.100 ( 0.110)\tData  {9 if i == 0 else waited:.3f}"
            " ( 0.050)\tLoss 2.5e+00 (2.6e+00)\n"
            for i in range(5 if name == "short" else 20)
        ]
        (logs / f"{name}.log").write_text("".join(lines))
    done = tracelake("run", logs, "--lake", tmp_path / "lake")
    assert done.code == 0
    assert "data in starved: data loading, 60.0 % of a step, cause data" in done.out
    (found,) = ask(
        tracelake, Lake.open(tmp_path / "lake"), "FROM findings WHERE kind = 'data_loading'"
    )
    assert found["run_id"].startswith("starved")
    assert found["evidence"] == (
        "data: the job waited 60.0 ms of a step of 100.0 ms (60.0 %) for data."
    )
    assert (found["cause"], found["lost_ratio"]) == ("data", pytest.approx(0.6))


def megatron(
    times: Sequence[float], *, batches: Sequence[int] = (), every: int = 1, timers: bool = False
) -> str:
    """Write a log of steps of so many ms, each with its batch; a record is the mean of `every`."""
    at, lines = datetime(2025, 3, 1, 9), ["using world size: 8, tensor-model-parallel size: 8"]
    for step, ms in enumerate(times, 1):
        at += timedelta(milliseconds=ms)
        if step % every:
            continue
        mean = sum(times[step - every : step]) / every
        batch = batches[step - 1] if batches else 64
        lines.append(
            f" [{at:%Y-%m-%d %H:%M:%S}] iteration {step:8d}/{len(times):8d} |"
            f" elapsed time per iteration (ms): {mean:.1f} | global batch size: {batch:5d} |"
        )
        if timers:
            pairs = (("forward-backward", mean, mean), ("backward-compute", 600, mean - 400))
            lines.append("(min, max) time across ranks (ms):")
            lines += [f"    {name} ....: ({least:.2f}, {most:.2f})" for name, least, most in pairs]
    return "\n".join([*lines, ""])


def megatron_date(times: Sequence[float], step: int) -> str:
    """Return when `megatron` prints the record of a step."""
    at = datetime(2025, 3, 1, 9) + timedelta(milliseconds=sum(times[:step]))
    return f"{at:%Y-%m-%d %H:%M:%S}"


def steps_of(*parts: tuple[int, float], noise: float = 0.01) -> list[float]:
    """Return times of so many steps of so many ms each, part after part."""
    chance = random.Random(7)
    return [round(ms * chance.gauss(1, noise), 1) for steps, ms in parts for _ in range(steps)]


def test_steps_that_become_slower_within_a_run_are_found_with_their_time(
    tracelake: Command, tmp_path: Path
) -> None:
    """Not where they recover, stay in the bound, or have more to do."""
    slower = steps_of((40, 1000), (60, 1300))
    every_ten = steps_of((400, 1000), (400, 1300))
    ramp = steps_of(*((1, 1000 + 5 * step) for step in range(100)))
    logs = {
        "slower": megatron(slower, timers=True),
        "at_the_end": megatron(steps_of((300, 1000), (30, 1300))),
        "a_little": megatron(steps_of((40, 1000), (60, 1150))),
        "within_the_bound": megatron(steps_of((40, 1000), (60, 1080))),
        "noisy": megatron(steps_of((100, 1000), noise=0.08)),
        "faster": megatron(steps_of((40, 1300), (60, 1000))),
        "recovered": megatron(steps_of((40, 1000), (40, 1300), (20, 1000))),
        "in_turns": megatron(steps_of(*((20, 1000 + 300 * (n % 2)) for n in range(6)))),
        "ramp": megatron(ramp),
        "gentle_ramp": megatron(steps_of(*((1, 1000 + 1.5 * step) for step in range(100)))),
        "ramp_of_samples": megatron(ramp, batches=[64] * 50 + [96] * 50),
        "few": megatron(steps_of((95, 1000), (5, 1300))),
        "more_samples": megatron(slower, batches=[64] * 40 + [96] * 60),
        "means": megatron(slower, every=10),
        "more_means": megatron(every_ten, every=10),
    }
    for name, text in logs.items():
        (tmp_path / "logs" / name).mkdir(parents=True)
        (tmp_path / "logs" / name / "train.log").write_text(text)
    done = tracelake("run", tmp_path / "logs", "--lake", tmp_path / "lake", "--quiet")
    assert done.code == 0, done.err
    assert "critical steps in more_means: slowed since 2025-03-01 09:00, " in done.out
    root = tmp_path / "lake"
    asked = tracelake("ask", "slow_timers", "slower", "--lake", root, "--format", "json")
    assert {row["slowed"][-20:] for row in json.loads(asked.out)} == {"longer since step 41"}
    compared = tracelake("diff", "noisy", "faster", "--lake", root)
    assert "became slower" not in compared.out
    compared = tracelake("diff", "at_the_end", "slower", "--lake", root, "--format", "json")
    (first, second) = json.loads(compared.out)["caveats"][-2:]
    assert first.startswith(
        "before became slower on the way, which its medians hide: its steps are "
    )
    assert " % longer since step 301, see tracelake show " in first
    assert second.startswith("after became slower on the way")
    lake = Lake.open(tmp_path / "lake")
    found = ask(
        tracelake,
        lake,
        "SELECT label, f.* FROM findings AS f JOIN runs USING (run_id) WHERE kind = 'slowed'",
    )
    assert {row["label"]: row["severity"] for row in found} == {
        "slower": "critical",
        "at_the_end": "critical",
        "a_little": "warning",
        "more_means": "critical",
        "ramp": "warning",
    }
    (row,) = (row for row in found if row["label"] == "slower")
    assert row["since"] == megatron_date(slower, 41)
    before, after = statistics.median(slower[1:40]), statistics.median(slower[40:])
    change = 100 * (after / before - 1)
    assert row["evidence"].startswith(
        f"steps take {after:.1f} ms since step 41 ({row['since']}), {change:.1f} % longer than"
        f" before ({before:.1f} ms): 60 of 99 steps; in backward-compute the slowest rank went"
    )
    assert row["evidence"].endswith("ms, the fastest from 600.0 to 600.0 ms.")
    lost_hours = 60 * (after - before) * 8 / 3.6e6
    assert row["cost_gpu_hours"] == pytest.approx(lost_hours, rel=0.01)
    (grew,) = (row for row in found if row["label"] == "ramp")
    fifths = [statistics.median(ramp[first : first + 20]) for first in range(1, 100, 20)]
    assert grew["evidence"] == (
        f"steps took ever longer: {fifths[0]:.1f} ms in the first fifth of 99 steps, then"
        f" {fifths[1]:.1f}, {fifths[2]:.1f}, {fifths[3]:.1f} and {fifths[4]:.1f} ms,"
        f" {100 * (fifths[4] / fifths[0] - 1):.1f} % more at the end."
    )
    longer = sum(20 * (fifth - fifths[0]) for fifth in fifths) - (fifths[4] - fifths[0])
    assert grew["cost_gpu_hours"] == pytest.approx(longer * 8 / 3.6e6, rel=0.01)
    (late,) = (row for row in found if row["label"] == "at_the_end")
    assert " since step 301 (" in late["evidence"]
    # The first record with slow steps is of steps 401 to 410.
    (mean,) = (row for row in found if row["label"] == "more_means")
    assert mean["since"] == megatron_date(every_ten, 410)
    (incident,) = ask(tracelake, lake, f"FROM incidents WHERE incident = '{row['incident']}'")
    same = min(each["since"] for each in found if each["incident"] == row["incident"])
    assert (incident["since"], incident["cost_bound"]) == (same, None)


def test_pauses_that_move_from_rank_to_rank_are_an_opportunity(
    tracelake: Command, tmp_path: Path
) -> None:
    """A rank that is slow throughout is a finding instead."""
    logs = tmp_path / "logs"
    data_parallel(logs / "moving", backward_ms=lambda rank, step: 70 if rank == step % 4 else 40)
    data_parallel(logs / "a_little", backward_ms=lambda rank, step: 44 if rank == step % 4 else 40)
    data_parallel(logs / "one", backward_ms=lambda rank, _: 70 if rank == 1 else 40)
    data_parallel(logs / "even")
    done = tracelake("run", logs, "--lake", tmp_path / "lake", "--quiet")
    assert f"1 could be faster: tracelake ask --lake {tmp_path / 'lake'} opportunities" in done.out
    (found,) = ask(
        tracelake,
        Lake.open(tmp_path / "lake"),
        "SELECT label, o.* FROM opportunities AS o JOIN runs USING (run_id)",
    )
    assert (found["label"], found["kind"]) == ("moving", "uneven_operations")
    # Without 30 ms a step of 96 ms takes 66; each of the ranks pauses in 2 of 8 steps.
    assert found["gain_ratio"] == pytest.approx(30 / 96)
    assert found["evidence"] == (
        "Operations as long as the median of their kind would save 30.0 ms of a step of 96.0 ms"
        " (31.2 %): backward_step alone 30.0 ms, but no rank alone more than 7.5 ms (rank 0)."
    )


def test_steps_that_stand_out_are_an_opportunity_with_their_time_and_rhythm(
    tracelake: Command, tmp_path: Path
) -> None:
    """Not where they take little, begin the run, hold more samples, or a slowdown says it."""
    every_tenth = [ms + 4000 * (step % 10 == 0) for step, ms in enumerate(steps_of((99, 1000)), 1)]
    slower = steps_of((90, 1000), (30, 1300))
    rare = steps_of(*((1, 1700 if step in (20, 50, 90) else 1000) for step in range(1, 100)))
    begin = steps_of((6, 3000), (93, 1000))
    logs = {
        "stalls": megatron(every_tenth),
        "irregular": megatron(
            steps_of(*((1, 9000 if step in (20, 31, 77) else 1000) for step in range(1, 100)))
        ),
        "twice": megatron(
            steps_of(*((1, 9000 if step in (20, 77) else 1000) for step in range(1, 100)))
        ),
        "rare": megatron(rare),
        "begin": megatron(begin),
        "slower": megatron(slower),
        "more_samples": megatron(every_tenth, batches=[64 + 64 * (n % 10 == 9) for n in range(99)]),
        "noisy": megatron(steps_of((99, 1000), noise=0.08)),
    }
    for name, text in logs.items():
        (tmp_path / "logs" / name).mkdir(parents=True)
        (tmp_path / "logs" / name / "train.log").write_text(text)
    done = tracelake("run", tmp_path / "logs", "--lake", tmp_path / "lake", "--quiet")
    assert f"2 could be faster: tracelake ask --lake {tmp_path / 'lake'} opportunities" in done.out
    found = {
        row["label"]: row
        for row in ask(
            tracelake,
            Lake.open(tmp_path / "lake"),
            "SELECT label, o.* FROM opportunities AS o JOIN runs USING (run_id)",
        )
    }
    assert set(found) == {"stalls", "irregular"}
    stalls = found["stalls"]
    assert (stalls["kind"], stalls["confidence"]) == ("slow_steps", "measured")
    # The first step is warm-up.
    counted = every_tenth[1:]
    middle = statistics.median(counted)
    lost = sum(ms - middle for ms in every_tenth[9::10])
    assert stalls["gain_ratio"] == pytest.approx(lost / sum(counted), rel=1e-6)
    assert stalls["evidence"].startswith(
        f"9 of 98 steps, one every 10, take {lost / 9:.1f} ms longer than the median step"
        f" ({middle:.1f} ms) on average: {100 * lost / sum(counted):.1f} % of the time. The longest"
        f" is step "
    )
    assert found["irregular"]["evidence"].startswith("3 of 98 steps take ")


def slowed_runs(times: np.ndarray) -> tuple[int, int]:
    """Return how many of the runs, a row of step times each, became slower within.

    Returns:
        Of them those at one step, and those little by little.
    """
    runs, steps = times.shape
    with duckdb.connect() as con:
        con.execute(catalog().macros)
        con.execute(
            "CREATE TABLE straggler_ranks (run_id VARCHAR, since_step INT, verdict VARCHAR)"
        )
        con.execute("CREATE TABLE _late_ranks (run_id VARCHAR, since_step INT)")
        con.execute(
            "CREATE TABLE train_steps (run_id VARCHAR, step INT, logged_at TIMESTAMP,"
            " global_batch_size BIGINT, tokens_per_s DOUBLE)"
        )
        con.execute("CREATE TABLE _log_records (run_id VARCHAR, step INT, record INT)")
        con.execute("CREATE TABLE faults (run_id VARCHAR, name VARCHAR)")
        con.execute("CREATE TABLE runs (run_id VARCHAR, attributes MAP(VARCHAR, VARCHAR))")
        con.register(
            "step_stats",
            pa.table(
                {
                    "run_id": np.repeat([f"r{n}" for n in range(runs)], steps),
                    "step": np.tile(np.arange(2, steps + 2), runs),
                    "step_ms": times.ravel(),
                    "warmup": np.zeros(runs * steps, dtype=bool),
                    "time_basis": ["own"] * runs * steps,
                }
            ),
        )
        for name in ("_uneven_runs", "_slowed_runs", "_slowing_runs"):
            con.execute(f"CREATE TABLE {name} AS {catalog().models[name].sql}")
        jumps, ramps = (len(con.table(name)) for name in ("_slowed_runs", "_slowing_runs"))
        return jumps, ramps


def test_noise_is_no_slowdown_and_a_jump_and_a_ramp_are_found_in_it() -> None:
    """Figures of docs/alarms.md are those of 2,000 runs, these of 200."""
    chance = np.random.default_rng(1)
    for noise in (0.03, 0.08, 0.15):
        alone = chance.normal(0, noise, (200, 300))
        slow = np.zeros_like(alone)  # of which a step keeps 0.98 of the one before
        for step in range(1, 300):
            slow[:, step] = 0.98 * slow[:, step - 1] + 0.2 * alone[:, step]
        found = [slowed_runs(1000 * (1 + each)) for each in (alone, slow)]
        assert found[0] == (0, 0), noise
        assert max(found[1]) <= 2, noise
    jump = np.where(np.arange(300) < chance.integers(20, 280, (200, 1)), 1.0, 1.2)
    jumps, ramps = slowed_runs(1000 * jump * chance.normal(1, 0.03, (200, 300)))
    assert jumps >= 190
    assert ramps <= 2
    ramp = np.linspace(1, 1.4, 300)
    jumps, ramps = slowed_runs(1000 * ramp * chance.normal(1, 0.03, (200, 300)))
    assert jumps <= 2
    assert ramps >= 190


def test_a_trace_of_unknown_size_is_incomplete_if_something_is_missing(
    tracelake: Command, tmp_path: Path
) -> None:
    whole, cut = trace(0, steps=2), trace(0, steps=2, start=5000.0)
    folder = write(
        tmp_path / "in", {"whole.log": whole, "cut.log": cut.rpartition("\nrank")[0] + "\n"}
    )
    lake = tmp_path / "lake"
    assert tracelake("run", folder, "--lake", lake, "--fail-on", "incomplete").code == 5
    found = ask(tracelake, Lake.open(lake), "FROM findings JOIN sources USING (run_id)")
    assert [(row["path"], row["severity"], row["brief"]) for row in found] == [
        ("cut.log", "warning", "step 2 of rank 0 has not ended")
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_without_read_permission_fails_the_gate(tracelake: Command, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", {trace_name(0, world=1): trace(0, steps=2)})
    closed = folder / "closed.txt"
    closed.write_text("x\n")
    closed.chmod(0)
    failed = tracelake("run", folder, "--lake", tmp_path / "lake", "--fail-on", "faults")
    assert failed.code == 5
    assert "closed.txt: the file cannot be read" in failed.err


def test_a_file_that_cannot_be_read_is_named_and_fails_the_gate(
    tracelake: Command, tmp_path: Path
) -> None:
    folder = write(tmp_path / "in", {trace_name(0, world=1): trace(0, steps=2)})
    (folder / "gone.log").symlink_to("gone.log")  # in a circle
    (folder / "latest.log").symlink_to("nowhere")
    lake = tmp_path / "lake"
    arguments = ("run", folder, "--lake", lake, "--fail-on", "faults")
    first = tracelake(*arguments)
    assert first.code == 5
    assert "gone.log" in first.err
    assert "gone.log: the file cannot be read" in first.err
    (found,) = ask(tracelake, Lake.open(lake), "FROM findings")
    assert (found["run_id"], found["kind"], found["subject"]) == (None, "unreadable", "gone.log")
    # It fails as long as it cannot be read, and no longer.
    assert tracelake(*arguments).code == 5
    (folder / "gone.log").unlink()
    mended = tracelake(*arguments)
    assert mended.code == 0
    # What a link no longer leads to is no data that is lost.
    assert "skipped 1 link to nothing: latest.log" in mended.err
    assert ask(tracelake, Lake.open(lake), "SELECT reason FROM skipped") == [
        {"reason": "dangling_link"}
    ]


def test_lost_data_is_named_by_file(tracelake: Command, jobs: Lake) -> None:
    (found,) = findings_of(tracelake, jobs, "lossy")
    assert (found["kind"], found["gate"], found["subject"]) == ("unreadable", "faults", "t.txt")
    assert found["evidence"] == "t.txt: truncated, 3 times, first in line 7."
    assert found["advice"].startswith("Generate or copy the file again")


def test_a_plan_with_fewer_rows_than_declared_is_incomplete_not_unreadable(
    tracelake: Command, tmp_path: Path
) -> None:
    folder = write(tmp_path / "in", {"cut.txt": plan(3, declared=5)})
    lake = tmp_path / "lake"
    done = tracelake("run", folder, "--lake", lake, "--fail-on", "faults,incomplete")
    evidence = "The run is incomplete: cut.txt: 5 rows declared, 3 read."
    assert done.code == 5
    assert "1 gate of 2 failed\n  incomplete: 1 run\n" in done.err
    assert evidence in done.err
    assert "warning  cut: incomplete, 5 rows declared, 3 read  tracelake show " in done.out
    assert tracelake("report", "--lake", lake, "-o", tmp_path / "night.md").code == 0
    shown, listed = (
        tracelake(*words, "--lake", lake).out for words in (("show", "cut"), ("runs",))
    )
    text, page = (tmp_path / "night.md").read_text(), (lake / "report.html").read_text()
    assert all(evidence in said for said in (shown, text, page))
    told = (done.out, done.err, shown, listed, text)
    assert not any("unreadable" in said for said in told)
    assert "Data lost or unreadable" not in page


def test_a_log_without_a_step_says_so(tracelake: Command, jobs: Lake) -> None:
    (found,) = findings_of(tracelake, jobs, "begun")
    assert found["brief"] == "its log ends before the first of 10 steps"


def test_a_trace_without_a_readable_record_is_not_said_to_lack_its_size(
    tracelake: Command, tmp_path: Path
) -> None:
    write(tmp_path / "in", {"rank0.log": "rank:0:forward_step(\n"})
    tracelake("run", tmp_path / "in", "--lake", tmp_path / "lake", "--max-bad-ratio", "1")
    (found,) = ask(
        tracelake, Lake.open(tmp_path / "lake"), "FROM findings WHERE kind = 'incomplete'"
    )
    assert found["brief"] == "no record of a rank was read"
    assert found["advice"].startswith("Ingest the input again")


def iterations(first: int, last: int, day: int, *, every: int = 1, batch: int = 64) -> str:
    """A log of a job of 500 steps on a day of May."""
    return "".join(
        f" [2026-05-{day:02} 10:{step // every % 60:02}:00] iteration {step:8}/     500 |"
        f" elapsed time per iteration (ms): 500.0 | global batch size: {batch} |"
        " lm loss: 2.3E+00 |\n"
        for step in range(first, last + 1, every)
    )


BROKEN = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
SIZES = (
    "using world size: 8, data-parallel size: 4, context-parallel size: 1,"
    " tensor-model-parallel size: 2, pipeline-model-parallel size: 1\n"
)


def test_a_log_whose_job_went_on_in_a_later_one_is_no_incident(
    tracelake: Command, tmp_path: Path
) -> None:
    """Each job is a folder: its logs, and those that are incidents."""
    begun = {"slurm-1.out": iterations(1, 8, 10)}
    jobs: list[tuple[dict[str, str], set[str]]] = [
        ({**begun, "slurm-2.out": iterations(7, 20, 11)}, {"slurm-2.out"}),
        # The older files of a log have numbers, and every start may have a folder.
        (
            {
                "train.log.2.gz": iterations(1, 8, 10),
                "train.log.1": iterations(9, 20, 11),
                "train.log": iterations(21, 500, 12),
            },
            set(),
        ),
        # It was rotated while it was written: the sizes are in the older file.
        (
            {
                "train.log.1": f"{SIZES}{iterations(1, 20, 11)}",
                "train.log": iterations(21, 500, 12),
            },
            set(),
        ),
        (
            {"attempt_0/a.log": iterations(1, 8, 10), "attempt_1/a.log": iterations(9, 500, 11)},
            set(),
        ),
        # Each record is of 10 steps.
        (
            {
                "train.log": iterations(10, 100, 10, every=10),
                "train_restart.log": iterations(110, 500, 11, every=10),
            },
            set(),
        ),
        # Clocks were put back by an hour meanwhile.
        (
            {
                "train.log.1": iterations(1, 20, 11),
                "train.log": iterations(21, 500, 11).replace(" 10:", " 09:"),
            },
            set(),
        ),
        # What broke the job is to be seen to.
        (
            {"slurm-1.out": begun["slurm-1.out"] + BROKEN, "slurm-2.out": iterations(9, 500, 11)},
            {"slurm-1.out"},
        ),
    ]
    # A later job that begins at the start, trains the same steps, or goes on from elsewhere.
    for first, again in ((1, 1), (5, 5), (1, 10)):
        logs = {"slurm-1.out": iterations(first, 8, 10), "slurm-2.out": iterations(again, 20, 11)}
        jobs.append((logs, {*logs}))
    # It ran before, in another folder, under another name, or with another batch.
    for name, later in (
        ("slurm-2.out", iterations(7, 20, 9)),
        ("b/slurm-2.out", iterations(7, 20, 11)),
        ("other.out", iterations(7, 20, 11)),
        ("slurm-2.out", iterations(7, 20, 11, batch=128)),
    ):
        jobs.append(({**begun, name: later}, {*begun, name}))
    for name in ("gpt-seed{}.out", "gpt-lr{}e-4.out", "slurm-600001_{}.out"):
        tasks = {name.format(1): iterations(1, 8, 10), name.format(2): iterations(7, 20, 11)}
        jobs.append((tasks, {*tasks}))
    for number, (logs, _) in enumerate(jobs):
        # Its losses are its own: equal files would be one.
        own = {name: text.replace("2.3E", f"2.{number}E") for name, text in logs.items()}
        write(tmp_path / "archive" / f"job_{number}", own)
    lake = tmp_path / "lake"
    assert tracelake("run", tmp_path / "archive", "--lake", lake, "--quiet").code == 0
    sql = "SELECT path FROM findings JOIN sources USING (run_id) WHERE kind = 'incomplete'"
    assert {row["path"] for row in ask(tracelake, Lake.open(lake), sql)} == {
        f"job_{number}/{name}" for number, (_, left) in enumerate(jobs) for name in left
    }


def test_a_copy_of_a_log_elsewhere_changes_nothing(tracelake: Command, tmp_path: Path) -> None:
    logs = {"b/train.log": iterations(1, 50, 10), "b/train_restart.log": iterations(46, 500, 12)}
    logs |= {f"{folder}/train.log": logs["b/train.log"] for folder in ("a", "z")}
    lake = tmp_path / "lake"
    done = tracelake("run", write(tmp_path / "logs", logs), "--lake", lake, "--quiet")
    assert done.code == 0
    found = ask(tracelake, Lake.open(lake), "FROM findings WHERE kind = 'incomplete'")
    assert found == []


def test_logs_of_an_archive_have_the_names_that_they_have_in_it(
    tracelake: Command, tmp_path: Path
) -> None:
    later = iterations(7, 20, 11)
    logs = {"a/slurm-1.out": iterations(1, 8, 10), "a/slurm-2.out": later}
    logs |= {"b/first.out": iterations(1, 8, 12), "b/other.out": iterations(7, 20, 13)}
    folder = write(tmp_path / "logs", logs)
    with tarfile.open(tmp_path / "logs.tar", "w") as archive:
        archive.add(folder, "logs")
    lake = tmp_path / "lake"
    assert tracelake("run", tmp_path / "logs.tar", "--lake", lake, "--quiet").code == 0
    sql = "SELECT continued_by IS NOT NULL AS went_on FROM run_list ORDER BY run_date"
    found = ask(tracelake, Lake.open(lake), sql)
    assert [row["went_on"] for row in found] == [True, False, False, False]


def test_a_bandwidth_test_that_has_not_ended_is_named(tracelake: Command, tmp_path: Path) -> None:
    unnamed = "# nThread 1 nGpus 1 minBytes 8 \n"

    def rank(number: int, host: str) -> str:
        return f"#  Rank {number:2d} Group  0 Pid   10 on {host} device  0 [0x01] H100\n"

    def begun(name: str, *hosts: str) -> str:
        ranks = "".join(rank(number, host) for number, host in enumerate(hosts))
        return f"# Collective test starting: {name}\n{unnamed}{ranks}"

    one = begun("alltoall_perf", *"bac")
    several = begun("gather_perf", *"dcba") + begun("reduce_perf")
    at_once = unnamed * 2 + rank(0, "a") + rank(0, "b")
    names = {"one.log": one, "several.log": several, "unknown.log": begun("x"), "zero.log": at_once}
    write(tmp_path / "in", names)
    lake = tmp_path / "lake"
    assert tracelake("run", tmp_path / "in", "--lake", lake).code == 0
    sql = "SELECT evidence FROM findings WHERE kind = 'incomplete' ORDER BY run_id"
    said = tracelake("query", sql, "--lake", lake, "--format", "json")
    assert [
        row["evidence"].removeprefix("The run is incomplete: ") for row in json.loads(said.out)
    ] == [
        "its bandwidth test of all_to_all on a, b, c has not ended.",
        "2 of its bandwidth tests have not ended, the first one of gather on a, b, c and 1 more.",
        "its bandwidth test of x has not ended.",
        "2 of its bandwidth tests have not ended.",
    ]


def test_rejects_and_missing_ranks_are_findings(tracelake: Command, jobs: Lake) -> None:
    bad, partial = sorted(
        findings_of(tracelake, jobs, "bad", "partial", "played"), key=lambda row: row["run_id"]
    )
    assert (bad["run_id"], bad["kind"]) == ("bad", "rejects")
    assert bad["evidence"].startswith("Lines rejected: 2 (")
    assert partial["run_id"] == "partial"
    assert partial["evidence"] == (
        "The run is incomplete: 4 of 8 ranks were seen; missing: ranks 4-7."
    )


def test_a_pipeline_with_few_micro_batches_is_said_to_gain(tracelake: Command, jobs: Lake) -> None:
    in_job = "run_id IN (SELECT run_id FROM runs WHERE config = 'splits')"
    listed = ask(tracelake, jobs, f"FROM opportunities WHERE {in_job}")
    found = {(row["run_id"], row["kind"]): row for row in listed}
    assert set(found) == {("one", "micro_batches"), ("uneven", "split")}
    # Two stages: 1 micro-batch leaves half idle, 4 a fifth; a sample then takes 5/8 of the time.
    assert found["one", "micro_batches"]["gain_ratio"] == pytest.approx(1 - 0.5 / 0.8)
    assert found["one", "micro_batches"]["confidence"] == "theory"
    # 5 stage times at 13 in place of 4 at 16 and one at 10 ms.
    assert found["uneven", "split"]["gain_ratio"] == pytest.approx(1 - 65 / 74)
    shown = tracelake("show", "uneven", "--lake", jobs.root).out
    assert "What would make it faster" in shown
    assert "Move work away from stage 1." in " ".join(shown.split())


def test_nothing_wrong_is_said_in_so_many_words(tracelake: Command, jobs: Lake) -> None:
    assert findings_of(tracelake, jobs, "calm") == []
    assert "No problems found" in tracelake("show", "calm", "--lake", jobs.root).out
