"""What commands leave in the lake's record, and what they say on standard error to programs."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.conftest import Command
from tests.lakes import Template
from tests.tiny_lakes import commit_run, log_run
from tests.traces import plan, write
from tracelake.base.console import JsonConsole
from tracelake.base.errors import LakeError
from tracelake.base.metrics import count, measuring, phase
from tracelake.lake import run_records
from tracelake.lake.run_records import add_record, records_file, records_table
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.models.describe import describe
from tracelake.warehouse.warehouse import open_warehouse

TRACELAKE = Path(sys.executable).with_name("tracelake")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("archive"), {"one.txt": plan(3), "notes.md": "no trace\n"})


@pytest.fixture(scope="module")
def made(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Template:
    """A lake with the records of an ingest and a build."""
    lake = tmp_path_factory.mktemp("made") / "lake"
    for words in (["ingest", archive], ["build"]):
        subprocess.run([TRACELAKE, *words, "--lake", lake], check=True, capture_output=True)
    return Template.of(Lake.open(lake))


@pytest.fixture
def lake(made: Template) -> Path:
    return made.again().root


def recorded(lake: Path, columns: str = "*") -> list[dict[str, Any]]:
    with open_warehouse(Lake.open(lake)) as con:
        found = con.execute(f"SELECT {columns} FROM tracelake_runs ORDER BY started")
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def raiser(error: BaseException) -> Callable[..., NoReturn]:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


def test_a_command_records_what_it_did(archive: Path, tmp_path: Path, tracelake: Command) -> None:
    lake = tmp_path / "lake"
    assert tracelake("run", archive, "--lake", lake, "--since", "24h", "--post", "true").code == 0
    (entry,) = recorded(lake)
    assert (entry["command"], entry["exit_code"], entry["error"]) == ("run", 0, None)
    assert (entry["runs_found"], entry["runs_written"], entry["files_read"]) == (1, 1, 1)
    assert (entry["lines_read"], entry["rows_written"], entry["lines_rejected"]) == (5, 9, 0)
    assert entry["bytes_read"] == (archive / "one.txt").stat().st_size
    assert (entry["inputs_skipped"], entry["runs_built"], entry["runs_dropped"]) == (1, 1, 0)
    assert entry["report_bytes"] == (lake / "report.html").stat().st_size
    assert entry["files_removed"] is None
    options = entry["options"]
    assert options["inputs"] == str(archive)
    assert (options["since"], options["post"]) == ("24h", "...")
    assert "quiet" not in options
    phases = entry["phases"]
    assert {"find", "plan", "parse", "write", "commit", "build", "report"} <= phases.keys()
    assert {"build:plans", "build:fleet"} <= phases.keys()
    assert 0 < phases["build:plans"] < phases["build"] < entry["duration_ns"]


@pytest.mark.parametrize("name", ["ingest", "build", "report", "drop", "gc"])
def test_every_command_that_works_on_a_lake_is_recorded(
    archive: Path, lake: Path, tmp_path: Path, tracelake: Command, name: str
) -> None:
    (run_id,) = Lake.open(lake).snapshot().runs
    given: dict[str, list[str | Path]] = {
        "ingest": [archive],
        "report": ["-o", tmp_path / "page.html"],
        "drop": [run_id],
    }
    assert tracelake(name, *given.get(name, []), "--lake", lake).code == 0
    assert [entry["command"] for entry in recorded(lake)] == ["ingest", "build", name]


def test_a_command_that_only_looks_leaves_nothing(
    archive: Path, lake: Path, tmp_path: Path, tracelake: Command
) -> None:
    tracelake("ingest", archive, "--lake", tmp_path / "lake", "--dry-run")
    assert not (tmp_path / "lake").exists()
    for words in (["gc", "--dry-run"], ["query", "SELECT 1"], ["check"], ["runs"]):
        assert tracelake(*words, "--lake", lake).code == 0
    assert len(recorded(lake)) == 2


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (LakeError("it is gone", path="x"), 3, "it is gone"),
        (OSError(errno.ENOSPC, "No space left on device"), 3, "OSError: [Errno 28] No space left"),
        (ZeroDivisionError("by nothing"), 1, "ZeroDivisionError: by nothing"),
    ],
)
def test_a_command_that_fails_is_recorded(
    lake: Path,
    tmp_path: Path,
    tracelake: Command,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    told: str,
) -> None:
    monkeypatch.setattr("tracelake.output.html.page.write_report", raiser(error))
    assert tracelake("report", "-o", tmp_path / "x.html", "--lake", lake).code == code
    last = recorded(lake, "started, command, exit_code, error")[-1]
    assert (last["command"], last["exit_code"]) == ("report", code)
    assert last["error"].startswith(told)


def test_an_interrupted_command_is_recorded(
    lake: Path, tmp_path: Path, tracelake: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:

        def stop(*_: object, **__: object) -> None:
            signal.raise_signal(signal.SIGTERM)

        patched.setattr("tracelake.output.html.page.write_report", stop)
        code = tracelake("report", "-o", tmp_path / "x.html", "--lake", lake).code
    last = recorded(lake)[-1]
    assert (code, last["exit_code"], last["error"]) == (143, 143, "interrupted")


def test_a_record_that_cannot_be_written_fails_no_command(
    archive: Path, tmp_path: Path, tracelake: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    for number, said in ((errno.EIO, True), (errno.EACCES, False)):
        error = OSError(number, "it does not work")
        monkeypatch.setattr(run_records, "add_record", raiser(error))
        result = tracelake("ingest", archive, "--lake", lake, "--quiet")
        assert result.code == 0
        assert ("warning: the lake has no record of this command" in result.err) is said


def test_a_lake_without_records_has_the_relation(tmp_path: Path, tracelake: Command) -> None:
    lake = Lake.create(tmp_path / "lake")
    commit_run(lake, "a", log_run())
    build(lake)
    assert not records_file(lake.root).exists()
    assert recorded(lake.root) == []
    described = tracelake("describe", "tracelake_runs", "--format", "ndjson").out.splitlines()
    with open_warehouse(lake) as con:
        columns = con.execute("DESCRIBE tracelake_runs").fetchall()
    assert [(c[0], c[1]) for c in columns] == [
        (row["column"], row["type"]) for row in map(json.loads, described)
    ]
    assert "tracelake_runs" in describe().column("name").to_pylist()


def test_a_lake_that_was_moved_has_its_records(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake's")
    commit_run(lake, "a", log_run())
    build(lake)
    add_record(lake, {"command": "build", "phases": {"build": 7}})
    shutil.move(lake.root, tmp_path / "moved")
    assert recorded(tmp_path / "moved", "started, command, phases") == [
        {"started": None, "command": "build", "phases": {"build": 7}}
    ]


def test_only_the_newest_records_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_records, "KEPT_RECORDS", 3)
    lake = Lake.create(tmp_path / "lake")
    for number in range(5):
        add_record(lake, {"pid": number})
    lines = records_file(lake.root).read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"pid": 2}, {"pid": 3}, {"pid": 4}]


def test_measures_add_up_and_belong_to_those_who_measure() -> None:
    count(runs_built=1)
    with measuring() as outer:
        with phase("find"), measuring() as inner:
            count(runs_built=2)
        count(runs_built=3)
    assert outer.amounts == {"runs_built": 5}
    assert inner.amounts == {"runs_built": 2}
    assert outer.phases["find"] > 0
    assert not inner.phases


def test_columns_are_documented() -> None:
    for column in records_table().columns:
        assert column.doc.endswith(".")
        assert (column.unit == "ns") == (column.name in {"duration_ns", "phases"})


# --- --log-format -------------------------------------------------------------------------


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_line_is_an_object_when_asked_for(
    archive: Path, tmp_path: Path, tracelake: Command
) -> None:
    lake = tmp_path / "lake"
    result = tracelake("--log-format", "json", "ingest", archive, "--lake", lake)
    said = objects(result.err)
    assert {(line["level"], line["event"]) for line in said} == {("info", "note")}
    assert "1 run: 1 new" in [line["message"] for line in said]
    for line in said:
        assert datetime.fromisoformat(line["time"]).utcoffset() is not None
    quiet = tracelake("--log-format", "json", "ingest", archive, "--lake", lake, "--quiet")
    assert quiet.err == ""


def test_an_error_is_an_object_with_what_to_do(
    tmp_path: Path, tracelake: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACELAKE_LOG_FORMAT", "json")
    result = tracelake("build", "--lake", tmp_path / "none\x1b")
    (said,) = objects(result.err)
    assert (result.code, said["level"], said["event"]) == (3, "error", "error")
    assert said["message"] == "not a lake"
    assert said["where"].endswith("none\x1b")
    assert said["next"].startswith("make one with: tracelake run --lake '")
    assert said["next"].endswith("' INPUT")
    assert "\x1b" not in result.err
    monkeypatch.delenv("TRACELAKE_LOG_FORMAT")
    assert tracelake("build", "--lake", tmp_path / "none").err.startswith("error: not a lake\n")


def test_a_bug_is_objects_too(tracelake: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracelake.cli.ask.print_table", raiser(ZeroDivisionError("by nothing")))
    result = tracelake("--log-format", "json", "formats")
    trace, said = objects(result.err)
    assert trace["event"] == "traceback"
    assert trace["message"].startswith("Traceback (most recent call last):")
    assert said["message"] == "a bug in tracelake: ZeroDivisionError: by nothing"


def test_an_interrupt_is_an_object(tracelake: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("tracelake.cli.ask.print_table", stop)
    result = tracelake("--log-format", "json", "formats")
    assert (result.code, [line["event"] for line in objects(result.err)]) == (130, ["interrupted"])


def test_progress_has_its_figures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracelake.base.console._PLAIN_SECONDS", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")  # what makes rich take a stream for a terminal
    console = JsonConsole()
    with console.bar() as bar:
        bar.planned(2, 3, 4_000)
        bar.advance(1_000, 1, 7)
    with console.doing("building") as told:
        told("step 1")
    console.warn("look out")
    read, built, warned = objects(capsys.readouterr().err)
    figures = {"bytes": 1_000, "bytes_total": 4_000, "files": 1, "files_total": 3, "rejected": 7}
    assert figures.items() <= read.items()
    assert (read["event"], built["event"], warned["level"]) == ("progress", "progress", "warning")
    assert (built["doing"], built["step"]) == ("building", "step 1")
    with JsonConsole(quiet=True).bar() as bar:
        bar.planned(1, 1, 1)
        bar.advance(1, 1, 0)
    assert capsys.readouterr().err == ""
