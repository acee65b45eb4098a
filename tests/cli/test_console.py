"""What is said on standard error: progress, errors as blocks, bugs, and the ends of a command."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TextIO

import pytest

from tests.conftest import Command
from tests.lakes import ingest_and_build
from tests.traces import plan, trace, trace_name, write
from tracelake.base import console
from tracelake.base.console import Console, IngestBar
from tracelake.base.errors import InputError, LakeError, UsageError
from tracelake.cli import ask
from tracelake.ingest import job
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest
from tracelake.lake.store import Lake

TRACELAKE = Path(sys.executable).with_name("tracelake")
Said = Callable[[], list[str]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Lines on standard error since the last call."""

    def lines() -> list[str]:
        return capsys.readouterr().err.splitlines()

    return lines


def raiser(error: BaseException) -> Callable[..., NoReturn]:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


@pytest.mark.parametrize("terminal", ["", "1"])
def test_text_is_said_as_it_is(said: Said, monkeypatch: pytest.MonkeyPatch, terminal: str) -> None:
    monkeypatch.setenv("FORCE_COLOR", terminal)
    monkeypatch.setenv("TERM", "dumb")  # no colours
    Console().say("runs/:smile:/[red]a\x1b")
    Console().warn("x" * 200)
    assert said() == ["runs/:smile:/[red]a\\x1b", f"warning: {'x' * 200}"]


# --- errors ---------------------------------------------------------------------------


def test_an_error_is_one_block(said: Said) -> None:
    cause = PermissionError(errno.EACCES, "Permission denied", "x")
    try:
        raise LakeError("the lake cannot be read", path="a/b", line=7, hint="do this") from cause
    except LakeError as error:
        Console(quiet=True).error(error)
    assert said() == [
        "error: the lake cannot be read",
        "  where: a/b:7",
        "  why:   Permission denied",
        "  next:  do this",
    ]


def test_causes_are_told_from_the_near_to_the_far_and_only_once(said: Said) -> None:
    far = ValueError("the far one")
    near = RuntimeError("the near one")
    near.__cause__ = far
    error = UsageError("it failed")
    error.__cause__ = near
    Console().error(error)
    assert said() == ["error: it failed", "  why:   the near one; the far one"]
    told = UsageError("it failed: the near one")
    told.__cause__ = RuntimeError("the near one")
    Console().error(told)
    assert said() == ["error: it failed: the near one"]


def test_the_traceback_of_an_error_is_printed_on_request(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(console.TRACEBACK, "1")
    try:
        raise InputError("nothing usable")
    except InputError as error:
        Console().error(error)
    lines = said()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "error: nothing usable"


def test_a_bug_says_so_and_its_traceback_is_not_lost(
    tracelake: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask, "print_table", raiser(ZeroDivisionError("by \x1b nothing")))
    result = tracelake("formats", "-o", "a b")
    assert result.code == 1
    lines = result.err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    block = lines[lines.index("error: a bug in tracelake: ZeroDivisionError: by \\x1b nothing") :]
    labels = [line.split(":")[0].strip() for line in block[1:]]
    assert labels == ["where", "command", "version", "traceback", "next"]
    assert re.search(r"test_console\.py:\d+ in fail$", block[1])
    assert block[2].endswith("tracelake formats -o 'a b'")
    assert re.search(r"tracelake \d+\.\d+\S*, Python 3", block[3])


def test_on_a_terminal_the_traceback_of_a_bug_goes_to_a_file(
    said: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # what makes rich take a stream for a terminal
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    try:
        raise KeyError("missing")
    except KeyError as error:
        Console().bug(error)
    (kept,) = tmp_path.iterdir()
    lines = said()
    assert lines[0].startswith("error: a bug in tracelake: KeyError: 'missing'")
    assert ["traceback:", str(kept)] in [line.split() for line in lines]
    text = kept.read_text()
    assert "Traceback (most recent call last):" in text
    assert 'raise KeyError("missing")' in text


def test_a_traceback_that_no_file_takes_is_printed(
    said: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    try:
        raise KeyError("missing")
    except KeyError as error:
        Console().bug(error)
    assert said()[0] == "Traceback (most recent call last):"


def test_what_the_system_refuses_is_no_bug(
    tracelake: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "lake/part")
    monkeypatch.setattr(ask, "print_table", raiser(full))
    result = tracelake("formats")
    assert result.code == 3
    assert result.err.splitlines()[:2] == ["error: No space left on device", "  where: lake/part"]
    monkeypatch.setattr(ask, "print_table", raiser(FileNotFoundError(errno.ENOENT, "gone", "x")))
    assert tracelake("formats").code == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_output_that_does_not_arrive_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [TRACELAKE, "formats"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 3
    assert done.stderr.splitlines()[0] == "error: No space left on device"


@pytest.fixture
def closed() -> Iterator[TextIO]:
    """A pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        yield pipe


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("console")
    archive = write(folder / "in", {trace_name(0, world=1): trace(0)})
    return ingest_and_build(archive, folder / "lake").root


@pytest.mark.parametrize("arguments", [["describe"], ["show", "latest"], ["show", "-h"], ["-h"]])
def test_a_reader_that_has_enough_ends_the_command_quietly(
    lake: Path, closed: TextIO, arguments: list[str]
) -> None:
    done = subprocess.run(
        [TRACELAKE, *arguments],
        stdout=closed,
        stderr=subprocess.PIPE,
        env={**os.environ, "TRACELAKE_LAKE": str(lake)},
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (141, "")


def test_a_summary_says_that_the_reader_of_the_output_has_gone(
    closed: TextIO, tmp_path: Path
) -> None:
    archive = write(tmp_path / "in", {trace_name(0, world=1): trace(0)})
    summary = tmp_path / "summary.json"
    lake = tmp_path / "lake"
    command: list[str | Path] = [TRACELAKE, "run", archive, "--lake", lake, "--summary", summary]
    done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, check=False)
    told = json.loads(summary.read_text())
    assert (done.returncode, told["exit_code"]) == (141, 141)
    assert told["errors"][0]["what"] == "interrupted before the end"


@pytest.mark.parametrize("form", ["text", "json"])
def test_work_goes_on_when_nobody_reads_its_notes(
    closed: TextIO, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACELAKE_LOG_FORMAT", form)
    archive = write(tmp_path / "in", {trace_name(0, world=1): trace(0)})
    command: list[str | Path] = [TRACELAKE, "run", archive, "--lake", tmp_path / "lake"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=closed, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == f"warehouse: {tmp_path}/lake/warehouse.duckdb"
    absent: list[str | Path] = [TRACELAKE, "build", "--lake", tmp_path / "absent"]
    assert subprocess.run(absent, stderr=closed, check=False).returncode == 3


def test_an_interrupt_is_one_line(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [TRACELAKE, "ingest", "-", "--lake", tmp_path / "lake"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    staging = tmp_path / "lake" / "_staging"
    deadline = time.monotonic() + 120
    while not (staging.is_dir() and list(staging.iterdir())):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.2)  # so that it waits for its input
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (130, "interrupted\n")


# --- progress -------------------------------------------------------------------------


class Counts:
    """Adds up what an ingest says of its progress."""

    def __init__(self) -> None:
        self.planned_files = self.chunks = self.weight = self.files = self.rejected = 0

    def planned(self, runs: int, files: int, weight: int) -> None:
        assert (runs, weight > 0) == (2, True)
        self.planned_files = files

    def advance(self, weight: int, files: int, rejected: int) -> None:
        self.chunks += 1
        self.weight += weight
        self.files += files
        self.rejected += rejected


def test_an_ingest_tells_files_and_rejects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "CHUNK_BYTES", 1 << 16)  # so that a file is several chunks
    ranks: dict[str, str | bytes] = {trace_name(r, world=3): trace(r) for r in range(3)}
    ranks[trace_name(1, world=3)] = "rank:1:broken\n" + trace(1, steps=1000)
    archive = write(tmp_path / "in", {**ranks, "plan.txt": plan(3)})
    counts = Counts()
    done = ingest([str(archive)], Lake.create(tmp_path / "lake"), Options(), progress=counts)
    assert counts.chunks > 4
    assert counts.planned_files == counts.files == 4
    assert counts.rejected == done.rejected == 1
    assert counts.weight == done.bytes


def test_a_log_gets_a_line_now_and_then(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Console().bar() as bar:
        bar.planned(2, 10, 100_000_000)
        for _ in range(12):
            now[0] += 1.0
            bar.advance(2_500_000, 0, 0)
        bar.advance(0, 3, 4)
        now[0] += 8.0
        bar.advance(5_000_000, 1, 0)
    assert said() == [
        "read 25.00 MB of 100.00 MB, 2.50 MB/s, 0:00:30 left, 0 of 10 files",
        "read 35.00 MB of 100.00 MB, 1.75 MB/s, 0:00:38 left, 4 of 10 files, 4 rejected",
    ]
    with Console().bar() as bar:
        bar.planned(1, 1, 100_000_000)
        for at in (11.0, 61.0):
            now[0] += at
            bar.advance(1_000_000, 0, 0)
    assert said() == [
        "read 1.00 MB of 100.00 MB, 90.91 kB/s, 0 of 1 file",
        "read 2.00 MB of 100.00 MB, 27.78 kB/s, 1:39:38 left, 0 of 1 file",
    ]
    with Console(quiet=True).bar() as bar:
        bar.planned(1, 1, 10)
        now[0] += 100.0
        bar.advance(10, 1, 0)
    assert said() == []


def test_a_bar_shows_no_time_left_before_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    now, shown = [0.0], list[tuple[float, str]]()

    class Drawn:
        def update(self, **fields: Any) -> None:
            if "left" in fields:
                shown.append((now[0], fields["left"]))

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    drawn: Any = Drawn()
    bar = IngestBar(Console(), drawn)
    bar.planned(1, 1, 500_000)
    now[0] = 20.0  # parsers compiled until here
    for _ in range(8):
        now[0] += 1.0
        bar.advance(10_000, 0, 0)
    assert shown[:5] == [(at, "") for at in (21.0, 22.0, 23.0, 24.0, 25.0)]
    assert shown[5:] == [(26.0, "0:00:44 left"), (27.0, "0:00:43 left"), (28.0, "0:00:42 left")]


def test_phases_are_said_when_they_take_long(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now[0])
        with Console().doing("building") as tell:
            for step in range(25):
                now[0] += 1.0
                tell(f"{step} of 25")
    assert said() == ["building: 9 of 25", "building: 19 of 25"]
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Console(quiet=True).doing("building") as tell:
        tell("1 of 25")
    assert said() == []
    with Console().doing("building") as tell:
        tell("1 of 25")
    assert any("building: 1 of 25" in line for line in said())


def test_a_terminal_sees_a_bar_that_is_gone_at_the_end(tmp_path: Path) -> None:
    archive = write(tmp_path / "in", {trace_name(0, world=1): trace(0, steps=50)})
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    process = subprocess.Popen(
        [TRACELAKE, "ingest", archive, "--lake", tmp_path / "lake"], stderr=slave, env=environment
    )
    os.close(slave)
    told = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        told += piece
    os.close(master)
    assert process.wait(60) == 0
    text = told.decode()
    assert "reading 1 run" in text
    after = text.rpartition("\x1b[2K")[2]  # what stands when the bar's line is erased
    assert after.splitlines()[0] == "1 run: 1 new"


def test_what_was_done_is_printed_for_programs(tracelake: Command, tmp_path: Path) -> None:
    archive = write(tmp_path / "in", {trace_name(0, world=1): trace(0), "notes.txt": "x"})
    lake = ["--lake", str(tmp_path / "lake"), "--format", "json"]
    (planned, skipped) = json.loads(tracelake("ingest", archive, "--dry-run", *lake).out)
    (done, passed) = json.loads(tracelake("ingest", archive, *lake).out)
    assert {"status": "new", "format": "rank_trace", "files": 1, "rows": None}.items() <= (
        planned.items()
    )
    assert done["run_id"] == planned["run_id"]
    assert {"status": "new", "lines": 3, "rows": 3, "rejected": 0}.items() <= done.items()
    assert skipped == passed
    assert (passed["status"], passed["path"], passed["reason"]) == (
        "skipped",
        "notes.txt",
        "no_format",
    )
    (again, _) = json.loads(tracelake("ingest", archive, *lake).out)
    assert (again["status"], again["lines"]) == ("unchanged", None)
    built = [{"status": "computed", "run_id": done["run_id"]}]
    assert json.loads(tracelake("build", *lake).out) == built
    assert json.loads(tracelake("build", *lake).out) == []
    assert json.loads(tracelake("check", *lake).out) == []
