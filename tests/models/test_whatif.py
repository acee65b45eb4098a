"""What if: replay of generated jobs and of a public trace against known truths, and abstention."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.conftest import ROOT, Command
from tests.lakes import few_models, full_build_differences, ingest_and_build, run_ingest
from tests.reference.straggler_analysis import Layout, trace
from tests.traces import write
from tracelake.base.errors import ContractError
from tracelake.lake.store import Lake
from tracelake.models import columns
from tracelake.models.build import build
from tracelake.models.catalog import load
from tracelake.models.columns import Columns
from tracelake.models.replay import INPUT, replay
from tracelake.models.replay.graph import Graph
from tracelake.synth.archive import write_archive
from tracelake.synth.schedule import simulate
from tracelake.synth.spec import Spec

JOBS = range(12)
ATTRIBUTED = ("whatif_ranks", "whatif_kinds")
REPLAYED = (*ATTRIBUTED, "whatif_steps", "whatif_runs", "whatif_published")


def generated(seed: int) -> Spec:
    """A job with enough peers; every third has no slow rank."""
    draw = random.Random(f"whatif/{seed}")
    tp, pp, dp = draw.choice(((1, 1, 4), (2, 2, 2), (1, 2, 4), (2, 1, 4), (1, 4, 4)))
    hosts: dict[str, Any] = draw.choice(({}, {"ranks_per_host": 2, "clock_offset_ms": 1234.5}))
    return Spec(
        formats=("rank_trace",),
        seed=seed,
        tp=tp,
        pp=pp,
        dp=dp,
        micro_batches=draw.choice((1, 2, 4)),
        steps=draw.choice((1, 2, 3)),
        layers=2 * pp,
        forward_ms=8.0,
        backward_ms=16.0,
        noise=draw.choice((0.0, 0.01)),
        busbw_gbps=20.0,
        slow_rank=draw.randrange(tp * pp * dp) if seed % 3 else None,
        slow_factor=draw.choice((1.3, 1.5, 2.0)),
        **hosts,
    )


def length(spec: Spec) -> int:
    """Sum of the steps' lengths by the simulator itself, without noise."""
    spans: dict[int, tuple[int, int]] = {}
    for op in (op for ops in simulate(replace(spec, noise=0.0), 0) for op in ops):
        begin, end = spans.get(op.step, (op.start, op.end))
        spans[op.step] = min(begin, op.start), max(end, op.end)
    return sum(end - begin for begin, end in spans.values())


@pytest.fixture
def replays() -> Iterator[None]:
    """Models of replays alone, and what they read."""
    with few_models(*REPLAYED):
        yield


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    archive = tmp_path_factory.mktemp("archive")
    for seed in JOBS:
        write_archive(archive / f"seed{seed:02}", generated(seed))
    # A rank's file is missing, a call of one rank is missing, and a rank's clock is off by hours.
    for name in ("dropped", "lost", "skewed"):
        write_archive(archive / name, replace(generated(1), seed=100 + len(name)))
        first = min((archive / name).rglob("*rank0_*.txt"))
        text = first.read_text()
        if name == "dropped":
            first.unlink()
        elif name == "lost":
            calls = [line for line in text.splitlines(True) if ":dp_allreduce(" not in line]
            assert len(calls) < len(text.splitlines())
            first.write_text("".join(calls))
        else:
            lines = (line.replace("timestamp=4", "timestamp=9") for line in text.splitlines(True))
            first.write_text("".join(lines))
    with few_models(*REPLAYED):
        lake = ingest_and_build(archive, tmp_path_factory.mktemp("lake"))
    with duckdb.connect(str(lake.warehouse), read_only=True) as con:
        yield con


def test_injected_stragglers(jobs: duckdb.DuckDBPyConnection) -> None:
    found = jobs.execute(
        "SELECT min(s.path), r.rank, any_value(r.slowdown_ratio), any_value(w.cause),"
        " any_value(r.reason), any_value(w.replay_error_ratio), any_value(w.s_peer)"
        " FROM whatif_ranks AS r JOIN whatif_runs AS w USING (run_id)"
        " JOIN sources AS s USING (run_id) WHERE s.path LIKE '%seed%' GROUP BY r.run_id, r.rank"
    ).fetchall()
    seen = set()
    for path, rank, slowdown, cause, reason, error, s_peer in found:
        spec = generated(int(path[path.index("seed") + 4 :][:2]))
        seen.add(spec.seed)
        assert error == 0
        if spec.slow_rank is None:
            assert (cause, slowdown, reason) == ("none", None, "no_slowdown")
            assert abs(s_peer - 1) < 0.03
        elif rank == spec.slow_rank:
            true = length(spec) / length(replace(spec, slow_rank=None))
            assert cause == "one_rank"
            assert slowdown == pytest.approx(true, rel=0.005)
        else:
            assert slowdown <= 1.02
    assert seen == set(JOBS)


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("dropped", {"run_incomplete"}),
        ("lost", {"peer_not_seen", "run_incomplete"}),
    ],
)
def test_abstains(jobs: duckdb.DuckDBPyConnection, name: str, reasons: set[str]) -> None:
    found = jobs.execute(
        "SELECT DISTINCT w.reason, w.s_peer, w.cause, w.gpu_hours_lost FROM whatif_runs AS w"
        " JOIN sources AS s USING (run_id) WHERE s.path LIKE '%' || $1 || '/%'",
        [name],
    ).fetchall()
    assert found
    for reason, *figures in found:
        assert reason in reasons
        assert figures == [None, None, None]


def test_a_clock_that_is_off_is_aligned_first(jobs: duckdb.DuckDBPyConnection) -> None:
    spec = generated(1)
    found = jobs.execute(
        "SELECT any_value(r.slowdown_ratio) FROM whatif_ranks AS r JOIN sources AS s USING (run_id)"
        " WHERE s.path LIKE '%skewed/%' AND r.rank = $1",
        [spec.slow_rank],
    ).fetchall()
    true = length(spec) / length(replace(spec, slow_rank=None))
    assert found == [(pytest.approx(true, rel=0.005),)]


@pytest.mark.usefixtures("replays")
def test_optimizers_that_end_almost_together_still_hide_a_wait(tmp_path: Path) -> None:
    """Ranks wait inside of an optimizer; their ends differ by more than a tick of the clock."""
    write_archive(tmp_path / "in", replace(generated(1), tp=1, pp=1, dp=4, steps=4, slow_rank=3))
    noise, figures = random.Random(5), []
    update = re.compile(
        r"[^\n]*:dp_allreduce\(.*?duration=([\d.]+).*?timestamp=([\d.]+).*\n"
        r"(.*:optimizer_step\(.*?duration=)([\d.]+)(.*?timestamp=)([\d.]+)"
    )

    def joined(found: re.Match[str], most_ms: float) -> str:
        end = float(found[6]) + noise.uniform(0, most_ms)
        return f"{found[3]}{end - float(found[2]) + float(found[1]):.2f}{found[5]}{end:.2f}"

    for most_ms in (0.0, 0.1):
        folder = tmp_path / f"scattered{most_ms}"
        for path in (tmp_path / "in").rglob("*rank*.txt"):
            text, found = update.subn(lambda one: joined(one, most_ms), path.read_text())  # noqa: B023
            assert found == 4
            write(folder, {path.name: text})
        lake = ingest_and_build(folder, tmp_path / f"lake{most_ms}")
        with duckdb.connect(str(lake.warehouse), read_only=True) as con:
            figures += con.sql(
                "SELECT s_peer, cause, replay_error_ratio FROM whatif_runs"
            ).fetchall()
    (exact, *_), (found_peer, *_) = figures
    assert exact > 1.05
    assert found_peer == pytest.approx(exact, rel=0.01)
    assert [cause for _, cause, _ in figures] == ["one_rank", "one_rank"]
    assert max(error for *_, error in figures) < 0.01


def test_public_trace(tracelake: Command, corpus: Path, tmp_path: Path) -> None:
    lake = ingest_and_build(corpus / "rank_trace" / "gpt_tp2_pp4_bs2", tmp_path / "lake")
    with duckdb.connect(str(lake.warehouse), read_only=True) as con:
        run = con.execute(
            "SELECT t_ms, peer_ms, round(s_peer, 3), round(s_paper, 3), cause, reason,"
            " replay_error_ratio FROM whatif_runs"
        ).fetchall()
        assert run == [(3838.22, 3247.995, 1.182, 1.105, "one_rank", "one_peer", 0.0)]
        balance = con.execute("SELECT s_balance, balance_reason FROM whatif_runs").fetchall()
        assert balance == [(None, "stages_differ")]
        ranks = con.execute(
            "SELECT rank, round(slowdown_ratio, 3), round(fixed_ratio, 3), round(lost_ms)"
            " FROM whatif_ranks ORDER BY slowdown_ratio DESC"
        ).fetchall()
        assert ranks[0] == (7, 1.173, 0.952, 562.0)
        assert all(slowdown <= 1.004 for _, slowdown, *_ in ranks[1:])
    asked = ("whatif", "latest", "--lake", lake.root)
    picture = tmp_path / "step.svg"
    done = tracelake(*asked, "--fix", "rank=7", "--format", "json", "--draw", picture)
    question = json.loads(done.out)["question"]
    assert (question["changed_ms"], round(question["saved_ms"], 3)) == (3276.515, 561.705)
    assert "as it was: 3,838.2" in picture.read_text()
    assert "with rank 7 as fast as its peers: 3,276.5" in picture.read_text()
    # Everything twice as long is twice the step.
    with duckdb.connect(str(lake.warehouse), read_only=True) as con:
        kinds = [kind for (kind,) in con.execute("SELECT kind FROM whatif_kinds").fetchall()]
    twice = [word for kind in kinds for word in ("--scale", f"{kind}=2")]
    done = tracelake(*asked, *twice, "--format", "json")
    assert json.loads(done.out)["question"]["changed_ms"] == 2 * 3838.22
    done = tracelake(*asked, "--fix", "stage=3")
    assert "step 3,276.5" in done.out
    for wrong, told in (
        (("--fix", "rank=99"), "the run has no rank 99"),
        (("--fix", "host=a"), "--fix host=a"),
        (("--fix", "split=even"), "do not have the same pieces"),
        (("--scale", "forward=-1"), "--scale forward=-1"),
    ):
        done = tracelake(*asked, *wrong)
        assert (done.code, told in done.err) == (2, True)


def test_a_kind_of_call_without_the_asynchronous_ones(tracelake: Command, tmp_path: Path) -> None:
    """The simulator's own time with a collective that is no longer slow."""
    spec = Spec(
        formats=("rank_trace",), tp=2, pp=2, dp=1, steps=1, seed=9,
        slow_collective="all_reduce/tp", slow_collective_factor=6.0,
    )  # fmt: skip
    write_archive(tmp_path / "job", spec)
    lake = ingest_and_build(tmp_path / "job", tmp_path / "lake")
    asked = ("whatif", "latest", "--lake", lake.root, "--format", "json", "--scale")
    question = json.loads(tracelake(*asked, "all_reduce:tp=0.1667").out)["question"]
    saved = 1 - length(replace(spec, slow_collective_factor=1.0)) / length(spec)
    assert question["saved_ratio"] == pytest.approx(saved, rel=0.15)
    with duckdb.connect(str(lake.warehouse), read_only=True) as con:
        kinds = con.execute("SELECT kind FROM whatif_kinds WHERE kind LIKE 'all_reduce:tp%'")
        assert {kind for (kind,) in kinds.fetchall()} == {"all_reduce:tp", "all_reduce:tp:async"}


def test_other_micro_batches(tracelake: Command, tmp_path: Path) -> None:
    """The simulator's own time with fewer and with more micro-batches."""
    spec = Spec(
        formats=("rank_trace",), tp=1, pp=4, dp=1, micro_batches=8, steps=1, layers=4,
        forward_ms=8.0, backward_ms=16.0, busbw_gbps=20.0,
    )  # fmt: skip
    write_archive(tmp_path / "job", spec)
    lake = ingest_and_build(tmp_path / "job", tmp_path / "lake")
    with duckdb.connect(str(lake.warehouse), read_only=True) as con:
        ((run,),) = con.execute("SELECT run_id FROM runs").fetchall()
    asked = ("whatif", run, "--lake", lake.root, "--format", "json", "--fix")
    for batches in (4, 16):
        question = json.loads(tracelake(*asked, f"micro-batches={batches}").out)["question"]
        true = length(replace(spec, micro_batches=batches)) / length(spec)
        assert question["changed_ms"] / question["steps"][0]["t_ms"] == pytest.approx(
            true, rel=0.01
        )
        assert question["samples_ratio"] == batches / 8
        assert question["sample_saved_ratio"] == pytest.approx(1 - true * 8 / batches, abs=0.01)
        assert (question["gpu_hours_saved"] > 0) == (batches > 8)
    for wrong in ("micro-batches=0", "split=3,5", "link=a-b"):
        done = tracelake(*asked, wrong)
        assert (done.code, f"--fix {wrong} is no change" in done.err) == (2, True)
    shown = tracelake("whatif", run, "--lake", lake.root, "--fix", "micro-batches=1").out
    assert "What if  1 micro-batch\n" in shown
    assert "for 0.125 times the samples: a sample takes" in shown
    assert "more time" in shown
    twice = json.loads(tracelake(*asked, "rank=1", "--fix", "rank=1").out)["question"]
    assert twice["changes"] == ["rank 1 as fast as its peers"]
    for wrong, limit in (("micro-batches=1000000", "1 to 999999"), ("micro-batches=x", "1 to")):
        assert limit in tracelake(*asked, wrong).err
    assert "below 10000" in tracelake(*asked, "rank=1", "--scale", "forward=1e300").err
    drawn = tracelake(*asked, "rank=1", "--draw", tmp_path / "x.png")
    assert (drawn.code, "cannot be written as .png" in drawn.err) == (2, True)
    assert not (tmp_path / "x.png").exists()


@pytest.mark.usefixtures("replays")
def test_batches_of_runs_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run by itself is replayed as among others, whatever its format."""
    write_archive(tmp_path / "in" / "job", generated(1))
    layout = Layout(dp=4)
    pq.write_table(trace(layout), tmp_path / "in" / "trace-X.parquet")
    (tmp_path / "in" / "meta-X.yaml").write_text(layout.meta())
    with monkeypatch.context() as alone:
        alone.setattr("tracelake.models.batches._BATCH_BYTES", 1)
        lake = ingest_and_build(tmp_path / "in", tmp_path / "lake")
    with duckdb.connect(str(lake.warehouse), read_only=True) as con:
        assert con.execute("SELECT count(s_peer) FROM whatif_runs").fetchone() == (2,)
    assert full_build_differences(lake) == []


@pytest.mark.usefixtures("replays")
def test_threads_do_not_show(tmp_path: Path) -> None:
    """Steps that are replayed at once give what they give one after the other."""
    spec = replace(generated(1), steps=3, slow_rank=0, slow_factor=2.0)
    write_archive(tmp_path / "in", spec)
    run_ingest(tmp_path / "in", tmp_path / "lake")
    lake = Lake.open(tmp_path / "lake")
    found = []
    for threads in (1, 4):
        build(lake, full=True, threads=threads)
        with duckdb.connect(str(lake.warehouse), read_only=True) as con:
            both = [con.execute(f"FROM {name} ORDER BY ALL").fetchall() for name in ATTRIBUTED]
            found.append(both)
    assert all(found[0])
    assert found[0] == found[1]


@pytest.mark.usefixtures("replays")
def test_pieces_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are read step by step give the same figures."""
    spec = replace(generated(1), steps=3, slow_rank=0, slow_factor=2.0)
    write_archive(tmp_path / "in" / "job", spec)
    layout = Layout(dp=4)
    pq.write_table(trace(layout), tmp_path / "in" / "trace-X.parquet")
    (tmp_path / "in" / "meta-X.yaml").write_text(layout.meta())
    run_ingest(tmp_path / "in", tmp_path / "lake")
    lake = Lake.open(tmp_path / "lake")
    found = []
    for rows in (10**6, 1):
        monkeypatch.setattr("tracelake.models.columns._PIECE_ROWS", rows)
        build(lake, full=True)
        with duckdb.connect(str(lake.warehouse), read_only=True) as con:
            found.append([con.execute(f"FROM {name} ORDER BY ALL").fetchall() for name in REPLAYED])
    assert all(found[0])
    assert all(rows == found[0] for rows in found[1:])


@pytest.mark.usefixtures("replays")
def test_a_replay_that_lacks_memory_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_archive(tmp_path / "in", replace(generated(1), steps=3, slow_rank=0, slow_factor=2.0))
    run_ingest(tmp_path / "in", tmp_path / "lake")
    lake = Lake.open(tmp_path / "lake")
    read, pieces = columns.read_columns, list[str]()

    def fails_once(con: duckdb.DuckDBPyConnection, sql: str) -> columns.Columns:
        pieces.append(sql)
        if len(pieces) == 2:
            raise duckdb.OutOfMemoryException("failed to allocate")
        return read(con, sql)

    def rows() -> list[list[Any]]:
        names = (*ATTRIBUTED, "whatif_steps", "whatif_runs")
        with duckdb.connect(str(lake.warehouse), read_only=True) as con:
            return [con.execute(f"FROM {name} ORDER BY ALL").fetchall() for name in names]

    build(lake)
    before = rows()
    assert all(before)
    monkeypatch.setattr("tracelake.models.columns._PIECE_ROWS", 1)
    monkeypatch.setattr(columns, "read_columns", fails_once)
    build(lake, full=True)
    assert pieces[2:] == [*pieces[:2], pieces[-1]]
    assert rows() == before


def brute_force(
    after: list[list[int]], groups: list[list[int]], lengths: list[int]
) -> list[int] | None:
    """Ends by recursion without any order, or None where nodes wait for each other."""
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    members: dict[int, list[int]] = {}
    for node, own in enumerate(groups):
        for group in own:
            members.setdefault(group, []).append(node)
    for _ in range(2 * len(after) + 1):
        for node, prev in enumerate(after):
            if all(p in ends for p in prev):
                starts[node] = max((ends[p] for p in prev), default=0)
            met = [m for group in groups[node] for m in members[group]] or [node]
            if all(m in starts for m in met):
                ends[node] = max(starts[m] for m in met) + lengths[node]
    return [ends[node] for node in range(len(after))] if len(ends) == len(after) else None


def random_graph(draw: random.Random) -> tuple[list[list[int]], list[list[int]]]:
    """Chains of some ranks, which meet in random groups; a group is named by a node."""
    ranks, long = draw.randint(1, 4), draw.randint(1, 8)
    after = [[n - 1] if n % long else [] for n in range(ranks * long)]
    groups: list[list[int]] = [[] for _ in after]
    for group in range(min(len(after), draw.randint(0, 6))):
        places = sorted(draw.randrange(long) for _ in range(ranks))
        for rank in draw.sample(range(ranks), draw.randint(1, ranks)):
            node = rank * long + places[rank]
            if len(groups[node]) < 2:
                groups[node].append(group)
    for n in range(1, len(after)):
        if draw.random() < 0.2:
            after[n] = sorted({*after[n], draw.randrange(n)})
    return after, groups


@pytest.mark.parametrize("seed", range(100))
def test_replay_is_the_longest_path(seed: int) -> None:
    draw = random.Random(seed)
    after, groups = random_graph(draw)
    nodes = len(after)
    real, ideal = ([draw.randint(0, 9) for _ in after] for _ in range(2))
    keys = [draw.randrange(3) for _ in after]
    two = np.array([[*own, -1, -1][:2] for own in groups], np.int32)
    pairs = [(node, prev) for node, listed in enumerate(after) for prev in listed]
    sides = np.array(pairs, np.int32).reshape(-1, 2)
    graph = Graph.of([], (sides[:, 0], sides[:, 1]), two)
    (found,) = graph.times(
        np.array(ideal), np.array(keys, np.int32), range(3), np.array(real), np.zeros(nodes, int)
    )
    own, others, of = np.array(real), np.array(ideal), np.array(keys, np.int32)
    both = graph.times(others, of, range(3), own), graph.times(own, of, range(3), others)
    apart = [*zip(*(times for (times,) in both), strict=True)]
    for key, time in enumerate(found):
        alone = [r if k == key else i for r, i, k in zip(real, ideal, keys, strict=True)]
        fixed = [i if k == key else r for r, i, k in zip(real, ideal, keys, strict=True)]
        ends = [brute_force(after, groups, lengths) for lengths in (alone, fixed)]
        times = tuple(None if of is None else max(of) for of in ends)
        assert (time, apart[key]) == (times[0], times)


def test_steps_that_cannot_be_replayed_do_not_show_in_others() -> None:
    """Two ranks meet in two calls, in a step of `crossed` each in another one first."""
    runs = ["crossed", "straight"]
    rows = [
        (run, step, rank, seq, 10 * seq, 10 * seq + 5 + run, 1 + (rank ^ seq if crossed else seq))
        for run, step, crossed in ((0, 1, False), (0, 2, True), (1, 1, False), (1, 2, False))
        for rank in (0, 1)
        for seq in (0, 1)
    ]
    texts = {"run_id": runs, "op": ["all_reduce"], "kind": ["all_reduce"], "part": ["comm_op"]}
    read = np.array(rows).T
    names = ("run_id", "step", "rank", "seq", "from_ns", "to_ns", "call")
    given: dict[str, Any] = {name: np.zeros(len(rows), np.int32) for name in INPUT}
    given["sent_call"] = np.zeros(len(rows), np.uint64)
    given |= {name: np.full(len(rows), -1) for name in ("replica", "micro_batch", "tick_ns")}
    for name, column in zip(names, read, strict=True):
        given[name] = column.astype(np.uint64 if name == "call" else np.int64)
    given["call"] += (10 * (1 + 2 * read[0] + read[1])).astype(np.uint64)
    both = sorted(replay([Columns(given, texts)], 1, None), key=str)
    apart = list[tuple[Any, ...]]()
    for run in range(2):
        own = {name: column[read[0] == run] for name, column in given.items()}
        apart += replay([Columns(own, texts)], 1, None)
    assert both == sorted(apart, key=str)
    actual = {(run, step): time for run, step, name, _, time in both if name == "actual"}
    none = actual.pop(("crossed", 2))
    assert none is None
    assert actual == {("crossed", 1): 10, ("straight", 1): 12, ("straight", 2): 12}


def test_a_million_nodes_take_seconds() -> None:
    """64 ranks that meet at every fourth node: 64 scenarios, each with one rank apart."""
    ranks, long = 64, 1 << 14
    numbers = np.arange(ranks * long, dtype=np.int32)
    prev = np.where(numbers % long == 0, -1, numbers - 1).astype(np.int32)
    meeting = np.where(numbers % 4 == 3, numbers % long, -1).astype(np.int32)
    none = np.empty(0, np.int32)
    real = np.where(numbers // long == 5, 7, 5).astype(np.int64)
    began = process_time()
    graph = Graph.of([prev], (none, none), np.column_stack([meeting, np.full_like(meeting, -1)]))
    (found,) = graph.times(np.full_like(real, 5), numbers // long, range(ranks), real)
    assert process_time() - began < 30  # 0.5 s on the machine of docs/what-if.md
    assert found == [(7 if rank == 5 else 5) * long for rank in range(ranks)]


def test_pruned_ranks_are_below_a_thousandth() -> None:
    """A length that grows by some time delays the end by at most that time."""
    draw = random.Random(0)
    for _ in range(50):
        after, groups = random_graph(draw)
        lengths = [draw.randint(0, 9) for _ in after]
        more = [draw.choice((0, 0, 3)) for _ in after]
        before = brute_force(after, groups, lengths)
        slower = brute_force(after, groups, [a + b for a, b in zip(lengths, more, strict=True)])
        if before is not None and slower is not None:
            assert max(slower) - max(before) <= sum(more)


def test_a_kernel_takes_what_it_declares(tmp_path: Path) -> None:
    (tmp_path / "what").mkdir()
    model = tmp_path / "what" / "_model.sql"
    head = "-- A row.\n-- @kernel {}\n-- @grain run_id\n"
    model.write_text(head.format("replay") + "SELECT run_id FROM runs\n")
    with pytest.raises(ContractError, match="does not give what kernel replay takes"):
        load(tmp_path)
    model.write_text(head.format("other") + "SELECT run_id FROM runs\n")
    with pytest.raises(ContractError, match="unknown kernel other"):
        load(tmp_path)


def test_runs_without_operations_load_no_kernel(tmp_path: Path) -> None:
    """A child process, because other tests have loaded it here."""
    import subprocess

    write_archive(tmp_path / "logs", Spec(formats=("optimus",), seed=1))
    script = (
        "import sys; from pathlib import Path; from tests.lakes import ingest_and_build;"
        f"ingest_and_build(Path({str(tmp_path / 'logs')!r}), Path({str(tmp_path / 'lake')!r}));"
        "sys.exit('tracelake.models.replay' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=120)
