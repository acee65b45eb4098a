"""Files that a user names as outputs: devices, pipes and links stay; a failure writes nothing."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.traces import plan
from tracelake.lake.store import Lake

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")


@pytest.fixture(scope="module")
def lake(log_lake: Lake) -> Lake:
    return log_lake


WRITERS = pytest.mark.parametrize(
    "words",
    [["report"], ["query", "FROM runs", "--format", "csv"]],
    ids=lambda words: words[0],
)


@WRITERS
def test_a_device_a_pipe_and_a_link_stay_what_they_are(
    tracelake: Command, lake: Lake, tmp_path: Path, words: list[str]
) -> None:
    def write(out: Path) -> None:
        done = tracelake(*words, "--lake", lake.root, "-o", out)
        assert done.code == 0, done.err

    plain, pipe, link, dangling = (tmp_path / name for name in ("plain", "pipe", "link", "new"))
    write(plain)
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write(pipe)
    reader.join()
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert len(read[0]) == pytest.approx(plain.stat().st_size, rel=0.01)

    (tmp_path / "site").mkdir()
    target = tmp_path / "site" / "page"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to("site/page")
    dangling.symlink_to(tmp_path / "site" / "made")
    for path, leads in ((link, target), (dangling, tmp_path / "site" / "made")):
        write(path)
        assert path.is_symlink()
        assert leads.stat().st_size == pytest.approx(plain.stat().st_size, rel=0.01)
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path / "site")) == ["made", "page"]


@WRITERS
def test_a_dash_is_standard_output(
    tracelake: Command,
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tracelake(*words, "--lake", lake.root, "-o", "-").out
    assert not os.listdir(tmp_path)


@AS_ROOT
@WRITERS
def test_a_full_device_is_an_error_and_stays(
    tracelake: Command, lake: Lake, tmp_path: Path, words: list[str]
) -> None:
    full = tmp_path / "full"
    os.mknod(full, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
    done = tracelake(*words, "--lake", lake.root, "-o", full)
    assert (done.code, "No space left" in done.err) == (3, True), done.err
    assert stat.S_ISCHR(full.lstat().st_mode)


@AS_ROOT
def test_a_job_writes_its_summary_and_report_into_devices(
    tracelake: Command, tmp_path: Path
) -> None:
    null = tmp_path / "null"
    os.mknod(null, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    (tmp_path / "plan.txt").write_text(plan(2))
    names = ("--report", null, "--summary", null)
    done = tracelake("run", tmp_path / "plan.txt", "--lake", tmp_path / "lake", *names)
    assert done.code == 0, done.err
    assert stat.S_ISCHR(null.lstat().st_mode)


@pytest.mark.parametrize("how", ["--timeout", "last rows"])
def test_a_query_that_fails_leaves_the_old_file(
    tracelake: Command, lake: Lake, tmp_path: Path, how: str
) -> None:
    out = tmp_path / "answer.csv"
    out.write_text("old answer\n")
    rows = "SELECT i AS x FROM range(3_000_000) t(i)"
    sql, more = {
        "--timeout": ("SELECT sin(i) FROM range(4_000_000_000) t(i)", ("--timeout", "0.3")),
        "last rows": (f"{rows}; SELECT error('at the end')", ()),
    }[how]
    done = tracelake("query", sql, "--lake", lake.root, "-o", out, "--format", "csv", *more)
    assert done.code == 2, done.err
    assert out.read_text() == "old answer\n"
    assert os.listdir(tmp_path) == ["answer.csv"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["report", "-o", "LAKE/warehouse.duckdb"], "--output names a file in the lake"),
        (["report", "-o", "LINK/_manifest/a.json"], "--output names a file in the lake"),
        (["query", "SELECT 1", "-o", "LAKE/runs/x"], "--output names a file in the lake"),
        (["check", "-o", "LAKE/report.md"], "--output names a file in the lake"),
        (["timeline", "a", "-o", "LAKE/x.json"], "--output names a file in the lake"),
        (["report", "-o", "/"], "--output names a directory"),
        (["report", "-o", ""], "--output names a directory"),
        (["timeline", "a", "-o", ""], "--output names a directory"),
        (["whatif", "a", "--fix", "rank=0", "--draw", ""], "--draw names a directory"),
        (["runs", "-o", "LAKE"], "--output names a directory"),
        (["timeline", "a", "-o", "LOOP"], "Too many levels of symbolic links"),
        (["report", "-o", "x" * 300], "File name too long"),
        (["report", "-o", "s3://bucket/page.html"], "cannot be written to a URI"),
        (["report", "-o", "PIPE", "--format", "markdown"], "or a device"),
    ],
)
def test_an_output_that_would_damage_something_is_refused(
    tracelake: Command, lake: Lake, tmp_path: Path, words: list[str], told: str
) -> None:
    (tmp_path / "link").symlink_to(lake.root)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    places = {
        "LAKE": lake.root,
        "LOOP": tmp_path / "loop",
        "LINK": tmp_path / "link",
        "PIPE": tmp_path / "pipe",
    }
    for name, place in places.items():
        words = [word.replace(name, str(place)) for word in words]
    before = (lake.root / "warehouse.duckdb").read_bytes()
    done = tracelake(*words, "--lake", lake.root)
    assert (done.code, told in done.err) == (2, True), done.err
    assert (lake.root / "warehouse.duckdb").read_bytes() == before


def test_the_page_of_the_lake_may_be_written_again(tracelake: Command, lake: Lake) -> None:
    page = lake.root / "report.html"
    assert tracelake("report", "--lake", lake.root, "-o", page).code == 0
    assert page.stat().st_size > 1000


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["--report", "OUT/x", "--summary", "OUT/../out/x"], "name the same file"),
        (["--report", "OUT/{date}", "--summary", "OUT/{date}"], "name the same file"),
        (["--summary", "LAKE/report.html"], "name the same file"),
        (["--summary", "LAKE/_run/owed.json"], "--summary names a file in the lake"),
        (["--report", ""], "--report names a directory"),
        (["--summary", "OUT"], "--summary names a directory"),
    ],
)
def test_a_job_refuses_outputs_before_any_work(
    tracelake: Command, tmp_path: Path, names: list[str], told: str
) -> None:
    (tmp_path / "plan.txt").write_text(plan(2))
    (tmp_path / "out").mkdir()
    lake = tmp_path / "lake"
    words = [w.replace("OUT", str(tmp_path / "out")).replace("LAKE", str(lake)) for w in names]
    done = tracelake("run", tmp_path / "plan.txt", "--lake", lake, *words)
    assert (done.code, told in done.err) == (2, True), done.err
    assert not lake.exists()


def test_a_long_name_is_a_name(tracelake: Command, lake: Lake, tmp_path: Path) -> None:
    out = tmp_path / ("é" * 125 + ".csv")
    assert tracelake("runs", "--lake", lake.root, "-o", out).code == 0
    assert out.is_file()


def test_the_report_of_all_runs_has_its_place_in_the_lake(
    tracelake: Command, lake: Lake, tmp_path: Path
) -> None:
    copy = tmp_path / "lake"
    shutil.copytree(lake.root, copy)
    page = copy / "report.html"
    page.unlink(missing_ok=True)
    assert tracelake("report", "--lake", copy).code == 0
    assert "</html>" in page.read_text()
    page.unlink()
    for words in (["--run", "latest"], ["--since", "7d"], ["--format", "markdown"]):
        done = tracelake("report", "--lake", copy, *words)
        assert (done.code, "--output is missing" in done.err) == (2, True)
    assert not page.exists()
