"""Generated rank traces: the schedule agrees with theory, the text with the answers."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import prod
from pathlib import Path
from statistics import median

import pytest

from tests.synth_reading import SMALL, Line, Row, by_step, read_trace, run_of, ticks, traces
from tracelake.synth.archive import write_archive
from tracelake.synth.network import Meet, Program, run
from tracelake.synth.spec import Spec

# No communication time, no host time: what is left of a step is its schedule.
IDEAL = replace(SMALL, busbw_gbps=None, overhead_ms=0.0, gap_ms=0.0, formats=("rank_trace",))
REALISTIC = replace(
    SMALL,
    formats=("rank_trace",),
    pp=3,
    dp=2,
    layers=6,
    noise=0.05,
    busbw_gbps=0.5,
    slow_rank=1,
)


def idle_share(row: Row) -> Fraction:
    busy = row["compute_ns"] + row["data_ns"] + row["in_op_comm_ns"]
    return Fraction(row["window_ns"] - busy, row["window_ns"])


@pytest.mark.parametrize("pp", [1, 2, 3, 4])
@pytest.mark.parametrize("micro_batches", [1, 2, 3, 8, 12])
def test_bubble_is_that_of_the_formula(tmp_path: Path, pp: int, micro_batches: int) -> None:
    spec = replace(IDEAL, pp=pp, layers=pp, micro_batches=micro_batches)
    answer = run_of(write_archive(tmp_path, spec), "rank_trace")
    expected = Fraction(pp - 1, micro_batches + pp - 1)
    assert {idle_share(row) for row in answer["rank_steps"]} == {expected}
    assert answer["theory"]["bubble_ratio"] == float(expected)
    assert answer["theory"]["bubble_over_ideal_ratio"] == float(Fraction(pp - 1, micro_batches))


@pytest.mark.parametrize(("pp", "vpp", "micro_batches"), [(2, 2, 2), (2, 3, 4), (4, 2, 8)])
def test_interleaved_bubble_is_that_of_the_formula(
    tmp_path: Path, pp: int, vpp: int, micro_batches: int
) -> None:
    spec = replace(IDEAL, pp=pp, vpp=vpp, layers=pp * vpp, micro_batches=micro_batches)
    answer = run_of(write_archive(tmp_path, spec), "rank_trace")
    expected = Fraction(pp - 1, vpp * micro_batches + pp - 1)
    assert {idle_share(row) for row in answer["rank_steps"]} == {expected}
    assert answer["theory"]["bubble_ratio"] == float(expected)


@pytest.mark.parametrize(
    "spec",
    [
        REALISTIC,
        replace(REALISTIC, synchronous_steps=False, steps=3),
        replace(REALISTIC, vpp=2, micro_batches=6),
        replace(REALISTIC, experts=4, ep=2),
        replace(REALISTIC, tp=1, slow_rank=3),
    ],
    ids=["plain", "running_ahead", "interleaved", "experts", "no_tensor_parallelism"],
)
def test_the_parts_of_the_window_are_in_the_text(tmp_path: Path, spec: Spec) -> None:
    answer = run_of(write_archive(tmp_path, spec), "rank_trace")
    steps: dict[int, dict[int, list[Line]]] = defaultdict(dict)
    ranks = traces(tmp_path, answer)
    for rank, lines in enumerate(ranks):
        for step, mine in by_step(lines):
            steps[step][rank] = mine
    assert sorted(steps) == list(range(1, spec.steps + 1))
    for row in answer["rank_steps"]:
        everyone = [line for lines in steps[row["step"]].values() for line in lines]
        opens = min(line.start for line in everyone)
        closes = max(line.end for line in everyone if line.op == "backward_step")
        parts = dict.fromkeys(
            ("compute", "data", "in_op_comm", "recv", "send", "finalize", "other"), 0
        )
        before = (0, 0)
        for step, mine in by_step(ranks[row["rank"]]):
            for line in mine:
                length = max(0, min(line.end, closes) - max(line.start, opens))
                kind = line.op[:4] if line.op[:4] in {"send", "recv"} else "finalize"
                if step != row["step"]:
                    parts["other"] += 0 if (line.start, line.end) == before else length
                elif line.op in {"get_batch", "forward_step", "loss_func", "backward_step"}:
                    own = "data" if line.op == "get_batch" else "compute"
                    parts[own] += length - line.inner
                    parts["in_op_comm"] += line.inner
                else:
                    # Of a fused pair the send is printed first, and the receive is what counts.
                    parts["send"] -= length if (line.start, line.end) == before else 0
                    parts[kind] += length
                before = (line.start, line.end)
        names = {"recv": "p2p_recv", "send": "p2p_send", "other": "other_step"}
        for name, amount in parts.items():
            assert row[f"{names.get(name, name)}_ns"] == amount * 10_000, (name, row)
        assert row["window_ns"] == (closes - opens) * 10_000
        assert row["gap_ns"] == row["window_ns"] - sum(parts.values()) * 10_000


def test_passes_come_in_the_order_of_1f1b(tmp_path: Path) -> None:
    spec = replace(IDEAL, tp=1, pp=2, layers=2, micro_batches=3, steps=1)
    first, last = traces(tmp_path, run_of(write_archive(tmp_path, spec), "rank_trace"))
    assert [f"{line.fields['mg_state']}:{line.op}:{line.fields['batch_id']}" for line in first] == [
        "warmup:get_batch:0",
        "warmup:forward_step:0",
        "warmup:send_forward:0",
        "steady:get_batch:1",
        "steady:forward_step:1",
        "steady:send_forward:1",
        "steady:recv_backward:0",
        "steady:backward_step:0",
        "steady:get_batch:2",
        "steady:forward_step:2",
        "steady:send_forward:2",
        "steady:recv_backward:1",
        "steady:backward_step:1",
        "cooldown:recv_backward:2",
        "cooldown:backward_step:2",
        "finalize:dp_allreduce:0",
        "finalize:ep_allreduce:0",
        "finalize:optimizer_step:0",
    ]
    assert [f"{line.fields['mg_state']}:{line.op}" for line in last] == [
        "help:recv_forward",
        *["steady:get_batch", "steady:forward_step", "steady:loss_func", "steady:backward_step"],
        *["steady:send_backward", "steady:recv_forward"],
        *["steady:get_batch", "steady:forward_step", "steady:loss_func", "steady:backward_step"],
        *["steady:send_backward", "steady:recv_forward"],
        *["steady:get_batch", "steady:forward_step", "steady:loss_func", "steady:backward_step"],
        "steady:send_backward",
        *["finalize:dp_allreduce", "finalize:ep_allreduce", "finalize:optimizer_step"],
    ]


def test_interleaving_warms_up_for_all_chunks(tmp_path: Path) -> None:
    spec = replace(IDEAL, tp=1, pp=4, vpp=2, layers=8, micro_batches=8, steps=1)
    warmups = [
        [line.op for line in lines if line.fields["mg_state"] == "warmup"].count("forward_step")
        for lines in traces(tmp_path, run_of(write_archive(tmp_path, spec), "rank_trace"))
    ]
    # Twice the stages behind, and all chunks but one of the first four micro-batches.
    assert warmups == [2 * 3 + 4, 2 * 2 + 4, 2 * 1 + 4, 4]


def test_groups_are_those_of_megatron() -> None:
    spec = Spec(tp=2, pp=2, dp=4, ep=2, experts=4)
    assert {kind: spec.group(kind, 11) for kind in ("tp", "dp", "expert", "expert_dp")} == {
        "tp": (10, 11),
        "dp": (9, 11, 13, 15),
        "expert": (9, 11),
        "expert_dp": (11, 15),
    }
    assert spec.group("expert", 14) == (12, 14)
    assert spec.group("embedding", 11) == spec.group("embedding", 3) == (3, 11)
    assert spec.group("world", 11) == tuple(range(16))


def test_ranks_run_ahead_only_without_the_barrier(tmp_path: Path) -> None:
    together = write_archive(tmp_path / "a", REALISTIC)
    ahead = write_archive(tmp_path / "b", replace(REALISTIC, synchronous_steps=False))
    other = [
        sum(row["other_step_ns"] for row in run_of(answers, "rank_trace")["rank_steps"])
        for answers in (together, ahead)
    ]
    assert other[0] == 0
    assert other[1] > 0


def test_operations_of_a_rank_follow_each_other_and_contain_their_calls(tmp_path: Path) -> None:
    answer = run_of(write_archive(tmp_path, REALISTIC), "rank_trace")
    for lines in traces(tmp_path, answer):
        for before, after in pairwise(lines):
            assert after.start >= before.end or (after.start, after.end) == (
                before.start,
                before.end,
            )
        for line in lines:
            at = line.start
            for call in line.calls:
                assert ticks(call["timestamp"]) - ticks(call["duration"]) >= at
                at = ticks(call["timestamp"])
            assert at <= line.end


def test_collectives_end_together_and_wait_for_the_last(tmp_path: Path) -> None:
    spec = replace(REALISTIC, slow_factor=2.0)
    answer = run_of(write_archive(tmp_path, spec), "rank_trace")
    slow, twin = traces(tmp_path, answer)[1], traces(tmp_path, answer)[0]
    waits = 0
    for mine, other in zip(slow, twin, strict=True):
        for call, peer in zip(mine.calls, other.calls, strict=True):
            if call["group"] != "tp" or "async" in call["trace_src_func"]:
                continue
            assert call["timestamp"] == peer["timestamp"]
            if call["comm_func"] != "broadcast":
                waits += max(0, ticks(peer["duration"]) - ticks(call["duration"]))
    rows = [row for row in answer["rank_steps"] if row["rank"] == 0]
    assert sum(row["in_op_wait_ns"] for row in rows) == waits * 10_000 > 0


def test_bandwidth_is_that_of_the_shortest_call(tmp_path: Path) -> None:
    spec = replace(REALISTIC, experts=4, ep=2, slow_collective="all_reduce/tp")
    answer = run_of(write_archive(tmp_path, spec), "rank_trace")
    durations = defaultdict(list)
    for lines in traces(tmp_path, answer):
        for call in (call for line in lines for call in line.calls):
            count = prod(map(int, re.findall(r"\d+", call["input__shape"])))
            durations[call["comm_func"], count, call["group"], call["input__dtype"]].append(call)
    rows = {
        (row["collective"], row["size_bytes"], row["group_kind"]): row
        for row in answer["collectives"]
        if not row["overlapped"]
    }
    # Activations of 128 tokens of 64 halves; 4 counts of 8 bytes from each of 2 ranks.
    for word, count, group, dtype, key, factor in (
        ("allreduce", 8192, "tp", "float16", ("all_reduce", 16384, "tp"), 1.0),
        ("allgather", 4, "exp", "int64", ("all_gather", 64, "expert"), 0.5),
        ("all_to_all", 8192, "exp", "float16", ("all_to_all", 16384, "expert"), 0.5),
    ):
        calls = [
            call
            for call in durations[word, count, group, f"torch.{dtype}"]
            if "async" not in call["trace_src_func"]
        ]
        shortest = min(ticks(call["duration"]) for call in calls) * 10_000
        row = rows[key]
        assert row["time_ns"] == shortest
        assert row["calls"] * row["group_size"] == len(calls)
        assert row["busbw_gbps"] == pytest.approx(row["size_bytes"] / shortest * factor)
    assert rows["all_reduce", 16384, "tp"]["time_ns"] == 4 * 40_000
    assert rows["all_to_all", 16384, "expert"]["time_ns"] == 30_000


def test_a_slow_rank_stands_out_from_its_peers(tmp_path: Path) -> None:
    spec = replace(REALISTIC, noise=0.01, slow_factor=1.5, clean_runs=1)
    answers = write_archive(tmp_path, spec)
    clean, faulty = (run_of(answers, "rank_trace", index) for index in (0, 1))
    for answer, expected in ((clean, 1.0), (faulty, 1.5)):
        own: dict[int, dict[int, int]] = defaultdict(dict)
        for rank, lines in enumerate(traces(tmp_path, answer)):
            for step, mine in by_step(lines):
                own[step][rank] = sum(
                    line.end - line.start - line.inner
                    for line in mine
                    if line.op in {"forward_step", "backward_step"}
                )
        slowdowns = [times[1] / median(times[peer] for peer in (0, 2, 3)) for times in own.values()]
        rows = {row["rank"]: row for row in answer["ranks"]}
        assert rows[1]["slowdown"] == pytest.approx(median(slowdowns))
        assert rows[1]["slowdown"] == pytest.approx(expected, rel=0.02)
        assert all(row["slowdown"] < 1.05 for rank, row in rows.items() if rank != 1)
    assert [row["injected_factor"] for row in faulty["ranks"]][:3] == [None, 1.5, None]
    assert clean["slow_rank"] is None


def test_hosts_have_their_own_clocks_and_folders(tmp_path: Path) -> None:
    spec = replace(SMALL, formats=("rank_trace",), noise=0.05)
    one = run_of(write_archive(tmp_path / "one", spec), "rank_trace")
    spread = replace(spec, ranks_per_host=2, clock_offset_ms=1234.56)
    two = run_of(write_archive(tmp_path / "two", spread), "rank_trace")
    assert [Path(file["path"]).parent.name for file in two["files"]] == ["node0"] * 2 + [
        "node1"
    ] * 2
    assert one["rank_steps"] == two["rank_steps"]
    for rank, (here, there) in enumerate(
        zip(traces(tmp_path / "one", one), traces(tmp_path / "two", two), strict=True)
    ):
        assert {b.end - a.end for a, b in zip(here, there, strict=True)} == {rank // 2 * 123456}


@pytest.mark.parametrize("drift_ppm", [800, -800])
def test_stamps_of_a_host_drift_and_durations_do_not(tmp_path: Path, drift_ppm: int) -> None:
    spec = replace(SMALL, formats=("rank_trace",), noise=0.05, ranks_per_host=2, steps=8)
    steady = run_of(write_archive(tmp_path / "steady", spec), "rank_trace")
    drifting = replace(spec, clock_drift_ppm=float(drift_ppm), clock_offset_ms=0.5)
    drifts = run_of(write_archive(tmp_path / "drifts", drifting), "rank_trace")
    assert steady["rank_steps"] == drifts["rank_steps"]
    readings = [
        [(line.fields, line.end, line.fields.pop("timestamp")) for line in lines]
        + [
            (call, ticks(call["timestamp"]), call.pop("timestamp"))
            for line in lines
            for call in line.calls
        ]
        for lines in (*traces(tmp_path / "steady", steady), *traces(tmp_path / "drifts", drifts))
    ]
    origin = min(end - ticks(told["duration"]) for told, end, _ in readings[0]) - 5
    for rank in range(4):
        here, there = readings[rank], readings[4 + rank]
        assert [told for told, *_ in here] == [told for told, *_ in there]
        for (_, true, _), (_, read, _) in zip(here, there, strict=True):
            gained = (true - origin) * drift_ppm * (rank // 2) / 1e6
            assert abs(read - true - 50 * (rank // 2) - gained) <= 0.5


def test_clocks_are_told_beside_rank_0s(tmp_path: Path) -> None:
    spec = replace(
        SMALL,
        formats=("rank_trace",),
        ranks_per_host=3,
        clock_offset_ms=-1.25,
        clock_drift_ppm=40.0,
    )
    answer = run_of(write_archive(tmp_path / "two", spec), "rank_trace")
    names = ("rank", "host", "offset_ms", "drift_ppm")
    assert [tuple(row[name] for name in names) for row in answer["clocks"]] == [
        *((rank, "node0", 0.0, 0.0) for rank in range(3)),
        (3, "node1", -1.25, 40.0),
    ]
    folders = [Path(file["path"]).parent.name for file in answer["files"]]
    assert folders == [row["host"] for row in answer["clocks"]]
    alone = run_of(write_archive(tmp_path / "one", replace(SMALL, ranks_per_host=8)), "rank_trace")
    assert {row["host"] for row in alone["clocks"]} == {None}


@pytest.mark.parametrize("vpp", [1, 2])
def test_busy_time_by_phase_is_in_the_text(tmp_path: Path, vpp: int) -> None:
    spec = replace(REALISTIC, micro_batches=6, vpp=vpp)
    answer = run_of(write_archive(tmp_path, spec), "rank_trace")
    busy: dict[tuple[int, int, str], int] = defaultdict(int)
    for rank, lines in enumerate(traces(tmp_path, answer)):
        for step, mine in by_step(lines):
            for line in mine:
                if line.op in {"get_batch", "forward_step", "loss_func", "backward_step"}:
                    busy[step, rank, line.fields["mg_state"]] += line.end - line.start
    assert {phase for _, _, phase in busy} == {"warmup", "steady", "cooldown"}
    for row in answer["rank_steps"]:
        found = {name: row[f"{name}_ns"] for name in ("warmup", "steady", "cooldown")}
        assert found == {name: busy[row["step"], row["rank"], name] * 10_000 for name in found}
        assert sum(found.values()) == row["compute_ns"] + row["data_ns"] + row["in_op_comm_ns"]


def test_a_receive_waits_until_its_sender_starts(tmp_path: Path) -> None:
    answer = run_of(write_archive(tmp_path, REALISTIC), "rank_trace")
    ranks = [dict(by_step(lines)) for lines in traces(tmp_path, answer)]
    block = REALISTIC.tp * REALISTIC.dp

    def starts(rank: int, step: int, op: str) -> list[int]:
        return [line.start for line in ranks[rank][step] if line.op == op]

    for row in answer["rank_steps"]:
        rank, step = row["rank"], row["step"]
        pairs = [
            pair
            for way, sender in (("forward", rank - block), ("backward", rank + block))
            if 0 <= sender < REALISTIC.world_size
            for pair in zip(
                starts(rank, step, f"recv_{way}"), starts(sender, step, f"send_{way}"), strict=True
            )
        ]
        waited = sum(max(0, sent - received) for received, sent in pairs)
        assert row["recv_wait_ns"] == waited * 10_000
    assert any(row["recv_wait_ns"] for row in answer["rank_steps"])


def test_a_simulated_run_has_no_messages_and_no_phases(tmp_path: Path) -> None:
    spec = replace(SMALL, simulated=True, ranks_per_host=2, clock_offset_ms=5.0)
    answers = write_archive(tmp_path, replace(spec, formats=("rank_trace",)))
    answer = run_of(answers, "rank_trace", 1)
    assert answer["simulated"] is True
    lines = read_trace(tmp_path / answer["files"][0]["path"])
    assert {line.fields["mg_state"] for line in lines} == {"None"}
    assert not [line for line in lines if line.op.startswith(("send", "recv"))]
    placeholders = [line for line in lines if line.op.endswith("_allreduce")]
    assert {(line.fields["duration"], line.fields["timestamp"]) for line in placeholders} == {
        ("0", "0")
    }
    calls = [call for line in lines for call in line.calls]
    assert {call["duration"] for call in calls} == {"0.0"}
    assert {call["trace_src_func"] for call in calls} == {"_broadcast", "_reduce", "allreduce"}


def test_lines_look_like_those_of_real_traces(tmp_path: Path, corpus: Path) -> None:
    def shape(text: str) -> str:
        return re.sub(r"\d+", "0", re.sub(r"float\d+", "float", text))

    def heads_and_calls(paths: list[Path]) -> set[str]:
        shapes = set()
        for line in (line for path in paths for line in path.read_text().splitlines()):
            head, calls = line.split("sub_operations=")
            shapes.add(shape(re.sub(r"mg_state=\w+", "mg_state=", head)))
            shapes |= {shape(call) for call in re.findall(r"'[^']*'", calls)}
        return shapes

    real = heads_and_calls(sorted((corpus / "rank_trace").glob("*tp2*/*.txt")))
    spec = replace(SMALL, simulated=True, formats=("rank_trace",))
    write_archive(tmp_path, spec)
    assert heads_and_calls(sorted(tmp_path.rglob("wd*.txt"))) <= real


def test_a_schedule_that_never_ends_is_told() -> None:
    def waits(key: str) -> Program:
        yield Meet(key)

    with pytest.raises(RuntimeError, match=r"forever: \[0, 1\]"):
        run({0: waits("a"), 1: waits("b")})
