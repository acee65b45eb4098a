"""The command as a user meets it: streams, exit codes, and what a message says."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import typer

from tests.conftest import Command
from tests.lakes import Template, few_models, ingest_and_build, run_ingest, statuses, unchanged
from tests.traces import op, plan, trace, trace_name, write
from tracelake import run
from tracelake.base.text import with_lake
from tracelake.cli import app
from tracelake.lake.store import Lake


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ranks = {f"job/{trace_name(r)}": trace(r, steps=3) for r in range(2)}
    given = {**ranks, "plan.txt": plan(3), "notes": "text\n"}
    return write(tmp_path_factory.mktemp("archive"), {**given})


@pytest.fixture(scope="module")
def asked(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A lake for all that only ask."""
    lake = tmp_path_factory.mktemp("asked") / "lake"
    ingest_and_build(archive, lake)
    with unchanged(lake):
        yield lake


@pytest.fixture(scope="module")
def made(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Template:
    lake = tmp_path_factory.mktemp("made") / "lake"
    run(archive, lake)
    return Template.of(Lake.open(lake))


@pytest.fixture
def built(made: Template) -> Path:
    """A lake that a test may change."""
    return made.again().root


def test_help_lists_every_command_once_under_a_heading(tracelake: Command) -> None:
    shown = tracelake("--help").out
    listed = shown[shown.index("Read logs and report:") :].splitlines()
    names = [line.split()[0] for line in listed if line.startswith("  ") and line[2] != " "]
    assert names[0] == "run"
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert sorted(names) == sorted(name for name, one in commands.items() if not one.hidden)
    assert "..." not in shown[shown.index("Read logs") :]


def test_messages_name_the_lake_in_each_command_that_has_one() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, command in commands.items():
        named = with_lake(f"list them: tracelake {name}", "my lake")
        has_lake = any(parameter.name == "lake" for parameter in command.params)
        assert named.endswith(f"{name} --lake 'my lake'" if has_lake else name), named


def test_run_is_the_main_job(tracelake: Command, archive: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    result = tracelake("run", archive, "--lake", lake, "--report", tmp_path / "page.html")
    assert result.code == 0
    assert f"report:    {tmp_path / 'page.html'}" in result.out
    assert f"warehouse: {lake / 'warehouse.duckdb'}" in result.out
    assert "2 runs (1 without steps)" in result.out
    assert "2 runs: 2 new" in result.err
    assert "skipped 1 file of unknown format: notes\n" in result.err
    assert "<html" in (tmp_path / "page.html").read_text()


def test_a_second_run_says_that_there_is_nothing_to_do(
    tracelake: Command, archive: Path, built: Path
) -> None:
    with unchanged(built):
        result = tracelake("run", archive, "--lake", built)
    assert result.code == 0
    assert "2 runs: 2 unchanged" in result.err


def test_quiet_leaves_only_results(tracelake: Command, archive: Path, built: Path) -> None:
    result = tracelake("run", archive, "--lake", built, "--quiet")
    assert (result.code, result.err) == (0, "")


def test_ingest_then_build_then_query(tracelake: Command, archive: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    assert tracelake("ingest", archive, "--lake", lake).out == ""
    missing = tracelake("query", "SELECT 1", "--lake", lake)
    assert missing.code == 3
    assert "tracelake build" in missing.err
    with few_models():
        assert tracelake("build", "--lake", lake).code == 0
        assert tracelake("build", "--lake", lake, "--full").code == 0
    answer = tracelake("query", "SELECT count(*) AS n FROM ops", "--lake", lake, "--format", "csv")
    assert (answer.code, answer.out) == (0, '"n"\n18\n')


def test_ingest_dry_run_writes_nothing(tracelake: Command, archive: Path, tmp_path: Path) -> None:
    result = tracelake("ingest", archive, "--lake", tmp_path / "lake", "--dry-run")
    assert result.code == 0
    assert [line.split()[:2] for line in result.out.splitlines()] == [
        ["new", "aicb_workload"],
        ["new", "rank_trace"],
        ["skipped", "no_format"],
    ]
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("output_format", "expected"),
    [
        ("json", [{"rank": 0, "op": "forward_step"}]),
        ("ndjson", {"rank": 0, "op": "forward_step"}),
        ("csv", '"rank","op"\n0,"forward_step"\n'),
        ("markdown", "| rank | op           |"),
        ("table", "forward_step"),
    ],
)
def test_query_prints_in_the_format_asked_for(
    tracelake: Command, asked: Path, output_format: str, expected: object
) -> None:
    sql = "SELECT rank, op FROM ops ORDER BY rank, seq LIMIT 1"
    result = tracelake("query", sql, "--lake", asked, "--format", output_format)
    assert result.code == 0
    if output_format in ("json", "ndjson"):
        assert json.loads(result.out) == expected
    elif output_format == "csv":
        assert result.out == expected
    else:
        assert str(expected).replace(" ", "") in result.out.replace(" ", "")


def test_query_reads_files_and_writes_files(
    tracelake: Command, asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "q.sql").write_text("SELECT DISTINCT rank FROM ops ORDER BY rank")
    out = tmp_path / "answer.parquet"
    monkeypatch.setenv("TRACELAKE_LAKE", str(asked))
    assert tracelake("query", "-f", tmp_path / "q.sql", "--format", "parquet", "-o", out).code == 0
    assert pq.read_table(out).to_pydict() == {"rank": [0, 1]}
    absent = tracelake("query", "-f", tmp_path / "absent.sql")
    assert (absent.code, "query: No such file or directory\n" in absent.err) == (2, True)
    for words in (["-"], ["-f", "-"]):
        monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 7"))
        assert tracelake("query", *words, "--format", "csv").out.split() == ['"7"', "7"]
    assert tracelake("query", "SELECT 1", "-f", tmp_path / "q.sql").code == 2
    assert tracelake("query").code == 2


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM run_summary",
        "COPY ops TO '{lake}/x.csv'",
        "ATTACH '{lake}/other.duckdb'",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT nonsense FROM ops",
        "SELEC 1",
    ],
)
def test_query_refuses_what_is_no_question_about_the_lake(
    tracelake: Command, asked: Path, sql: str
) -> None:
    result = tracelake("query", sql.format(lake=asked), "--lake", asked)
    assert result.code == 2
    assert result.out == ""
    assert "error:" in result.err


def test_runs_and_report(tracelake: Command, asked: Path, tmp_path: Path) -> None:
    listed = json.loads(tracelake("runs", "--lake", asked, "--format", "json").out)
    assert [run["format"] for run in listed] == ["rank_trace", "aicb_workload"]
    page = tmp_path / "deep" / "page.html"
    chosen = tracelake("report", "--lake", asked, "-o", page, "--run", listed[0]["run_id"])
    assert chosen.code == 0
    assert listed[0]["run_id"] in page.read_text()
    assert tracelake("report", "--lake", asked, "-o", page, "--run", "nobody").code == 2
    assert tracelake("report", "--lake", asked, "-o", page, "--since", "yesterday").code == 2
    assert tracelake("report", "--lake", asked, "-o", page, "--since", "24h").code == 0


def test_describe_and_formats_need_no_lake(tracelake: Command) -> None:
    everything = json.loads(tracelake("describe", "--format", "json").out)
    assert {"ops", "rank_bubbles", "run_summary"} <= {row["name"] for row in everything}
    columns = json.loads(tracelake("describe", "ops", "--format", "json").out)
    assert {"column": "duration_ns", "type": "BIGINT", "unit": "ns"}.items() <= next(
        row for row in columns if row["column"] == "duration_ns"
    ).items()
    unknown = tracelake("describe", "opps")
    assert unknown.code == 2
    assert "ops" in unknown.err
    assert [f["format"] for f in json.loads(tracelake("formats", "--format", "json").out)] == [
        "aicb_workload",
        "kineto",
        "megascan",
        "nccl_debug",
        "nccl_tests",
        "nccl_tests_json",
        "optimus",
        "rank_trace",
        "straggler_analysis",
        "torchtitan_spans",
        "training_log",
    ]
    assert "line_too_long" in tracelake("formats", "rank_trace").out
    assert tracelake("formats", "nvlog").code == 2


def test_check_passes_on_a_good_lake_and_finds_a_missing_part(
    tracelake: Command, built: Path
) -> None:
    assert tracelake("check", "--lake", built).code == 0
    next((built / "ops").rglob("*.parquet")).unlink()
    result = tracelake("check", "--lake", built)
    assert result.code == 5
    assert "part-" in result.out


def test_synth_writes_an_archive_that_ingest_reads(tracelake: Command, tmp_path: Path) -> None:
    made = tracelake("synth", tmp_path / "made", "--tp", "1", "--pp", "2", "--steps", "3")
    assert made.code == 0
    answers = json.loads((tmp_path / "made" / "answers.json").read_text())
    assert answers["runs"]
    assert tracelake("ingest", tmp_path / "made", "--lake", tmp_path / "lake").code == 0
    assert tracelake("synth", tmp_path / "made").code == 2
    assert tracelake("synth", tmp_path / "other", "--layers", "3", "--pp", "2").code == 2
    none = tracelake("synth", tmp_path / "other", "--ranks", "2", "--tp", "0")
    assert (none.code, "tp is 0" in none.err) == (2, True)


def test_too_many_bad_lines_end_with_3_and_keep_everything(
    tracelake: Command, tmp_path: Path
) -> None:
    text = trace(0) + "rank:0:broken\n"
    folder = write(tmp_path / "in", {trace_name(0, world=1): text})
    result = tracelake("run", folder, "--lake", tmp_path / "lake")
    assert result.code == 3
    assert "--max-bad-ratio" in result.err
    sql = "SELECT line, text FROM rejects"
    kept = tracelake("query", sql, "--lake", tmp_path / "lake", "--format", "csv")
    assert kept.out == '"line","text"\n4,"rank:0:broken"\n'
    allowed = tracelake("ingest", folder, "--lake", tmp_path / "other", "--max-bad-ratio", "0.5")
    assert allowed.code == 0


def test_errors_name_where_and_what_next(tracelake: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    result = tracelake("run", tmp_path, "--lake", tmp_path / "file")
    assert result.code == 3
    assert result.out == ""
    assert [line.split(":")[0].strip() for line in result.err.splitlines()] == [
        "error",
        "where",
        "why",
        "next",
    ]
    assert tracelake("build", "--lake", tmp_path / "absent").code == 3
    assert tracelake("run", "--lake", tmp_path / "lake").code == 2
    assert tracelake("run", tmp_path, "--lake", tmp_path / "l", "--set", "tp=x").code == 2


@pytest.mark.parametrize("command", ["run", "ingest"])
def test_no_lake_is_made_for_an_input_that_is_not_there(
    tracelake: Command, tmp_path: Path, command: str
) -> None:
    for name in ("absent", "*.log"):
        done = tracelake(command, tmp_path / name, "--lake", tmp_path / "lake")
        assert (done.code, "check its spelling" in done.err) == (3, True)
    assert not (tmp_path / "lake").exists()


def test_control_characters_do_not_reach_the_terminal(tracelake: Command, tmp_path: Path) -> None:
    result = tracelake("run", tmp_path / "a\x1b[31mred", "--lake", tmp_path / "lake")
    assert result.code == 3
    assert "\x1b" not in result.err


def test_standard_input_is_an_input(tmp_path: Path) -> None:
    executable = Path(sys.executable).with_name("tracelake")
    done = subprocess.run(
        [executable, "ingest", "-", "--lake", tmp_path / "lake"],
        input=plan(3).encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"1 run: 1 new" in done.stderr


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_with_its_code_and_leaves_no_half(
    tmp_path: Path, signum: signal.Signals, code: int
) -> None:
    jobs = 100
    steps = "".join(op(0, "forward_step", 1000.0 + 20 * i, 10.0) for i in range(2000))
    folder = tmp_path / "in"
    for job in range(jobs):
        name = f"job{job}/{trace_name(0, world=1, stamp=str(20250101000000 + job))}"
        write(folder, {name: op(0, "get_batch", float(job), 1.0) + steps})
    executable = Path(sys.executable).with_name("tracelake")
    process = subprocess.Popen(
        [executable, "ingest", folder, "--lake", tmp_path / "lake", "--jobs", "1"],
        stderr=subprocess.DEVNULL,
    )
    manifests = tmp_path / "lake" / "_manifest"
    deadline = time.monotonic() + 120
    while not list(manifests.glob("*.json")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signum)
    assert process.wait(60) == code
    done = Lake.open(tmp_path / "lake").snapshot()
    assert 0 < len(done.runs) < jobs
    assert all((tmp_path / "lake" / part).is_file() for part in done.all_parts)
    assert statuses(run_ingest(folder, tmp_path / "lake")).count("unchanged") == len(done.runs)
    assert len(Lake.open(tmp_path / "lake").snapshot().runs) == jobs
