"""Many files: judged by two processes, with the verdicts of one."""

from __future__ import annotations

import gzip
import os
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lakes import files
from tests.traces import plan as plan_text
from tests.traces import trace, trace_name, write
from tracelake.base.errors import UsageError
from tracelake.ingest import Options, assistant, find, ingest, plan
from tracelake.lake import Lake


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Files of every kind, in an order in which each block has some."""
    folder = tmp_path / "archive"
    for job in range(6):
        texts = {f"{trace_name(rank)}": trace(rank) for rank in range(4)}
        write(folder / f"job{job}", {**texts, "notes.md": "no trace\n", "nothing.txt": ""})
        write(folder / f"job{job}", {f"plan{job}.txt": plan_text(2 + job), "\udcff.log": "?\n"})
        packed = folder / f"job{job}" / "more.txt.gz"
        packed.write_bytes(gzip.compress(plan_text(20 + job).encode()))
        with zipfile.ZipFile(folder / f"job{job}" / "all.zip", "w") as members:
            members.writestr("plan.txt", plan_text(30 + job))
            members.writestr("readme", "no trace")
    os.mkfifo(folder / "job3" / "pipe")
    return folder


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has few files pass for many; the processes that were made for them."""
    monkeypatch.setattr(find, "_BLOCK", 10)
    monkeypatch.setattr(assistant, "MANY", 3)
    monkeypatch.setattr(assistant, "processors", lambda: 2)
    made: list[int] = []
    fork = os.fork

    def noted() -> int:
        pid = fork()
        if pid:
            made.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", noted)
    return made


def found(archive: Path, tmp_path: Path, options: Options) -> Any:
    plans, skips = plan([str(archive)], str(tmp_path / "none"), options, tmp_path / "spool")
    return plans, skips


def without(monkeypatch: pytest.MonkeyPatch, judge: Callable[[], Any]) -> Any:
    """What comes of it in one process."""
    with monkeypatch.context() as alone:
        alone.setattr(assistant, "processors", lambda: 1)
        return judge()


def is_gone(pid: int) -> bool:
    """Whether a child has ended and was waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


OPTIONS = [
    Options(),
    Options(input_format="rank_trace"),
    Options(run_pattern=r"job(?P<run>\d)", given={"pp": 1}),
]


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "forced", "pattern"])
def test_two_processes_judge_as_one_does(
    archive: Path,
    tmp_path: Path,
    forks: list[int],
    monkeypatch: pytest.MonkeyPatch,
    options: Options,
) -> None:
    expected = without(monkeypatch, lambda: found(archive, tmp_path, options))
    assert not forks
    assert found(archive, tmp_path, options) == expected
    (pid,) = forks
    assert is_gone(pid)


def test_a_lake_of_two_processes_is_that_of_one(
    archive: Path, tmp_path: Path, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(name: str) -> dict[str, bytes]:
        lake = Lake.create(tmp_path / name)
        ingest([str(archive)], lake, Options())
        return {path: (lake.root / path).read_bytes() for path in files(lake.root)}

    expected = without(monkeypatch, lambda: made("one"))
    assert made("two") == expected
    assert len(forks) == 1
    made("two")
    assert len(forks) == 1  # nothing is opened again


def test_a_process_that_is_killed_costs_nothing(
    archive: Path, tmp_path: Path, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = without(monkeypatch, lambda: found(archive, tmp_path, Options()))
    ask = assistant.Assistant._ask

    def killed(self: assistant.Assistant, entries: Any) -> bool:
        os.kill(forks[-1], signal.SIGKILL)
        return ask(self, entries)

    monkeypatch.setattr(assistant.Assistant, "_ask", killed)
    assert found(archive, tmp_path, Options()) == expected
    assert is_gone(forks[-1])


def test_a_system_without_room_for_a_process_is_no_error(
    archive: Path, tmp_path: Path, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = without(monkeypatch, lambda: found(archive, tmp_path, Options()))
    opened = len(os.listdir("/proc/self/fd"))

    def refused() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refused)
    assert found(archive, tmp_path, Options()) == expected
    assert not forks
    assert len(os.listdir("/proc/self/fd")) == opened


def test_an_error_ends_the_other_process_too(
    archive: Path, tmp_path: Path, forks: list[int]
) -> None:
    options = Options(run_pattern=r"(?P<pp>job5)")
    with pytest.raises(UsageError):
        found(archive, tmp_path, options)
    assert is_gone(forks[-1])


def test_ends_of_children_may_be_ignored(
    archive: Path, tmp_path: Path, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = without(monkeypatch, lambda: found(archive, tmp_path, Options()))
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert found(archive, tmp_path, Options()) == expected
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert is_gone(forks[-1])
