"""A run as a Chrome trace: the format's rules, and the rows that the trace was made of."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.conftest import Command
from tests.lakes import few_models, ingest_and_build
from tests.tiny_lakes import commit_run
from tests.traces import op, trace, trace_name, write
from tracelake.base.errors import UsageError
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.output.chrome_trace import queries, selection
from tracelake.output.chrome_trace.selection import parse_span
from tracelake.output.chrome_trace.trace import write_timeline
from tracelake.synth.archive import write_archive
from tracelake.synth.spec import Spec
from tracelake.warehouse.warehouse import open_warehouse

Event = dict[str, Any]
Span = tuple[int, int]

SLOW_RUN = "wd8_tp2_pp2_numl4_bs1_gpt2bpetokenizer-173a3a41"
SIMULATED = "wd8_tp2_pp2_numl4_bs1_gpt2bpetokenizer-803d817a"


class Trace:
    """A timeline that was read back, with times in whole nanoseconds."""

    def __init__(self, content: bytes) -> None:
        read = json.loads(content, parse_float=Decimal)
        assert set(read) == {"traceEvents", "displayTimeUnit", "otherData"}
        self.other: dict[str, Any] = read["otherData"]
        self.events: list[Event] = read["traceEvents"]
        for event in self.events:
            for key in ("ts", "dur"):
                if key in event:
                    event[key] = nanoseconds(event[key])
        self.slices = [event for event in self.events if event["ph"] == "X"]

    def of(self, *kinds: str) -> list[Event]:
        """Slices of these categories, without the transfers inside receives."""
        return [s for s in self.slices if s["cat"] in kinds and s["name"] != "transfer"]

    def named(self, what: str) -> dict[tuple[int, int | None], str]:
        """Names of processes or threads."""
        return {
            (event["pid"], event.get("tid")): event["args"]["name"]
            for event in self.events
            if event["ph"] == "M" and event["name"] == what
        }

    def flows(self) -> dict[int, list[Event]]:
        """Flow events by id, in order of time."""
        found = defaultdict(list)
        for event in self.events:
            if event["cat" if "cat" in event else "ph"] == "flow":
                found[event["id"]].append(event)
        return {key: sorted(events, key=lambda e: e["ts"]) for key, events in found.items()}

    def touched(self, flow: Event) -> Event:
        """The deepest slice that a flow event is on."""
        on = [
            s
            for s in self.slices
            if s["tid"] == flow["tid"]
            and (s["ts"] <= flow["ts"] < s["ts"] + s["dur"] or s["ts"] == flow["ts"])
        ]
        return max(on, key=lambda s: s["ts"])


def nanoseconds(us: int | Decimal) -> int:
    whole = us * 1000
    assert whole == int(whole), us
    return int(whole)


def span(event: Event) -> Span:
    return event["ts"], event["ts"] + event["dur"]


def place(event: Event) -> tuple[int, int, int | None]:
    """Rank, operation and sub-operation of a slice."""
    return event["pid"] - 1, event["args"]["seq"], event["args"].get("sub_seq")


@pytest.fixture(scope="module")
def lake(sample_lake: Lake) -> Lake:
    return sample_lake


@pytest.fixture(scope="module")
def con(lake: Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_warehouse(lake) as opened:
        yield opened


def drawn(lake: Lake, run: str, folder: Path, **chosen: Any) -> Trace:
    out = folder / "trace.json"
    write_timeline(lake, run, out, **chosen)
    return Trace(out.read_bytes())


@pytest.fixture(scope="module")
def slow(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return drawn(lake, SLOW_RUN, tmp_path_factory.mktemp("slow"))


def drawable_models() -> AbstractContextManager[None]:
    return few_models("rank_bubbles", "collective_calls", "clock_offsets")


def drawable(archive: Path, lake: Path) -> Lake:
    """A lake with what a timeline is drawn from."""
    with drawable_models():
        return ingest_and_build(archive, lake)


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Lake]:
    """The same job on one host, and on two whose clocks are 3 ms and 40 ppm apart."""
    on_one = Spec(("rank_trace",), pp=2, layers=2, micro_batches=4, steps=2, runs=1, clean_runs=0)
    on_two = replace(on_one, ranks_per_host=2, clock_offset_ms=3.0, clock_drift_ppm=40.0)
    lakes: dict[bool, Lake] = {}
    for hosts, spec in ((False, on_one), (True, on_two)):
        folder = tmp_path_factory.mktemp("apart")
        write_archive(folder / "in", spec)
        lakes[hosts] = drawable(folder / "in", folder / "lake")
    return lakes


# --- the rules of the format -----------------------------------------------------------------


def check_format(trace: Trace) -> None:
    processes, threads = trace.named("process_name"), trace.named("thread_name")
    pids = {pid for pid, _ in processes}
    owners: dict[int, int] = {}
    for event in trace.events:
        assert event["ph"] in {"M", "X", "s", "t", "f"}
        assert event["pid"] in pids
        if event["ph"] != "M":
            assert (event["pid"], event["tid"]) in threads
        if "tid" in event:
            # Readers that know a thread by its number alone must not mix up two processes.
            assert owners.setdefault(event["tid"], event["pid"]) == event["pid"]
            assert event["tid"] not in pids
    by_thread = defaultdict(list)
    for slice_ in trace.slices:
        assert slice_["ts"] >= 0
        assert slice_["dur"] >= 0
        assert slice_["name"]
        by_thread[slice_["tid"]].append(slice_)
    for slices in by_thread.values():
        open_ends: list[int] = []
        for slice_ in sorted(slices, key=lambda s: (s["ts"], -s["dur"])):
            start, end = span(slice_)
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or (end <= open_ends[-1] and slice_["name"] == "transfer")
            open_ends.append(end)
    for events in trace.flows().values():
        assert [e["ph"] for e in events] == ["s", *["t"] * (len(events) - 2), "f"]
        assert len({(e["name"], e["cat"]) for e in events}) == 1
        assert all(a["ts"] < b["ts"] for a, b in pairwise(events))
        assert all(("bp" in e) == (e["ph"] == "f") for e in events)
        touched = [trace.touched(event) for event in events]
        assert len({s["args"]["call"] for s in touched}) == 1
        # Perfetto takes the slice that starts first for the one that an arrow leaves.
        assert all(a["ts"] <= b["ts"] for a, b in pairwise(touched))


@pytest.mark.parametrize("run", [SLOW_RUN, SIMULATED, "8c53c861"])
def test_a_trace_follows_the_format(lake: Lake, tmp_path: Path, run: str) -> None:
    check_format(drawn(lake, run, tmp_path))


def test_a_trace_of_hosts_follows_the_format(apart: dict[bool, Lake], tmp_path: Path) -> None:
    check_format(drawn(apart[True], "latest", tmp_path))


def test_real_traces_follow_the_format(corpus: Path, tmp_path: Path) -> None:
    lake = drawable(corpus / "rank_trace", tmp_path / "lake")
    with open_warehouse(lake) as con:
        runs = con.execute("SELECT DISTINCT run_id FROM clock_offsets ORDER BY 1").fetchall()
    assert runs
    for (run_id,) in runs[:: max(1, len(runs) // 6)]:
        check_format(drawn(lake, run_id, tmp_path))


# --- slices are the rows ---------------------------------------------------------------------


def test_every_operation_is_a_slice(slow: Trace, con: duckdb.DuckDBPyConnection) -> None:
    origin = slow.other["origin_ns"]
    for table, sub, kinds in (
        ("ops", "NULL", ("compute", "p2p", "collective", "optimizer", "data")),
        ("(FROM comms WHERE sub_seq IS NOT NULL)", "sub_seq", ("in_op",)),
    ):
        rows = con.execute(
            f"SELECT rank, seq, {sub}, start_ns - $2, end_ns - $2 FROM {table} WHERE run_id = $1",
            [SLOW_RUN, origin],
        ).fetchall()
        assert len(rows) > 400
        assert {place(s): span(s) for s in slow.of(*kinds)} == {
            (rank, seq, sub_seq): (start, end) for rank, seq, sub_seq, start, end in rows
        }
        assert len(slow.of(*kinds)) == len(rows)
    assert min(s["ts"] for s in slow.slices) == 0


def test_a_slice_says_what_the_rows_say(slow: Trace, con: duckdb.DuckDBPyConnection) -> None:
    rows = con.execute(
        "SELECT c.rank, c.seq, c.sub_seq, c.call, c.algbw_gbps, c.busbw_gbps, c.skew_ms, c.wait_ms,"
        " c.group_size, m.bytes, m.dtype, m.shape, m.group_kind, m.tensor, m.micro_batch, m.step,"
        " c.skew_reason, c.reason"
        " FROM collective_calls AS c JOIN comms AS m ON m.run_id = c.run_id AND m.rank = c.rank"
        " AND m.seq = c.seq AND m.sub_seq IS NOT DISTINCT FROM c.sub_seq WHERE c.run_id = ?",
        [SLOW_RUN],
    )
    names = [column[0] for column in rows.description or ()][3:]
    slices = {place(s): s["args"] for s in slow.of("in_op", "p2p", "collective")}
    seen = 0
    for rank, seq, sub_seq, *values in rows.fetchall():
        given = {n: v for n, v in zip(names, values, strict=True) if v is not None}
        args = slices[rank, seq, sub_seq]
        assert {n: plain(args[n]) for n in given} == given
        assert not [n for n in names if n in args and n not in given]
        seen += 1
    assert seen == len(slices)


def plain(value: object) -> object:
    return float(value) if isinstance(value, Decimal) else value


def test_a_slice_leads_to_its_line(slow: Trace, sample: Path) -> None:
    for slice_ in slow.of("compute", "p2p")[::17]:
        path, _, line = slice_["args"]["source"].rpartition(":")
        text = (sample / path).read_text().splitlines()[int(line) - 1]
        assert text.startswith(f"rank:{slice_['pid'] - 1}:{slice_['name']}(")


def test_waits_are_those_of_the_model(slow: Trace, con: duckdb.DuckDBPyConnection) -> None:
    rows = con.execute(
        "SELECT rank, call, last_rank, (wait_ms * 1e6)::BIGINT FROM collective_calls"
        " WHERE run_id = ? AND wait_ms > 0",
        [SLOW_RUN],
    ).fetchall()
    assert len(rows) > 100
    waits = [
        (s["pid"] - 1, s["args"]["call"], s["args"]["last_rank"], s["dur"])
        for s in slow.of("waiting")
    ]
    assert sorted(waits) == sorted(rows)
    starts = {(s["pid"], s["args"].get("call")): s["ts"] for s in slow.of("in_op", "p2p")}
    for wait in slow.of("waiting"):
        key = wait["pid"], wait["args"]["call"]
        assert starts.get(key, wait["ts"]) == wait["ts"]


def test_steps_and_windows_are_those_of_the_model(
    slow: Trace, con: duckdb.DuckDBPyConnection
) -> None:
    bubbles = con.execute(
        "SELECT rank, step, bubble_ratio, window_ns FROM rank_bubbles WHERE run_id = ?", [SLOW_RUN]
    ).fetchall()
    steps = {(s["pid"] - 1, s["args"]["step"]): s for s in slow.of("step")}
    windows = {s["args"]["step"]: s for s in slow.of("window")}
    assert (len(steps), len(windows)) == (32, 4)
    for rank, step, ratio, window_ns in bubbles:
        assert plain(steps[rank, step]["args"]["bubble_ratio"]) == ratio
        assert windows[step]["dur"] == window_ns
        its = [s for s in slow.slices if s["args"].get("step") == step and "seq" in s["args"]]
        assert windows[step]["ts"] == min(s["ts"] for s in its)
        own = [s for s in its if s["pid"] - 1 == rank]
        assert span(steps[rank, step]) == (
            min(s["ts"] for s in own),
            max(s["ts"] + s["dur"] for s in own),
        )


def test_members_of_a_call_are_linked(slow: Trace, con: duckdb.DuckDBPyConnection) -> None:
    rows = con.execute(
        "SELECT call, list(rank ORDER BY rank), bool_or(collective = 'send') FROM collective_calls"
        " WHERE run_id = ? AND matched GROUP BY call",
        [SLOW_RUN],
    ).fetchall()
    linked = {}
    for events in slow.flows().values():
        slices = [slow.touched(event) for event in events]
        linked[slices[0]["args"]["call"]] = slices
    assert {call: sorted(s["pid"] - 1 for s in its) for call, its in linked.items()} == {
        call: ranks for call, ranks, _ in rows
    }
    messages = [linked[call] for call, _, message in rows if message]
    assert len(messages) == 64
    for sent, received in messages:
        assert sent["name"].startswith("send_")
        assert received["name"].startswith(("recv_", "transfer"))
    assert slow.other["linked_calls"] == len(rows)


def test_processes_are_ranks_in_order_and_threads_are_kinds(slow: Trace) -> None:
    names = slow.named("process_name")
    assert names[9, None] == "pipeline"
    assert names[4, None] == "rank 3 · stage 0"
    order = {
        e["pid"]: e["args"]["sort_index"] for e in slow.events if e["name"] == "process_sort_index"
    }
    assert sorted(order, key=lambda pid: order[pid]) == [9, *range(1, 9)]
    threads = {name for (pid, _), name in slow.named("thread_name").items() if pid == 1}
    assert threads >= {
        *("steps", "compute", "communication inside operations", "p2p", "p2p (2)", "collective"),
        *("optimizer", "data", "waiting"),
    }


def test_what_the_trace_is_stands_beside_it(slow: Trace) -> None:
    other = slow.other
    assert (other["run_id"], other["ranks"], other["slices"]) == (SLOW_RUN, 8, len(slow.slices))
    assert (other["first_step"], other["last_step"]) == (1, 4)
    assert other["run"]["format"] == "rank_trace"
    assert other["notes"] == []
    assert set(other["definitions"]) == {*queries.SLICE_ARGS, *queries.STEP_ARGS}
    assert other["definitions"]["busbw_gbps"].startswith("algbw times")


# --- clocks ----------------------------------------------------------------------------------


def test_clocks_that_are_apart_are_aligned(apart: dict[bool, Lake], tmp_path: Path) -> None:
    """The same job, read from two clocks, is drawn as it is on one, as well as is known."""
    one, two = (drawn(apart[hosts], "latest", tmp_path) for hosts in (False, True))
    (clock,) = [c for c in two.other["clocks"] if c["basis"] != "shared"]
    assert 2.5 < clock["offset_ms"] < 3.5
    open_ns = int(clock["uncertainty_ms"] * 1_000_000) + 20_000
    assert open_ns < 500_000
    there = {place(s): s for s in two.slices if "seq" in s["args"]}
    assert len(there) > 300
    for slice_ in one.slices:
        if "seq" in slice_["args"]:
            other = there.pop(place(slice_))
            assert abs(other["ts"] - slice_["ts"]) <= open_ns
            assert abs(other["dur"] - slice_["dur"]) <= 20_000
    assert not there
    labels = [e["args"]["labels"] for e in two.events if e["name"] == "process_labels"]
    assert labels[0] == "reference clock"
    assert labels[-1].startswith("clock +3")


def test_clocks_that_cannot_be_related_stay_apart(tracelake: Command, tmp_path: Path) -> None:
    archive = write(
        tmp_path / "in",
        {
            f"node{rank}/{trace_name(rank)}": trace(rank, steps=2, start=1000.0 + 500_000 * rank)
            for rank in range(2)
        },
    )
    lake, out = tmp_path / "lake", tmp_path / "trace.json"
    drawable(archive, lake)
    done = tracelake("timeline", "latest", "--lake", lake, "-o", out, "--quiet")
    assert done.code == 0
    assert "1 rank on 1 clock that cannot be aligned (clocks_not_aligned" in done.err
    made = Trace(out.read_bytes())
    check_format(made)
    assert made.other["notes"]
    assert {s["pid"]: s["ts"] for s in reversed(made.of("compute"))} == {1: 0, 2: 0}
    aligned = {c["clock"]: (c["aligned"], c["zero_ns"]) for c in made.other["clocks"]}
    assert aligned == {"node0": (True, 10**9), "node1": (False, 501 * 10**9)}


# --- what is chosen --------------------------------------------------------------------------


def shape(trace: Trace) -> list[str]:
    """Slices and links without the numbers that depend on how they were read."""
    slices = [
        json.dumps([s["pid"], s["name"], s["ts"], s["dur"], s["args"]], default=str)
        for s in trace.slices
    ]
    links = [
        json.dumps([(e["pid"], e["ts"], e["ph"]) for e in events])
        for events in trace.flows().values()
    ]
    return sorted([*slices, *links])


@pytest.mark.parametrize("slices", [150, 700])
def test_a_run_read_in_pieces_is_the_same(
    lake: Lake, slow: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slices: int
) -> None:
    monkeypatch.setattr(selection, "PIECE_SLICES", slices)
    pieces = drawn(lake, SLOW_RUN, tmp_path)
    check_format(pieces)
    assert shape(pieces) == shape(slow)


def test_pieces_are_steps_together_or_blocks_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "PIECE_SLICES", 100)
    steps = ((1, 40), (2, 60), (5, 30), (6, 250), (7, 10))
    chosen = selection.Selection("run", (0, 2, 3, 7), steps, 9)
    assert [(p.first_step, p.last_step, p.blocks) for p in chosen.pieces()] == [
        (1, 2, ((0, 7),)),
        (5, 5, ((0, 7),)),
        (6, 6, ((0, 2), (3, 7))),
        (7, 7, ((0, 7),)),
    ]


def test_steps_and_ranks_are_chosen(lake: Lake, slow: Trace, tmp_path: Path) -> None:
    part = drawn(
        lake, SLOW_RUN, tmp_path, steps=parse_span("2-3", ""), ranks=[range(1, 2), range(5, 7)]
    )
    check_format(part)
    kinds = ("compute", "in_op", "p2p", "collective", "optimizer", "data", "waiting", "step")
    wanted = [s for s in slow.of(*kinds) if s["pid"] in {2, 6, 7} and s["args"]["step"] in {2, 3}]
    assert sorted(map(span, part.of(*kinds))) == sorted(map(span, wanted))  # and on the same axis
    assert [s["args"]["step"] for s in part.of("window")] == [2, 3]
    assert {len(events) for events in part.flows().values()} == {2}


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (("--rank", "8"), "the run has no rank 8", "it has ranks 0 to 7"),
        (("--rank", "0", "--rank", "9-12"), "the run has no rank 9-12", "it has ranks 0 to 7"),
        (("--step", "5"), "the run has no step 5", "it has steps 1 to 4"),
        (("--steps", "7-5"), "--step '7-5' is not a number or a range", "give 3, or 3-7"),
        (("--rank", "-1"), "--rank '-1' is not a number or a range", "give 3, or 3-7"),
    ],
)
def test_what_is_not_there_is_said(
    tracelake: Command,
    lake: Lake,
    tmp_path: Path,
    options: tuple[str, ...],
    message: str,
    hint: str,
) -> None:
    out = tmp_path / "trace.json"
    out.write_text("old")
    done = tracelake("timeline", "173a", "--lake", lake.root, "-o", out, *options)
    assert done.code == 2
    assert message in done.err
    assert hint in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]
    assert out.read_text() == "old"


@pytest.mark.parametrize("run", ["tp2_dp1_pp2_mbs1_gbs2-b707a239", "gpt_megatron"])
def test_runs_without_a_time_axis_say_what_has_one(
    tracelake: Command, lake: Lake, tmp_path: Path, run: str
) -> None:
    done = tracelake("timeline", run, "--lake", lake.root, "-o", tmp_path / "trace.json")
    assert done.code == 2
    assert "has durations but no points in time" in done.err
    assert SLOW_RUN in done.err
    assert not list(tmp_path.iterdir())


def test_a_lake_without_any_time_axis(log_lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        write_timeline(log_lake, "a", tmp_path / "trace.json")
    assert caught.value.hint == "only traces of operations have a timeline; see: tracelake formats"


# --- where it goes ---------------------------------------------------------------------------


def test_a_timeline_is_the_same_bytes_however_it_is_written(
    tracelake: Command, lake: Lake, tmp_path: Path
) -> None:
    for name in ("a.json", "a.json.gz", "b.json.gz"):
        done = tracelake("timeline", SIMULATED, "--lake", lake.root, "-o", tmp_path / name)
        assert (done.code, done.out) == (0, "")
        assert "68 slices" in done.err
    packed = (tmp_path / "a.json.gz").read_bytes()
    assert packed == (tmp_path / "b.json.gz").read_bytes()
    assert packed[4:8] == bytes(4)  # no date in the header
    assert gzip.decompress(packed) == (tmp_path / "a.json").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.json.gz", "b.json.gz"]


def test_a_timeline_goes_to_standard_output(tracelake: Command, lake: Lake, tmp_path: Path) -> None:
    done = tracelake("timeline", SIMULATED, "--lake", lake.root, "-o", "-", "--quiet")
    assert done.code == 0
    write_timeline(lake, SIMULATED, tmp_path / "a.json")
    assert done.out.encode() == (tmp_path / "a.json").read_bytes()
    assert "8 operations without times" in done.err


def test_a_file_that_cannot_be_written(tracelake: Command, lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    done = tracelake("timeline", "173a", "--lake", lake.root, "-o", tmp_path / "taken" / "a.json")
    assert done.code == 2
    assert "cannot write: " in done.err


# --- odd input -------------------------------------------------------------------------------


def test_a_suffix_of_another_format_is_refused(
    tracelake: Command, lake: Lake, tmp_path: Path
) -> None:
    out = tmp_path / "x.pdf"
    refused = tracelake("timeline", "173a", "--lake", lake.root, "-o", out)
    assert (refused.code, out.exists()) == (2, False)
    assert "error: a timeline cannot be written as .pdf\n" in refused.err
    assert "next:  use .json or .json.gz\n" in refused.err


def test_odd_operations_are_drawn(tmp_path: Path) -> None:
    """Names of any text, operations that overlap or have no category, and those without times."""
    name = 'a"b\\\n\x1b[31mé\u2028'
    times = [(0, 100), (50, 150), (60, 70), (150, 150), (None, None), (150, 160), (160, 170)]
    ops = [
        {
            "source_id": 0,
            "line": seq,
            "rank": 0,
            "stage": 0,
            "step": 1,
            "seq": seq,
            "op": name,
            "category": {5: None, 6: None, 7: "io"}.get(seq, "compute"),
            "start_ns": start,
            "end_ns": end,
            "attributes": [("k\n", '"')],
        }
        for seq, (start, end) in enumerate(times, 1)
    ]
    source = {"source_id": 0, "path": "a'\"b.txt", "member": "c", "format": "rank_trace"}
    lake = Lake.create(tmp_path / "lake")
    commit_run(lake, "odd", {"runs": [{"format": "rank_trace"}], "sources": [source], "ops": ops})
    with drawable_models():
        build(lake)
    made = drawn(lake, "odd", tmp_path)
    check_format(made)
    slices = made.of("compute", "other", "io")
    assert [(s["name"], s["cat"], *span(s)) for s in slices] == [
        (name, "compute", 0, 100),
        (name, "compute", 50, 150),
        (name, "compute", 60, 70),
        (name, "compute", 150, 150),
        (name, "other", 150, 160),
        (name, "io", 160, 170),
    ]
    assert slices[1]["args"]["source"] == "a'\"b.txt/c:2"
    assert slices[1]["args"]["attributes"] == {"k\n": '"'}
    assert sorted(made.named("thread_name").values()) == [
        *("compute", "compute (2)", "compute (3)", "other operations", "steps"),
    ]
    assert made.other["notes"] == ["1 operation without times have no slice"]


RECEIVED = {
    "after": (95.0, 125.0, 155.0),
    "one before": (70.0, 125.0, 155.0),  # it was there before it was sent
    "all before": (70.0, 100.0, 130.0),  # so these are two clocks
}


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A job for each of the times at which three messages were received."""

    def messages(rank: int, name: str, ends: tuple[float, ...]) -> str:
        lines = [op(rank, name, end, 10.0, stage=rank) for end in ends]
        return "".join(lines).replace("kind=None", "kind=pp")

    folder = tmp_path_factory.mktemp("sent")
    for day, (job, received) in enumerate(RECEIVED.items(), 1):
        name = f"{job}/wd2_tp1_pp2_numl4_bs1_Tok_rank{{}}_2025010{day}000000.txt"
        ranks = {
            name.format(0): messages(0, "send_forward", (90.0, 120.0, 150.0)),
            name.format(1): messages(1, "recv_forward", received),
        }
        write(folder / "in", {**ranks})
    return drawable(folder / "in", folder / "lake")


@pytest.mark.parametrize(
    ("received", "linked", "note"),
    [
        ("after", 3, None),
        ("one before", 2, "1 call of 3 without arrows"),
        ("all before", 0, "3 calls of 3 without arrows"),
    ],
)
def test_messages_are_linked_as_far_as_their_times_allow(
    sent: Lake, tmp_path: Path, received: str, linked: int, note: str | None
) -> None:
    entries = sent.snapshot().runs.items()
    (run,) = [run for run, e in entries if e.sources[0]["path"].startswith(f"{received}/")]
    made = drawn(sent, run, tmp_path)
    check_format(made)
    assert len(made.of("p2p")) == 6
    assert len(made.flows()) == made.other["linked_calls"] == linked
    assert [n for n in made.other["notes"] if "arrows" in n and not n.startswith(note or "-")] == []
    assert any("arrows" in n for n in made.other["notes"]) == (note is not None)


@pytest.mark.parametrize(("text", "expected"), [("3", range(3, 4)), (" 3-7 ", range(3, 8))])
def test_numbers_and_ranges_are_read(text: str, expected: range) -> None:
    assert parse_span(text, "--step") == expected
