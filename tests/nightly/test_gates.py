"""The gates as a scheduler meets them: exit codes, which runs are judged, and what is said."""

from __future__ import annotations

import json
import re
import shutil
import time
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from tests.conftest import Command
from tests.lakes import asked, ingest_and_build
from tests.report_lakes import make, trace_run
from tests.tiny_lakes import log_run
from tests.traces import plan, write
from tracelake.base.errors import CheckFailedError, UsageError
from tracelake.cli.steps import judge_runs
from tracelake.lake.store import Lake
from tracelake.nightly.gates import GATES, failed_gates, failures, parse_gates
from tracelake.synth.archive import write_archive
from tracelake.synth.spec import Spec

EVERY = ",".join(GATES)
FAULTS = [
    {"source_id": 0, "name": "truncated", "severity": "data_loss", "count": 3},
    {"source_id": 0, "name": "crlf", "severity": "notice", "count": 9},
]


def day(number: int) -> datetime:
    return datetime(2025, 3, number)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    again = {f"again{n}": trace_run(slow=1.5, config="again", run_date=day(n)) for n in (1, 2, 3)}
    return make(
        tmp_path_factory.mktemp("gates") / "lake",
        {
            **{f"even{n}": trace_run(run_date=day(n)) for n in (1, 2, 3)},
            "slow": trace_run(slow=1.5, run_date=day(4)),
            "two_steps": trace_run(slow=1.5, steps=2, config="short"),
            "partial": trace_run(config="partial", complete=False, ranks_expected=6),
            "unending": trace_run(config="unending", complete=False),
            "played": trace_run(config="played", complete=False, simulated=True),
            "bad": log_run(rejected=2, complete=True),
            "lossy": {**trace_run(config="lossy"), "faults": FAULTS},
            "again0": trace_run(config="again", run_date=day(4)),
            **again,
        },
    )


@pytest.mark.parametrize(
    ("run", "gates", "told"),
    [
        ("even3", EVERY, None),
        (
            "slow",
            "regression",
            "slow: stragglers 1 is over 0, the most of 3 earlier runs.",
        ),
        ("slow", "straggler", "slow: rank 2 (stage 0): forward_step took 1.62 times as long"),
        ("slow", "suspect,recurring,incomplete,rejects", None),
        (
            "two_steps",
            "suspect",
            "two_steps: rank 2 (stage 0): forward_step took 1.62 times",
        ),
        ("two_steps", "straggler,regression", None),
        ("again3", "recurring", "again3: rank 2: forward_step took 1.62 times as long"),
        ("again0", "recurring,straggler", None),
        ("partial", "incomplete", "partial: The run is incomplete: 4 of 6 ranks were seen."),
        ("unending", "incomplete", "unending: The run is incomplete: its input has not ended."),
        ("played", EVERY, None),
        ("bad", "rejects", "bad: Lines rejected: 2 (20.00 % of its record lines; bad)"),
        ("bad", "incomplete,regression", None),
        ("lossy", "faults", "lossy: t.txt: truncated, 3 times."),
        ("lossy", "rejects,incomplete", None),
        ("slow", "", None),
    ],
)
def test_a_gate_fails_a_run(lake: Lake, run: str, gates: str, told: str | None) -> None:
    if told is None:
        judge_runs(lake, parse_gates(gates), [run])
        return
    with pytest.raises(CheckFailedError) as caught:
        judge_runs(lake, parse_gates(gates), [run])
    assert f"1 gate of 1 failed\n  {gates}: 1 run\n    {told}" in caught.value.message
    assert caught.value.path == str(lake.root)
    assert f'tracelake query "{GATES[gates].query}"' in str(caught.value.hint)


def test_the_runs_of_a_page_are_judged_when_it_is_written(
    tracelake: Command, lake: Lake, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    report = ("report", "--lake", lake.root, "-o", page, "--fail-on", "straggler", "--run")
    result = tracelake(*report, "slow")
    assert (result.code, page.is_file()) == (5, True)
    assert "error: 1 gate of 1 failed\n  straggler: 1 run\n    slow: rank 2" in result.err
    assert f"where: {lake.root}" in result.err
    assert f'tracelake query --lake {lake.root} "{GATES["straggler"].query}"' in result.err
    fine = tracelake(*report, "even3")
    assert (fine.code, "error:" in fine.err) == (0, False), fine.err


def test_what_to_type_next_finds_the_run(tracelake: Command, lake: Lake) -> None:
    for name, run in {
        "regression": "slow",
        "straggler": "slow",
        "suspect": "two_steps",
        "recurring": "again3",
        "incomplete": "partial",
        "rejects": "bad",
        "faults": "lossy",
    }.items():
        found = tracelake("query", GATES[name].query, "--lake", lake.root, "--format", "csv")
        assert found.code == 0
        assert f'"{run}"' in found.out or f"{run}," in found.out, name


def test_a_page_of_many_runs_fails_gate_by_gate(
    tracelake: Command, lake: Lake, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    result = tracelake("report", "--lake", lake.root, "-o", page, "--fail-on", EVERY)
    assert result.code == 5
    assert "error: 7 gates of 8 failed" in result.err
    assert "  recurring: 3 runs\n" in result.err
    none = ("--since", "1h", "--fail-on", EVERY)
    assert tracelake("report", "--lake", lake.root, "-o", page, *none).code == 0


def test_an_unknown_gate_is_refused_before_anything_is_done(
    tracelake: Command, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    result = tracelake("run", tmp_path, "--lake", lake, "--fail-on", "straggler,slowness")
    assert result.code == 2
    assert "no gate 'slowness'" in result.err
    assert f"one of {', '.join(GATES)}" in result.err
    assert not lake.exists()


@pytest.mark.parametrize(
    ("kind", "gate"),
    [("regressed", "regression"), ("drifted", "drift"), ("contradiction", "incomplete or faults")],
)
def test_a_kind_of_finding_is_no_gate_and_says_which_one_it_is_of(kind: str, gate: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_gates(f"straggler,{kind}")
    assert caught.value.hint == f"findings of this kind are of the gate {gate}"


def test_gates_know_the_kinds_of_their_findings(tracelake: Command, lake: Lake) -> None:
    sql = "SELECT DISTINCT gate, kind FROM findings WHERE gate IS NOT NULL"
    found = asked(tracelake, lake.root, sql)
    assert {row["gate"] for row in found} >= {"regression", "faults", "incomplete"}
    for row in found:
        assert row["kind"] in (GATES[row["gate"]].kinds or [row["gate"]])


def test_gates_are_read_by_name() -> None:
    assert [gate.name for gate in parse_gates(" suspect, straggler,suspect")] == [
        "suspect",
        "straggler",
    ]
    assert parse_gates("") == ()
    with pytest.raises(UsageError):
        parse_gates("suspect,")


def test_help_tells_every_gate(tracelake: Command) -> None:
    for command in ("run", "report"):
        told = " ".join(tracelake(command, "--help").out.replace("│", "").split())
        for gate in GATES.values():
            assert f"{gate.name} ({gate.doc})" in told


def test_run_judges_what_it_adds_or_changes(tracelake: Command, tmp_path: Path) -> None:
    spec = Spec(
        formats=("rank_trace",),
        tp=1,
        pp=2,
        dp=3,
        layers=2,
        micro_batches=2,
        steps=3,
        clean_runs=3,
        slow_rank=1,
        slow_factor=1.5,
    )
    write_archive(tmp_path / "made", spec)
    *clean, slow = sorted((tmp_path / "made" / "rank_trace").iterdir())
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    for job in clean:
        shutil.copytree(job, archive / job.name)
    arguments = ("run", archive, "--lake", lake, "--fail-on", EVERY)
    ingest_and_build(archive, lake)
    shutil.copytree(slow, archive / slow.name)
    failed = tracelake(*arguments)
    assert failed.code == 5
    assert "error: 2 gates of 8 failed\n  regression: 1 run\n" in failed.err
    assert "  straggler: 1 run\n" in failed.err
    assert f"report:    {lake / 'report.html'}" in failed.out
    assert "is over 0, the most of 3 earlier runs" in (lake / "report.html").read_text()
    assert tracelake(*arguments).code == 0
    made = Lake.open(lake)
    with pytest.raises(CheckFailedError):
        judge_runs(made, parse_gates("regression"), list(made.snapshot().runs))


def test_too_many_bad_lines_outweigh_the_gates_and_hide_none(
    tracelake: Command, tmp_path: Path
) -> None:
    folder = write(tmp_path / "in", {"a.txt": plan(3) + "what is this\n"})
    arguments = ("run", folder, "--lake", tmp_path / "lake", "--fail-on", "rejects")
    first = tracelake(*arguments)
    assert first.code == 3
    assert first.err.index("rejects: 1 run") < first.err.index("error: 1 run with more bad lines")
    assert tracelake(*arguments).code == 0
    write(folder, {"a.txt": plan(4) + "what is this\n"})
    second = tracelake(*arguments, "--max-bad-ratio", "0.5")
    assert second.code == 5
    assert "rejects: 1 run" in second.err


def test_a_copy_has_no_findings_of_its_own(tracelake: Command, tmp_path: Path) -> None:
    """Those of the run that it repeats count once: for gates, questions and lists."""
    archive, lake = tmp_path / "in", tmp_path / "lake"
    write(archive, dict.fromkeys(("a.txt", "b.txt"), plan(3, declared=5)))
    first = tracelake("run", archive, "--lake", lake, "--fail-on", "incomplete")
    assert (first.code, "  incomplete: 1 run\n" in first.err) == (5, True)
    asked = tracelake("ask", "attention", "--lake", lake, "--format", "json")
    (found,) = json.loads(asked.out)
    assert found["run_id"].startswith("a-")
    shown = tracelake("show", "b", "--lake", lake).out
    assert "Attention  what is wrong is said of the run that it repeats" in shown
    assert "What is wrong is said of the run that it repeats" in (lake / "report.html").read_text()
    write(archive, {"c.txt": plan(3, declared=5)})
    again = tracelake("run", archive, "--lake", lake, "--fail-on", "incomplete")
    assert again.code == 0, again.err


def test_an_error_stays_readable() -> None:
    with duckdb.connect(":memory:") as con:
        con.execute(
            "CREATE TABLE findings AS"
            " SELECT 'run' || r AS run_id, 'rank ' || s AS subject, 'straggler' AS gate,"
            " 'rank ' || s || ': slow.' AS evidence, r * 10.0 + s AS lost_ratio, NULL AS slowdown"
            " FROM range(8) AS _(r), range(4) AS __(s)"
        )
        failed = failures(con, parse_gates("straggler"), [f"run{n}" for n in range(7)])
    error = failed_gates(failed, 1, "a lake")
    assert error.exit_code == 5
    assert error.message.splitlines() == [
        "1 gate of 1 failed",
        "  straggler: 7 runs",
        "    run6: rank 3: slow. rank 2: slow. rank 1: slow. (and 1 more)",
        "    run5: rank 3: slow. rank 2: slow. rank 1: slow. (and 1 more)",
        "    run4: rank 3: slow. rank 2: slow. rank 1: slow. (and 1 more)",
        "    run3: rank 3: slow. rank 2: slow. rank 1: slow. (and 1 more)",
        "    run2: rank 3: slow. rank 2: slow. rank 1: slow. (and 1 more)",
        "    ... and 2 runs more",
    ]
    assert error.path == "a lake"


def written(end: datetime, loss: int) -> str:
    """A log of 8 steps of 500, a minute each."""
    return "".join(
        f" [{end - timedelta(minutes=8 - step):%Y-%m-%d %H:%M:%S}] iteration {step:8}/     500 |"
        " elapsed time per iteration (ms): 60000.0 | global batch size: 64 |"
        f" lm loss: {loss}.3E+00 |\n"
        for step in range(1, 9)
    )


def test_a_log_is_not_incomplete_while_its_job_may_run(tracelake: Command, tmp_path: Path) -> None:
    hour, broken = timedelta(hours=1), "RuntimeError: CUDA error: uncorrectable ECC error\n"
    for seconds in (10, 40, 160):  # the first job must end before the log counts as stopped
        until = datetime.now().replace(microsecond=0) + timedelta(seconds=seconds)  # as in logs
        work = tmp_path / str(seconds)
        logs = {
            "stopping.log": written(until - hour, 1),
            "running.log": written(until, 2),
            "stopped.log": written(until - 3 * hour, 3),
            "ahead.log": written(until + 3 * hour, 4),
            "broken.log": written(until, 5) + broken,
        }
        write(work / "in", logs)
        job = ("run", work / "in", "--lake", work / "lake", "--fail-on", "incomplete")
        first = tracelake(*job)
        if datetime.now() < until:
            break
    assert first.code == 5
    assert failed(first.err) == {"stopped", "ahead", "broken"}
    listed = tracelake("runs", "--lake", work / "lake", "--sort", "label").out
    assert listed.count("may still run") == 2
    shown = tracelake("show", "stopping", "--lake", work / "lake").out
    assert "its job may still run: its last date was less than an hour before" in shown
    time.sleep(max(0, (until - datetime.now()).total_seconds()))
    second = tracelake(*job)
    assert (second.code, failed(second.err)) == (5, {"stopping"})
    third = tracelake(*job)
    assert (third.code, failed(third.err)) == (0, set())
    (running,) = json.loads(
        tracelake(
            *("query", "SELECT label FROM run_list WHERE running_until IS NOT NULL"),
            *("--lake", work / "lake", "--format", "json"),
        ).out
    )
    assert running == {"label": "running"}


def test_what_was_not_copied_in_full_is_incomplete_at_once(tmp_path: Path) -> None:
    now = datetime.now()
    short = {"source_id": 0, "name": "row_count_mismatch", "severity": "incomplete", "count": 1}
    runs = {
        "running": log_run(run_date=now, ranks_seen=None, complete=False),
        "short": {**log_run(run_date=now, ranks_seen=None, complete=False), "faults": [short]},
        "whole": log_run(run_date=now, ranks_seen=None, complete=True),
    }
    lake = make(tmp_path / "lake", runs)
    with duckdb.connect(str(lake.warehouse), read_only=True) as con:
        found = con.execute(
            "SELECT l.run_id, l.running_until IS NOT NULL, f.kind FROM run_list AS l"
            " LEFT JOIN findings AS f USING (run_id) ORDER BY ALL"
        ).fetchall()
    assert found == [
        ("running", True, None),
        ("short", False, "incomplete"),
        ("whole", False, None),
    ]


@pytest.mark.parametrize("zone", ["CST-8", "Asia/Shanghai", "<-0330>3:30"])
def test_the_clock_of_a_log_is_that_of_the_machine_in_any_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        now = datetime.now()
        runs = {
            "now": log_run(run_date=now, ranks_seen=None, complete=False),
            "before": log_run(run_date=now - timedelta(hours=4), ranks_seen=None, complete=False),
        }
        lake = make(tmp_path / "lake", runs)
    finally:
        monkeypatch.undo()
        time.tzset()
    running = "SELECT run_id FROM run_list WHERE running_until IS NOT NULL"
    with duckdb.connect(str(lake.warehouse), read_only=True) as con:
        assert con.execute(running).fetchall() == [("now",)]


def failed(err: str) -> set[str]:
    """Runs that failed the gate."""
    return set(re.findall(r"(\w+)-[0-9a-f]{8}: The run is incomplete", err))
