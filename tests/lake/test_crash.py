"""Processes that are killed, stopped or refused: nothing is half done, the next one heals it."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from tests.conftest import ROOT, Command
from tests.lakes import few_models
from tests.tiny_lakes import commit_run, drop_run, log_run
from tracelake.base.errors import RefusedError, UsageError
from tracelake.base.files import put, put_link
from tracelake.base.signals import listening, settled
from tracelake.lake.store import Lake
from tracelake.models.base import engine_errors
from tracelake.models.build import build


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


def test_what_is_struck_is_made_whole_by_the_same_command() -> None:
    words = ["--kills", "2", "--signals", "2", "--refusals", "1", "--formats", "optimus"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\b0 wrong$", done.stdout.strip())


# --- files ----------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_written_leaves_the_old_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page"
    put(page, b"old")
    for code, error in ((errno.ENOSPC, RefusedError), (errno.EACCES, UsageError)):
        refused = OSError(code, os.strerror(code))

        def refuse(*_: object, refused: OSError = refused) -> None:
            raise refused

        with monkeypatch.context() as patched:
            patched.setattr("tracelake.base.files.sync", refuse)
            with pytest.raises(error, match=os.strerror(code)) as caught:
                put(page, b"new")
        assert caught.value.path == str(page)
        assert os.listdir(tmp_path) == ["page"]
        assert page.read_bytes() == b"old"


def test_what_a_dead_writer_left_goes_and_a_live_one_is_spared(tmp_path: Path) -> None:
    dead, live = (tmp_path / f".{name}.tracelake.77.tmp" for name in ("yesterday", "other"))
    other = tmp_path / ".mine.77.tmp"
    dead.touch()
    other.touch()
    with live.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        put(tmp_path / "page", b"new")
    assert sorted(os.listdir(tmp_path)) == [other.name, live.name, "page"]


def test_a_link_takes_the_place_of_one_that_was_half_made(tmp_path: Path) -> None:
    (tmp_path / ".latest.tracelake.link").symlink_to("nowhere")
    put_link(tmp_path / "latest", "one")
    put_link(tmp_path / "latest", "two")
    assert os.readlink(tmp_path / "latest") == "two"
    assert os.listdir(tmp_path) == ["latest"]


# --- lake -----------------------------------------------------------------------------------------


def test_staging_that_was_killed_before_it_had_a_mark_is_removed(lake: Lake) -> None:
    (lake.root / "_staging" / "ingest-x" / "run").mkdir(parents=True)
    with lake.staging("live") as live:
        lake.sweep(lake.snapshot())
        assert os.listdir(lake.root / "_staging") == [live.name]


def test_a_list_of_loose_parts_that_was_cut_short_hides_none(lake: Lake) -> None:
    commit_run(lake, "a", log_run())
    lake.sweep(lake.snapshot())
    with (lake.root / "_manifest/_loose").open("a") as listed:
        listed.write("ops/format=a")
    commit_run(lake, "a", log_run(steps=5))
    drop_run(lake, "a")
    lake.sweep(lake.snapshot())
    assert not list(lake.root.glob("*/format=*"))


def test_a_manifest_that_was_half_written_is_removed(lake: Lake) -> None:
    commit_run(lake, "a", log_run())
    (lake.root / "_manifest/a.0.tmp").write_text("{")
    assert list(lake.snapshot().runs) == ["a"]
    lake.sweep(lake.snapshot())
    assert sorted(os.listdir(lake.root / "_manifest")) == ["_loose", "a.json"]


def test_parts_are_on_the_disk_before_a_manifest_names_them(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def sync(paths: list[Path]) -> None:
        done.extend(f"sync {path.suffix or path.name}" for path in paths)

    def replace(source: Path, target: Path) -> None:
        done.append(f"replace {target.suffix}")
        os.replace(source, target)

    monkeypatch.setattr("tracelake.base.files.sync", sync)
    monkeypatch.setattr("tracelake.base.files.replace", replace)
    commit_run(lake, "a", log_run())
    named = done.index("replace .json")
    assert {
        "sync .parquet",
        "sync .tmp",
        "sync lake",
        "sync month=undated",
        "sync format=tiny",
    } <= set(done[:named])
    assert done[named + 1 :] == ["sync _manifest"]
    assert done.index("sync .parquet") > done.index("replace .parquet")


def test_a_glob_past_the_warehouse_is_right_once_a_build_has_ended(lake: Lake) -> None:
    for steps in (3, 5, 6):
        commit_run(lake, "a", log_run(steps=steps))
        with few_models():
            build(lake)
        parts = {
            path.relative_to(lake.root).as_posix() for path in lake.root.glob("*/format=*/*/*")
        }
        assert parts == lake.snapshot().all_parts


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=200k", "none", str(folder)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("this user cannot mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_really_full(tracelake: Command, sample: Path, small_disk: Path) -> None:
    lake = small_disk / "lake"
    codes = []
    for kilobytes in (200, 600, 2_200, 30_000):  # too few for rows, warehouse, page
        size = f"remount,size={kilobytes}k"
        subprocess.run(["mount", "-o", size, str(small_disk)], check=True)
        done = tracelake("run", sample, "--lake", lake, "--quiet")
        codes.append(done.code)
        if done.code:
            assert "No space left on device" in done.err
            assert "free space" in done.err
            assert "_lock" not in done.err  # a lock is held meanwhile, and is not what is full
            assert "Traceback" not in done.err
            assert not list(small_disk.rglob("*.tmp"))
            assert not list(small_disk.rglob("_staging/*"))
    assert set(codes[:-1]) == {3}
    assert codes[-1] == 0
    assert tracelake("check", "--lake", lake).code == 0


# --- signals --------------------------------------------------------------------------------------


class _Swallows:
    """An exception that is raised in a finaliser is printed and dropped."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(10):
            pass


def ending_of(work: Callable[[], object]) -> tuple[BaseException, int | None]:
    """How work ends that a signal strikes, and the exit code that a command would have.

    The signal is over once the exit code was asked for. That is done while the exception is at
    hand, as commands do: a repeated signal that came later would end the tests.
    """
    with listening():
        try:
            work()
        except (KeyboardInterrupt, SystemExit) as error:
            return error, settled()
    raise AssertionError("nothing has ended the work")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_a_finaliser_swallows_is_heard_all_the_same() -> None:
    def swallow() -> None:
        _Swallows()
        threading.Event().wait(20)

    error, code = ending_of(swallow)
    assert isinstance(error, SystemExit)
    assert (error.code, code) == (143, 143)


@pytest.mark.parametrize(
    ("signum", "expected", "code"),
    [(signal.SIGINT, KeyboardInterrupt, 130), (signal.SIGTERM, SystemExit, 143)],
)
def test_a_signal_during_a_query_of_a_build_is_no_error_of_the_engine(
    signum: signal.Signals, expected: type[BaseException], code: int
) -> None:
    def work() -> None:
        with duckdb.connect() as con, engine_errors("the test"):
            threading.Timer(0.1, os.kill, [os.getpid(), signum]).start()
            con.execute("CREATE TABLE t AS SELECT i, hash(i) AS h FROM range(60000000) r(i)")

    error, exit_code = ending_of(work)
    assert type(error) is expected
    assert exit_code == code


def test_clean_up_is_not_disturbed_by_the_same_signal(tmp_path: Path) -> None:
    page = tmp_path / "page"

    def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(0.7)  # it is repeated meanwhile
            page.touch()

    error, code = ending_of(work)
    assert isinstance(error, KeyboardInterrupt)
    assert code == 130
    assert page.exists()


def test_a_full_disk_under_the_engine_is_told_as_such() -> None:
    text = f'Failed to commit: Could not write file "x": {os.strerror(errno.ENOSPC)}'
    with pytest.raises(RefusedError, match="No space left") as caught, engine_errors("models"):
        raise duckdb.TransactionException(text)
    assert caught.value.exit_code == 3
