"""Traces of the PyTorch profiler that no real file shows: in one line, damaged, of odd events."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.conftest import Command
from tests.golden_cases import GOLDEN, render
from tests.lakes import asked, rows
from tests.parsing import parse
from tests.traces import write
from tracelake.ingest.run_row import is_complete

_HEAD = '{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": ['
# Pieces of JSON that change what an event is, or make it no event.
_PIECES = (
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\n", b" ", b"\xe9", b"\x00", b"-", b"0"),
    *(b"1e3", b".5", b"NaN", b"-Infinity", b"null", b'\\"', b"\\u0041", b"\\x", b'"args": 1, '),
    *(b'"ts": "7", ', b'"stream": -1, ', b'"ph": "X", ', b'"name": "nccl", ', b"kernel", b"0" * 30),
)


def event(number: int, **more: object) -> dict[str, Any]:
    """A kernel."""
    return {
        "ph": "X",
        "cat": "kernel",
        "name": f"k{number % 3}",
        "ts": number * 10 + 0.25,
        "dur": 2.5,
        "args": {"stream": 7},
        **more,
    }


def test_a_document_of_one_long_line_is_read_whole(tracelake: Command, tmp_path: Path) -> None:
    events = [event(i, args={"stream": 7, "filler": "x" * 4000}) for i in range(9000)]
    text = _HEAD + ",".join(json.dumps(e, separators=(",", ":")) for e in events) + "]}"
    assert len(text) > 2 * (16 << 20)
    (tmp_path / "trace.json").write_text(text)
    lake = tmp_path / "lake"
    assert tracelake("ingest", tmp_path / "trace.json", "--lake", lake).code == 0
    assert rows(lake, "sources", "lines, row_lines, rejected, rows") == [(1, 1, 0, 9000)]
    found = rows(lake, "ops", "op, start_ns, duration_ns, stream, seq", "ORDER BY seq")
    assert found == [(f"k{i % 3}", i * 10_000 + 250, 2500, "7", i + 1) for i in range(9000)]


def damaged(data: bytes, seed: int) -> bytes:
    """Bytes with up to 6 changes."""
    chance = random.Random(seed)
    for _ in range(chance.randrange(7)):
        at = chance.randrange(len(data))
        cut = at + chance.choice((0, 1, 1, 3, 40))
        data = data[:at] + chance.choice((b"", *_PIECES)) + data[cut:]
    return data


@pytest.mark.parametrize("seed", range(60))
def test_the_kernel_reads_what_the_decoder_reads(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = sorted(p for p in GOLDEN.glob("kineto/*/input/**/*") if p.is_file())
    data = damaged(inputs[seed % len(inputs)].read_bytes(), seed)
    if seed % 2:
        data = data.replace(b"\n", b"")
    read = render(parse("kineto", {"a.json": data}, block_size=64 << seed % 8))
    assert render(parse("kineto", {"a.json": data})) == read
    monkeypatch.setattr("tracelake.formats.kineto.events.read_events", lambda _, at, *__: at)
    assert render(parse("kineto", {"a.json": data})) == read


def test_odd_but_whole_events_are_read() -> None:
    odd = [
        '{"dur": 1, "ts": 1.5, "args": {}, "tid": 3, "name": "a\\"b", "cat": "kernel", "ph": "X"}',
        '{"ph": "X", "cat": "kernel", "name": "c", "ts": 2, "dur": 0, "args": {"x": [{"y": []}]}}',
        '{"ph": "X", "cat": "gpu_memcpy", "name": "d", "ts": 3e0, "dur": 1.0005, "args": 5}',
        '{"ph": "X", "cat": "kernel", "name": "e", "ts": 4, "dur": 1, "args": {"occ": NaN}}',
        '{"ph": "X", "cat": "kernel", "name": "f", "ts": 5, "dur": 1, "tid": 4, "ts": 6}',
    ]
    run = parse("kineto", {"a.json": (_HEAD + ",\n".join(odd) + "]}").encode()}).only
    found = [
        (row["op"], row["start_ns"], row["duration_ns"], row["stream"]) for row in run.rows("ops")
    ]
    assert found == [
        ('a"b', 1500, 1000, "3"),
        ("c", 2000, 0, None),
        ("d", 3000, 1000, None),
        ("e", 4000, 1000, None),
        ("f", 6000, 1000, "4"),
    ]
    assert run.rejects() == []


@pytest.mark.parametrize(
    "value",
    [
        *("01", "1.", ".5", "1e", "+1", "-", "tru", "nul", "Nan", "[1,]", "[,1]", "[1 2]", "[}"),
        *('{"a":1,}', '{"a"}', "{1: 2}", '{"a" 1}', r'"\x"', r'"\u12g4"', "'a'", "1 2", "]", ""),
    ],
)
def test_an_event_that_is_no_json_is_rejected_whatever_it_is(value: str) -> None:
    broken = '{"ph": "X", "cat": "cpu_op", "name": "a", "args": {"x": ' + value + '}, "ts": 1}'
    text = _HEAD + ",\n".join([json.dumps(event(0)), broken, json.dumps(event(1))]) + "]}"
    run = parse("kineto", {"a.json": text.encode()}).only
    assert [reason for *_, reason, _ in run.rejects()] == ["broken_event"]
    assert [row["op"] for row in run.rows("ops")] == ["k0", "k1"]


@pytest.mark.parametrize("block_size", [64, 1 << 20])
def test_a_message_of_a_group_without_a_description_is_read(block_size: int) -> None:
    """PyTorch before 2026 writes no value there, which is no JSON."""
    said = {"Collective name": "allreduce", "In msg nelems": 8, "dtype": "Float"}
    said |= {"Process Group Name": "3", "Process Group Description": "", "Group size": 2}
    events = [event(i, name="ncclDevKernel_AllReduce(x)", args=said) for i in range(3)]
    text = _HEAD + ",\n".join(map(json.dumps, [*events, event(3)])) + "]}"
    text = text.replace('"Process Group Description": ""', '"Process Group Description": ')
    run = parse("kineto", {"a.json": text.encode()}, block_size=block_size).only
    assert run.rejects() == []
    assert [row["op"] for row in run.rows("ops")][2:] == ["ncclDevKernel_AllReduce", "k0"]
    told = [(row["bytes"], row["raw_group"], row["group_size"]) for row in run.rows("comms")]
    assert told == [(32, "3", 2)] * 3


def test_a_frame_of_python_that_is_not_escaped_is_not_missed() -> None:
    frame = '{"ph": "X", "cat": "python_function", "name": "f("a")", "ts": 1, "dur": 1}'
    text = _HEAD + ",\n".join([json.dumps(event(0)), frame, json.dumps(event(1))]) + "]}"
    run = parse("kineto", {"rank0.pt.trace.json": text.encode()}).only
    assert (len(run.rows("ops")), run.rejects()) == (2, [])


def test_the_passes_of_a_pipeline_give_its_bubbles(tracelake: Command, tmp_path: Path) -> None:
    # Written by torch, on the CPU: see tests/kineto_traces.py. As if a device had done the passes.
    lake = tmp_path / "lake"
    passes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for rank in range(2):
        name = f"rank{rank}.pt.trace.json"
        document = json.loads((GOLDEN / "kineto" / "pipeline" / "input" / name).read_text())
        begun = 0
        for e in document["traceEvents"]:
            if e["name"].startswith("ProfilerStep#"):
                begun = int(e["name"][13:])
            if e["name"].startswith(("Forward ", "Backward ")):
                passes.setdefault((begun, rank), []).append((e["ts"], e["ts"] + e["dur"]))
                e["cat"] = "gpu_user_annotation"
        write(tmp_path / "in", {name: json.dumps(document)})
    assert tracelake("run", tmp_path / "in", "--lake", lake, "--set", "tp=1,pp=2").code == 0
    with duckdb.connect(str(lake / "warehouse.duckdb"), read_only=True) as con:
        got = con.sql(
            "SELECT step, rank, bubble_ratio, theory_bubble_ratio, reason FROM rank_bubbles"
        ).fetchall()
        sizes = con.sql("SELECT micro_batches, world_size FROM runs").fetchall()
    assert sizes == [(4, 2)]
    assert {(step, rank) for step, rank, *_ in got} == passes.keys()
    for step, rank, ratio, theory, reason in got:
        spans = passes[step, 0] + passes[step, 1]
        window = max(end for _, end in spans) - min(start for start, _ in spans)
        busy = sum(end - start for start, end in passes[step, rank])
        assert ratio == pytest.approx(1 - busy / window, abs=1e-6)
        assert (theory, reason) == (0.2, None)


def test_passes_on_the_host_wait_for_other_ranks_and_are_no_operations(
    tracelake: Command, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    traces = GOLDEN / "kineto" / "pipeline" / "input"
    done = tracelake("run", traces, "--lake", lake, "--set", "tp=1,pp=2")
    assert "No problems found" in done.out
    assert rows(lake, "faults", "name") == [("no_device_work",)] * 2
    assert rows(lake, "ops", "op") == []
    assert asked(tracelake, lake, "SELECT count(step_ms) AS n FROM step_stats") == [{"n": 2}]
    assert rows(lake, "runs", "complete") == [(True,)]


@pytest.mark.parametrize("other", ["PP:0I1", "PP:1W0", "PP:(0F1;1B2)OVERLAP_F_B"])
def test_of_a_schedule_that_splits_passes_the_kernels_are_compared(other: str) -> None:
    events = [
        event(0, cat="gpu_user_annotation", name="PP:0F1", ts=1, dur=20),
        event(0, cat="user_annotation", name=other, ts=1, dur=20),
        event(1),
    ]
    run = parse("kineto", {"a.json": (_HEAD + json.dumps(events)[1:] + "}").encode()}).only
    found = [(row["op"], row["category"], row["kind"], row["seq"]) for row in run.rows("ops")]
    assert found == [("k1", "compute", "other", 1)]
    assert run.facts.topology == {"world_size": 1}


def test_passes_are_timed_where_the_work_is_done() -> None:
    passes = [
        event(0, cat="user_annotation", name="PP:2F1", ts=1, dur=1),
        event(0, cat="gpu_user_annotation", name="PP:2F1", ts=5, dur=20),
        event(0, cat="gpu_user_annotation", name="PP:0B3", ts=30, dur=20),
        event(0, cat="gpu_user_annotation", name="PP:0SEND_F3", ts=31, dur=20),
        event(1),
    ]
    run = parse("kineto", {"a.json": (_HEAD + json.dumps(passes)[1:] + "}").encode()}).only
    found = [
        (row["op"], row["category"], row["micro_batch"], row["start_ns"], row["seq"])
        for row in run.rows("ops")
    ]
    assert found == [
        ("forward_step", "compute", 1, 5000, 1),
        ("backward_step", "compute", 3, 30_000, 3),
        ("k1", None, None, 10_250, 2),
    ]
    assert run.facts.topology == {"world_size": 1, "micro_batches": 4, "vpp": 2}


def test_a_pass_that_is_annotated_on_several_streams_counts_once_where_it_computes() -> None:
    def on(stream: int, name: str, at: float, lasts: float) -> dict[str, Any]:
        kernel = event(0, name=name, ts=at, dur=lasts, args={"stream": stream})
        note = "PP:0F1" if at < 100 else "PP:0F2"
        return {
            "pass": event(0, cat="gpu_user_annotation", name=note, ts=at, dur=lasts, tid=stream),
            "kernel": kernel,
        }

    work = [
        on(20, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 3, 60),
        on(7, "gemm", 1, 20),
        on(9, "copy", 2, 5),
        on(20, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 103, 60),
    ]
    events = [one for done in work for one in done.values()]
    run = parse("kineto", {"a.json": (_HEAD + json.dumps(events)[1:] + "}").encode()}).only
    found = [
        (row["micro_batch"], row["start_ns"], row["duration_ns"], row["stream"])
        for row in run.rows("ops")
        if row["op"] == "forward_step"
    ]
    # The second pass has no other annotation.
    assert found == [(1, 1000, 20_000, None), (2, 103_000, 60_000, None)]
    assert {row["seq"] for row in run.rows("ops")} == set(range(1, 7))


_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"


def test_a_pass_waits_for_collectives_beside_which_nothing_runs(
    tracelake: Command, tmp_path: Path
) -> None:
    """Not for messages, nor behind its end; what is hidden in part counts for the other part."""
    at_once = {"stream": 20}
    events = [
        event(0, cat="user_annotation", name="ProfilerStep#1", ts=0, dur=200),
        event(0, cat="gpu_user_annotation", name="PP:0F0", ts=0, dur=100),
        event(0, name="gemm", ts=0, dur=30),
        event(0, name=_REDUCE, ts=30, dur=10),
        event(0, name=_REDUCE, ts=45, dur=10, args=at_once),
        event(0, name="gemm", ts=40, dur=10),
        event(0, name="gemm", ts=41, dur=8, args={"stream": 9}),  # at once counts once
        event(0, name=_REDUCE, ts=55, dur=10, args=at_once),
        event(0, cat="gpu_memcpy", name="Memcpy HtoD", ts=55, dur=4),
        event(0, name="ncclDevKernel_SendRecv(x)", ts=70, dur=5)
        | {"args": {"stream": 20, "Collective name": "send"}},
        event(0, name=_REDUCE, ts=95, dur=10),
        event(0, cat="gpu_user_annotation", name="PP:0B0", ts=110, dur=50),
        event(0, name=_REDUCE, ts=120, dur=40),
    ]
    (tmp_path / "rank0.json").write_text(_HEAD + json.dumps(events)[1:] + "}")
    lake = tmp_path / "lake"
    assert tracelake("run", tmp_path / "rank0.json", "--lake", lake, "--set", "pp=1").code == 0
    (found,) = asked(tracelake, lake, "SELECT compute_ms, in_op_comm_ms FROM rank_bubbles")
    assert found["in_op_comm_ms"] == pytest.approx((10 + 5 + 6 + 5 + 40) / 1000)
    assert found["compute_ms"] == pytest.approx(0.150 - found["in_op_comm_ms"])
    assert rows(lake, "comms", "count(sub_seq)") == [(0,)]


def test_a_rank_whose_peers_wait_for_it_inside_their_passes_is_slow(
    tracelake: Command, tmp_path: Path
) -> None:
    group = {"Process Group Name": "1", "Process Group Ranks": "[0, 1, 2, 3]", "Group size": 4}
    call = {"Collective name": "allreduce", "In msg nelems": 100, "dtype": "Float", **group}
    for rank in range(4):
        events = []
        for step, (name, lasts) in itertools.product(range(4), (("F", 10_000), ("B", 20_000))):
            at, own = step * 100_000 + 2 * lasts, lasts * 3 / 2 if rank == 1 else lasts
            whole = lasts * 3 / 2 + 500
            if name == "F":
                note = f"ProfilerStep#{step}"
                events.append(event(0, cat="user_annotation", name=note, ts=at - 1, dur=90_000))
            events += [
                event(0, cat="gpu_user_annotation", name=f"PP:0{name}0", ts=at, dur=whole),
                event(0, name="gemm", ts=at, dur=own),
                event(0, name=_REDUCE, ts=at + own, dur=whole - own)
                | {"args": {"stream": 7, **call}},
            ]
        head = _HEAD.replace('"rank": 0, "world_size": 1', f'"rank": {rank}, "world_size": 4')
        (tmp_path / f"rank{rank}.json").write_text(head + json.dumps(events)[1:] + "}")
    lake = tmp_path / "lake"
    assert tracelake("run", tmp_path, "--lake", lake, "--set", "pp=1,tp=4").code == 0
    verdicts = "SELECT rank, verdict, slowdown FROM straggler_ranks ORDER BY rank"
    assert [tuple(row.values()) for row in asked(tracelake, lake, verdicts)] == [
        (0, "ok", 1.0), (1, "straggler", 1.5), (2, "ok", 1.0), (3, "ok", 1.0)
    ]  # fmt: skip
    parts = "SELECT compute_ms, in_op_comm_ms FROM rank_bubbles WHERE step = 2"
    assert [tuple(row.values()) for row in asked(tracelake, lake, f"{parts} ORDER BY rank")] == [
        (30.0, 16.0), (45.0, 1.0), (30.0, 16.0), (30.0, 16.0)
    ]  # fmt: skip


def test_steps_from_0_on_have_a_time_and_kernels_say_why_they_have_none(
    tracelake: Command, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    steps = [
        event(0, cat="user_annotation", name=f"ProfilerStep#{i}", ts=100 * i, dur=90)
        for i in range(2)
    ]
    for name, events in {"a": [*steps, event(1), event(12)], "b": [event(1)]}.items():
        path = tmp_path / "in" / name / "rank0.json"
        path.parent.mkdir(parents=True)
        path.write_text(_HEAD + json.dumps(events)[1:] + "}")
    assert tracelake("run", tmp_path / "in", "--lake", lake, "--set", "pp=1").code == 0
    with duckdb.connect(str(lake / "warehouse.duckdb"), read_only=True) as con:
        times = "SELECT split(run_id, '-')[1], step, step_ms, reason FROM step_stats ORDER BY ALL"
        windows = "SELECT DISTINCT reason FROM rank_bubbles"
        assert con.sql(times).fetchall() == [
            ("a", 0, 0.09, None),
            ("a", 1, 0.09, None),
            ("b", 0, None, "step_not_marked"),
        ]
        assert con.sql(windows).fetchall() == [("kernels_only",)]


def test_kernels_on_two_streams_at_once_are_no_fault(tracelake: Command, tmp_path: Path) -> None:
    events = [event(1, dur=9), event(1, ts=12, args={"stream": 22})]
    (tmp_path / "rank0.json").write_text(_HEAD + json.dumps(events)[1:] + "}")
    lake = tmp_path / "lake"
    assert tracelake("run", tmp_path / "rank0.json", "--lake", lake, "--set", "pp=1").code == 0
    with duckdb.connect(str(lake / "warehouse.duckdb"), read_only=True) as con:
        assert con.sql("SELECT overlap_ns > 0 FROM rank_bubbles").fetchall() == [(True,)]
    checked = tracelake("check", "--lake", lake)
    assert (checked.code, checked.out) == (0, "")


def test_a_document_made_of_the_traces_of_several_ranks_is_reported(
    tracelake: Command, tmp_path: Path
) -> None:
    def steps(process: int) -> list[dict[str, Any]]:
        return [
            event(0, cat="user_annotation", name=f"ProfilerStep#{i}", pid=process, ts=9 * i, dur=8)
            for i in range(2)
        ]

    def sent(*devices: int) -> list[dict[str, Any]]:
        return [
            event(device, name="ncclDevKernel_AllReduce(x)", args={"stream": 7}, pid=device)
            for device in devices
        ]

    documents = {
        "devices": [*steps(4), *sent(0, 1)],
        "halves": [*steps(4), event(2, pid=0), event(3, pid=1)],  # of a model on two devices
        "halves_in_text": [*steps(4), event(2, pid=0), event(3, pid=1, name='a "b"')],
        "merged": [*steps(4), *steps(5)],
        "one": [*steps(4), *sent(3, 3)],
    }
    for name, events in documents.items():
        text = _HEAD + json.dumps([*events, event(1)])[1:] + "}"
        (tmp_path / f"{name}.json").write_text(text)
    lake = tmp_path / "lake"
    assert tracelake("run", tmp_path, "--lake", lake).code == 0
    assert sorted(rows(lake, "faults", "split(run_id, '-')[1], name, severity")) == [
        (name, "merged_trace", "error")
        for name in ("devices", "halves", "halves_in_text", "merged")
    ]
    with duckdb.connect(str(lake / "warehouse.duckdb"), read_only=True) as con:
        found = con.sql("SELECT advice FROM findings WHERE kind = 'unreadable'").fetchall()
    (advice,), *_ = found  # no other copy of the file would help
    hash_of_run = advice.split()[-1]
    assert advice == f"See what it means and what helps: tracelake show {hash_of_run}"
    shown = tracelake("show", hash_of_run, "--lake", lake).out
    assert "Read the traces of the ranks themselves" in " ".join(shown.split())


def test_ranks_whose_group_is_the_whole_job_are_compared_without_options(
    tracelake: Command, tmp_path: Path
) -> None:
    ranks = list(range(4))
    group = {"pg_name": "0", "pg_desc": "mesh_dp", "pg_size": 4, "ranks": ranks}
    for rank in ranks:
        info = {"rank": rank, "world_size": 4, "pg_config": [group]}
        work = [
            piece
            for i in range(6)
            for piece in (
                event(
                    0, cat="user_annotation", name=f"ProfilerStep#{i}", ts=40_000 * i, dur=39_000
                ),
                event(0, ts=40_000 * i + 1, dur=30_000 if rank == 3 else 20_000),
            )
        ]
        document = {"schemaVersion": 1, "distributedInfo": info, "traceEvents": work}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(document))
    lake = tmp_path / "lake"
    assert tracelake("run", tmp_path, "--lake", lake).code == 0
    with duckdb.connect(str(lake / "warehouse.duckdb"), read_only=True) as con:
        found = con.sql("SELECT rank, stage, verdict FROM straggler_ranks ORDER BY rank")
        sizes = con.sql("SELECT tp, pp, dp FROM runs")
        assert sizes.fetchall() == [(1, 1, 4)]
        assert found.fetchall() == [(r, 0, "straggler" if r == 3 else "ok") for r in ranks]


def night(at: int, *, elements: int | None, step_us: int) -> str:
    """A trace of two steps that began at a date, in us, with a message of this size in each."""
    events = []
    for step in range(2):
        start = at + step * 2 * step_us
        events.append(
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1}
            | {"ts": start, "dur": step_us}
        )
        events.append(event(0, ts=start + 1, dur=step_us // 2))
        if elements is not None:
            sent = {"Collective name": "allreduce", "In msg nelems": elements, "dtype": "Float"}
            events.append(
                event(
                    0, name="ncclKernel_AllReduce", ts=start + 2 + step_us // 2, dur=50, args=sent
                )
            )
    return _HEAD + ",".join(map(json.dumps, events)) + "]}"


def test_traces_of_a_job_are_compared_by_their_dates_and_messages(
    tracelake: Command, tmp_path: Path
) -> None:
    day = 86_400_000_000
    first = 1_767_225_600_000_000  # 2026-01-01
    for job, elements in (("a", 4096), ("b", 8192), ("single", None)):
        for number in range(5):
            folder = tmp_path / "in" / f"{job}{number}"
            folder.mkdir(parents=True)
            slow = 3 if (job, number) == ("a", 4) else 1
            text = night(first + number * day, elements=elements, step_us=10_000 * slow)
            (folder / "trace.json").write_text(text)
    lake = tmp_path / "lake"
    assert tracelake("run", tmp_path / "in", "--lake", lake).code == 0
    found = tracelake(
        *("query", "--lake", lake, "--format", "json"),
        "SELECT label, h.run_date::DATE::VARCHAR AS day, h.verdict, h.reason, h.baseline_runs"
        " FROM run_history AS h JOIN runs USING (run_id) WHERE label LIKE '%4' ORDER BY label",
    )
    assert found.code == 0, found.err
    assert json.loads(found.out) == [
        {"label": "a4", "day": "2026-01-05", "verdict": "regressed", "reason": None}
        | {"baseline_runs": 4},
        {"label": "b4", "day": "2026-01-05", "verdict": "ok", "reason": None, "baseline_runs": 4},
        {"label": "single4", "day": "2026-01-05", "verdict": "not_comparable"}
        | {"reason": "config_unknown", "baseline_runs": 0},
    ]


def test_jobs_that_nothing_tells_apart_share_no_incident(
    tracelake: Command, tmp_path: Path
) -> None:
    for number, job in enumerate(("x", "y", "x")):
        folder = tmp_path / "in" / str(number) / f"job-{job}"
        folder.mkdir(parents=True)
        text = night(1_767_225_600_000_000 + number * 10**11, elements=None, step_us=100)
        head = _HEAD.replace('"world_size": 1', '"world_size": 2')
        (folder / "trace.json").write_text(text.replace(_HEAD, head))
    lake = tmp_path / "lake"
    assert tracelake("run", tmp_path / "in", "--lake", lake).code == 0
    sql = "SELECT config, kind, slow_runs FROM incidents ORDER BY config"
    found = tracelake("query", "--lake", lake, "--format", "csv", sql).out
    assert found.splitlines() == [
        '"config","kind","slow_runs"',
        '"format=kineto world_size=2 label=job-x","incomplete",2',
        '"format=kineto world_size=2 label=job-y","incomplete",1',
    ]


def test_a_rank_whose_kernels_are_slow_night_after_night_is_told(
    tracelake: Command, tmp_path: Path
) -> None:
    for night, rank in itertools.product(range(3), range(4)):
        start = 1_767_225_600_000_000 + night * 86_400_000_000
        said = f'"rank": {rank}, "world_size": 4'
        head = _HEAD.replace('"rank": 0, "world_size": 1', said)
        events = []
        for step in range(4):
            at = start + 100_000 * step
            notes = {"cat": "user_annotation", "name": f"ProfilerStep#{step}"}
            work = 40_000 if rank == 2 else 30_000
            kernel = {"Collective name": "allreduce", "In msg nelems": 9, "dtype": "Float"}
            kernel |= {"Group size": 4, "Process Group Description": "mesh_dp", "stream": 9}
            events += [
                event(0, ts=at, dur=90_000, **notes),
                event(0, ts=at + 5, dur=work),
                event(1, ts=at + 5 + work, dur=45_000 - work, name="ncclKernel_x(y)", args=kernel),
            ]
        text = head + json.dumps(events)[1:] + "}"
        write(tmp_path / "in" / f"night{night}", {f"rank{rank}.json": text})
    done = tracelake("run", tmp_path / "in", "--lake", tmp_path / "lake", "--set", "tp=1,pp=1")
    assert done.code == 0, done.err
    query = "SELECT evidence FROM findings WHERE kind = 'recurring'"
    found, *_ = asked(tracelake, tmp_path / "lake", query)
    assert found["evidence"].startswith(
        "rank 2: all_kernels took 1.33 times as long as the median of 3 peers in 3 of its latest 3"
    )


@pytest.mark.parametrize(
    ("steps", "missing"),
    [
        ({3: range(5)}, None),
        ({3: range(4)}, None),  # its trace ended a moment before that of the others
        ({3: range(3)}, "step 3 of rank 3 is missing"),
        ({3: (0, 1, 3, 4)}, "step 2 of rank 3 is missing"),
        ({1: (0, 1, 2, 4), 3: (0, 2, 3, 4)}, "step 1 of rank 3 is missing"),
    ],
)
def test_a_rank_that_lacks_steps_of_the_others_makes_its_run_incomplete(
    steps: dict[int, Any], missing: str | None, tracelake: Command, tmp_path: Path
) -> None:
    for rank in range(4):
        head = _HEAD.replace('"rank": 0, "world_size": 1', f'"rank": {rank}, "world_size": 4')
        events = [
            one
            for i in steps.get(rank, range(5))
            for one in (
                event(0, cat="user_annotation", name=f"ProfilerStep#{i}", ts=1000 * i, dur=900),
                event(0, ts=1000 * i + 5),
            )
        ]
        write(tmp_path / "in", {f"rank{rank}.json": head + json.dumps(events)[1:] + "}"})
    done = tracelake("run", tmp_path / "in", "--lake", tmp_path / "lake", "--fail-on", "incomplete")
    assert done.code == (5 if missing else 0)
    found = asked(tracelake, tmp_path / "lake", "SELECT brief FROM findings")
    assert [row["brief"] for row in found] == ([missing] if missing else [])


def test_a_rank_in_a_name_is_no_host_and_the_host_of_the_document_counts() -> None:
    at, plain = 1_767_225_600_000_000, _HEAD.replace('"distributedInfo"', '"deviceProperties"')
    hosts: dict[str, str | None] = {f"rank{by}{{}}.%d.pt.trace.json": None for by in ("", "_")}
    hosts |= {"worker_{}.%d.pt.trace.json": "n7", "gpu3_{}.%d.pt.trace.json": "n7"}
    for name, host in hosts.items():
        head = plain.replace('"sch', f'"host_name": "{host}", "sch') if host else plain
        text = (head + json.dumps(event(0)) + "]}").encode()
        files = {(name % (at + rank)).format(rank): text for rank in range(2)}
        sources = [s for one in parse("kineto", files).runs for s in one.run.sources]
        assert [s.host for s in sources] == [host] * 2
        assert [s.rank for s in sources] == ([None] * 2 if host else [0, 1])


@pytest.mark.parametrize(
    ("name", "elements", "complete"),
    [("trace.json", None, True), ("trace.json", 4096, False), ("rank3.json", None, False)],
)
def test_a_process_that_nothing_calls_one_of_several_is_the_whole_job(
    name: str, elements: int | None, *, complete: bool
) -> None:
    text = night(1_767_225_600_000_000, elements=elements, step_us=100)
    single = text.replace('"distributedInfo": {"rank": 0, "world_size": 1}', '"other": []')
    assert single != text
    facts = parse("kineto", {name: single.encode()}).facts
    assert is_complete(facts) is complete
    assert "world_size" not in facts.topology


def test_a_profile_of_one_rank_raises_no_alarm(tracelake: Command, tmp_path: Path) -> None:
    """Nothing shows that others are missing, and kernels have no passes that lack their end."""
    text = night(1_767_225_600_000_000, elements=4096, step_us=100)
    single = text.replace('"distributedInfo": {"rank": 0, "world_size": 1}', '"other": []')
    (tmp_path / "rank3.json").write_text(single)
    done = tracelake("run", tmp_path / "rank3.json", "--lake", tmp_path / "lake")
    assert "No problems found" in done.out
    shown = tracelake("show", "latest", "--lake", tmp_path / "lake")
    assert "world_size_unknown" in shown.out


def test_a_trace_without_work_of_a_device_is_whole_and_says_what_it_lacks(
    tracelake: Command, tmp_path: Path
) -> None:
    host = [event(number, cat="cpu_op", name="aten::add") for number in range(3)]
    head = _HEAD.replace(', "world_size": 1', "")
    (tmp_path / "rank0.json").write_text(head + json.dumps(host)[1:] + "}")
    lake = tmp_path / "lake"
    done = tracelake("run", tmp_path / "rank0.json", "--lake", lake)
    assert "No problems found" in done.out
    assert rows(lake, "faults", "name, severity") == [("no_device_work", "notice")]
    shown = tracelake("show", "latest", "--lake", lake).out
    assert "no device work: The trace has no work of a device" in shown
    assert "all metrics that this input supports were computed" in shown


def test_times_count_from_the_base_of_the_document_and_tell_the_starts_of_a_job() -> None:
    head = _HEAD.replace('"schemaVersion"', '"baseTimeNanoseconds": 1767225600000000000, "x"')
    day = 86_400_000_000

    def trace(rank: int, ts: int) -> bytes:
        return (
            head.replace('"rank": 0', f'"rank": {rank}') + json.dumps(event(0, ts=ts)) + "]}"
        ).encode()

    runs = parse(
        "kineto",
        {
            "n1_9.1767225600.pt.trace.json": trace(0, 5),
            "n1_3.1767312000.pt.trace.json": trace(0, day),
            "n2_5.1767312001.pt.trace.json": trace(1, day + 1_000_000),
        },
    ).runs
    told = [[(s.path[:4], str(s.stamp)) for s in one.run.sources] for one in runs]
    assert sorted(told) == [
        [("n1_3", "2026-01-02 00:00:00"), ("n2_5", "2026-01-02 00:00:01")],
        [("n1_9", "2026-01-01 00:00:00")],
    ]


def test_a_trace_whose_head_has_no_event_has_the_time_of_its_name(
    tracelake: Command, tmp_path: Path
) -> None:
    name = "node7_4711.1767312000235157909.pt.trace.json"
    long = _HEAD.replace('"world_size": 1', f'"world_size": 1, "groups": "{"y" * (1 << 16)}"')
    (tmp_path / name).write_text(long + json.dumps(event(0, ts=1_767_225_600_000_000)) + "]}")
    assert tracelake("ingest", tmp_path / name, "--lake", tmp_path / "lake").code == 0
    found = rows(tmp_path / "lake", "runs", "run_date::VARCHAR, date_source")
    assert found == [("2026-01-02 00:00:00", "name")]


@pytest.mark.parametrize(
    "name",
    [
        "profile_{}.json",
        "1767225600.25-TP-{}.trace.json",
        "dp0_pp0_tp{}_ep{}_rank{}.176722560023515790{}.pt.trace.json",
    ],
)
def test_names_may_say_ranks_in_the_words_of_other_programs(name: str) -> None:
    """The traces say which rank they are of; two windows of a job have names of their own."""

    def trace(rank: int) -> bytes:
        head = _HEAD.replace('"rank": 0, "world_size": 1', f'"rank": {rank}, "world_size": 4')
        return (head + json.dumps(event(rank, ts=1_767_225_600_000_000 + rank)) + "]}").encode()

    files = {name.format(*[rank] * 4): trace(rank) for rank in range(4)}
    files |= {f"step{n}_rank{rank}.json": trace(rank) for n in (10, 20) for rank in range(2)}
    found = [[source.rank for source in one.run.sources] for one in parse("kineto", files).runs]
    assert sorted(found) == [[0, 1], [0, 1], [0, 1, 2, 3]]


def test_kernels_that_exchange_data_without_a_library_are_communications(
    tracelake: Command, tmp_path: Path
) -> None:
    names = {
        "void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*, int)": "all_reduce",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(int)": (
            "all_reduce"
        ),
        "void <unnamed>::two_shot_all_reduce_kernel_inplace<float>(float*)": "all_reduce",
        "void flashinfer::allreduce_fusion_kernel_oneshot<float>(float)": "all_reduce",
        "void deep_ep::intranode::notify_dispatch<(int)2>(int*)": "all_to_all",
        "void hybrid_ep::combine_kernel<(int)8>(int*)": "all_to_all",
        "void quickreduce::allreduce_prototype_twoshot<float>(float*)": "all_reduce",
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8>(int)": "all_reduce",
        "void tensorrt_llm::kernels::lowPrecisionTwoShotAllReduceKernel<8>(int)": "all_reduce",
        "void userbuffers_fp16_sum_inplace_gpu_rw_ag<2>(int, int)": None,
        "kuserbuffers_pushsend(int*, int*, int4*, int4*, int)": "send",
        "void mscclpp::allreduce7<__half>(__half*)": "all_reduce",
        "oneccl_reduce_base<float, 2, 16>": None,
        "void nvshmemi_barrier_kernel<1>(int)": None,
        "void c10d::nvshmem_extension::allToAllV<2>(void*)": "all_to_all",
        "Memcpy PtoP (Device -> Device)": None,
        "void deep_ep::layout::get_dispatch_layout<256>(long*)": "compute",
        "void cross_entropy_reduce<float>(float*)": "compute",
    }
    kinds = [(name, "gpu_memcpy" if "Memcpy" in name else "kernel") for name in names]
    events = [event(10 * i, name=name, cat=kind) for i, (name, kind) in enumerate(kinds)]
    events += [  # not plain
        event(10 * i + 5, name=name, cat=kind, args=7) for i, (name, kind) in enumerate(kinds)
    ]
    (tmp_path / "rank0.json").write_text(_HEAD + json.dumps(events)[1:] + "}")
    lake = tmp_path / "lake"
    assert tracelake("run", tmp_path / "rank0.json", "--lake", lake).code == 0
    told = [collective for collective in names.values() if collective != "compute"]
    found = rows(lake, "comms", "collective, bytes", "ORDER BY line, seq")
    assert sorted(found, key=str) == sorted([(one, None) for one in told * 2], key=str)
    with duckdb.connect(str(lake / "warehouse.duckdb"), read_only=True) as con:
        sql = "SELECT compute_ms, exposed_comm_ms FROM device_steps"
        assert con.sql(sql).fetchall() == [(0.01, 0.08)]


@pytest.mark.parametrize(
    ("told", "groups", "options", "verdicts"),
    [
        ("allreduce", 1, [], ["ok", "straggler", "ok", "ok"]),
        ("all_to_allv", 1, [], ["not_comparable"] * 4),
        ("send 0->1", 1, [], ["not_comparable"] * 4),
        ("allreduce", 2, [], ["not_comparable"] * 4),
        ("allreduce", 1, ["--set", "pp=4"], ["not_comparable"] * 4),
    ],
)
def test_ranks_that_reduce_over_one_group_of_all_are_peers(
    told: str,
    groups: int,
    options: list[str],
    verdicts: list[str],
    tracelake: Command,
    tmp_path: Path,
) -> None:
    listed = [{"pg_name": str(i), "pg_desc": "default_pg", "pg_size": 4} for i in range(groups)]
    args = {"Collective name": told, "Process Group Name": "0", "stream": 9}
    for rank in range(4):
        events = [
            made
            for i in range(1, 6)
            for made in (
                event(
                    0, cat="user_annotation", name=f"ProfilerStep#{i}", ts=50_000 * i, dur=49_000
                ),
                event(0, ts=50_000 * i + 5, dur=20_000 + 9000 * (rank == 1)),
                event(0, name="ncclDevKernel_X(x)", ts=50_000 * i + 30_000, dur=9000, args=args),
                event(0, cat="gpu_memcpy", name="Memcpy PtoP (Device -> Device)", ts=50_000 * i),
            )
        ]
        info = {"rank": rank, "world_size": 4, "pg_config": listed}
        document = {"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(document))
    lake = tmp_path / "lake"
    assert tracelake("run", tmp_path, "--lake", lake, *options).code == 0
    found = asked(tracelake, lake, "SELECT verdict FROM straggler_ranks ORDER BY rank")
    assert [row["verdict"] for row in found] == verdicts


@pytest.mark.parametrize(
    ("device", "lasted"), [("AMD Instinct MI355X", 30_000), ("NVIDIA H100", 90_000)]
)
def test_work_of_amd_ends_before_later_work_of_its_stream_has_ended(
    device: str, lasted: int
) -> None:
    """ROCm says after a long stall that a kernel lasted until then; what communicates may."""
    events = [
        event(0),
        event(1, dur=90),
        event(3, dur=90.5, name="ncclDevKernel_Generic_4(x)"),
        event(4),
        event(5, dur=25),
        event(6, args={"stream": 8}, dur=30),
    ]
    head = _HEAD.replace(' "dist', f' "deviceProperties": [{{"name": "{device}"}}], "dist')
    run = parse("kineto", {"a.json": (head + json.dumps(events)[1:] + "}").encode()}).only
    found = {row["start_ns"]: row["duration_ns"] for row in run.rows("ops")}
    assert found == {
        250: 2500,
        10_250: lasted,
        30_250: 90_500,
        40_250: 2500,
        50_250: 25_000,
        60_250: 30_000,
    }


def test_traces_of_early_versions_have_steps_and_copies_in_categories_of_their_own() -> None:
    """Before PyTorch 1.12 a step is an operator, and an id is written small."""
    events = [
        *({"ph": "X", "cat": "Operator", "name": f"ProfilerStep#{i}", "ts": 100 * i, "dur": 90}
        for i in range(2)),
        {"ph": "X", "cat": "Operator", "name": "record_param_comms", "ts": 1, "dur": 1}
        | {"args": {"External id": 4, "Input Dims": [[8, 4]], "Input type": ["float"]}},
        event(1, cat="Kernel"),
        event(11, cat="Kernel", name="ncclKernel_AllReduce", args={"external id": 4}),
        event(12, cat="Memcpy", name="Memcpy HtoD"),
        event(13, cat="Memset", name="Memset"),
    ]  # fmt: skip
    plain = _HEAD + json.dumps(events)[1:] + "}"
    for text in (plain, plain.replace('"dur":', '"du\\u0072":')):  # decoded one by one
        run = parse("kineto", {"rank0.json": text.encode()}).only
        assert [(r["step"], r["step_time_ns"]) for r in run.rows("train_steps")] == [
            (0, 90_000),
            (1, 90_000),
        ]
        assert [(r["op"], r["category"], r["step"]) for r in run.rows("ops")] == [
            ("k1", "compute", 0),
            ("ncclKernel_AllReduce", "collective", 1),
            ("Memcpy HtoD", None, 1),
            ("Memset", None, 1),
        ]
        assert [(r["collective"], r["bytes"]) for r in run.rows("comms")] == [("all_reduce", 128)]
