"""Many small runs, and much text, are parsed by processes, which end with the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.execution.test_engine import Told, brought_in, held
from tests.traces import plan, write
from tracelake.execution.processes import Processes
from tracelake.lake.store import Lake

TRACELAKE = Path(sys.executable).with_name("tracelake")
RUNS = 500
# With few runs: what it builds of them costs more than what the processes do.
SCRIPT = """
import sys, tracelake
from tracelake.ingest import parse

parse._MANY_RUNS = 2
print(tracelake.run([sys.argv[1]], sys.argv[2])["exit_code"])
"""


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of as many small runs as processes are worth."""
    texts = {f"plan{n:04}.txt": plan(3, name=f"p{n}_") for n in range(RUNS)}
    return write(tmp_path_factory.mktemp("plans"), texts)


def children(pid: int) -> set[int]:
    """Processes that a process has started, from any of its threads."""
    found: set[int] = set()
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        found.update(map(int, listed.read_text().split()))
    return found


def parsers(pid: int) -> set[int]:
    """Those of them that parse."""
    return {child for child in children(pid) if "execution.worker" in command_of(child)}


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def until(true: Callable[[], bool], *, seconds: float = 60) -> None:
    """Wait until a condition holds."""
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.fixture
def command(plans: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield an ingest whose processes have started."""
    with subprocess.Popen(
        [TRACELAKE, "ingest", plans, "--lake", tmp_path / "lake", "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,  # as a shell starts it: a terminal's Ctrl-C is for the group
    ) as started:
        until(lambda: len(parsers(started.pid)) == 2)
        yield started
        started.kill()


def test_processes_make_the_lake_that_threads_make(
    plans: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: set[int] = set()
    told = Told(lambda: seen.update(parsers(os.getpid())))
    report = brought_in(plans, tmp_path / "processes", jobs=2, progress=told)
    assert len(seen) == 2
    assert told.total[1] == told.planned_total[1] == RUNS
    assert not parsers(os.getpid())
    monkeypatch.setattr("tracelake.ingest.parse._MANY_RUNS", RUNS + 1)
    assert brought_in(plans, tmp_path / "threads", jobs=2).runs == report.runs
    assert held(tmp_path / "processes") == held(tmp_path / "threads")


@pytest.mark.parametrize(("text", "processes"), [("log", 2), ("plan", 0)])
def test_much_text_that_python_reads_is_parsed_by_processes(
    text: str, processes: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # More files than a batch has at least.
    texts = {
        f"{n}.txt": plan(3, name=f"p{n}_")
        if text == "plan"
        else f" iteration {n + 1}/ 99 | elapsed time per iteration (ms): 5.0 | lm loss: 1.0 |\n"
        for n in range(80)
    }
    inputs = write(tmp_path / "in", texts)
    monkeypatch.setattr("tracelake.ingest.parse._MUCH_TEXT", 1 << 10)
    seen: set[int] = set()
    told = Told(lambda: seen.update(parsers(os.getpid())))
    report = brought_in(inputs, tmp_path / "lake", jobs=2, progress=told)
    assert (len(seen), len(report.runs)) == (processes, len(texts))
    monkeypatch.setattr("tracelake.ingest.parse._MUCH_TEXT", 1 << 30)
    assert brought_in(inputs, tmp_path / "threads", jobs=2).runs == report.runs
    assert held(tmp_path / "lake") == held(tmp_path / "threads")


def test_an_error_comes_back_with_the_place_where_it_was_raised() -> None:
    with Processes(1) as executor:
        first = executor.submit(os.getpid).result()
        error = executor.submit(int, "seven").exception()
        assert executor.submit(os.getpid).result() == first != os.getpid()
    assert isinstance(error, ValueError)
    assert "execution/jobs.py" in error.__notes__[0]


def test_one_job_needs_no_process(plans: Path, tmp_path: Path) -> None:
    seen: set[int] = set()
    told = Told(lambda: seen.update(parsers(os.getpid())))
    brought_in(plans, tmp_path / "lake", jobs=1, progress=told)
    assert told.total[1] == RUNS
    assert not seen


def test_runs_of_a_process_that_dies_are_read_by_the_next_command(
    command: subprocess.Popen[str], plans: Path, tmp_path: Path
) -> None:
    os.kill(min(parsers(command.pid)), signal.SIGKILL)
    _, errors = command.communicate()
    assert command.returncode == 3, errors
    assert "runs of" in errors
    assert "the process that read it ended: SIGKILL" in errors
    assert "--jobs 1" in errors
    left = RUNS - len(Lake.open(tmp_path / "lake").snapshot().runs)
    assert 0 < left < RUNS
    report = brought_in(plans, tmp_path / "lake")
    assert [str(run.status) for run in report.runs].count("new") == left


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_the_command(command: subprocess.Popen[str], sent: int) -> None:
    started = parsers(command.pid)
    assert command.pid not in set(map(os.getpgid, started))  # it alone hears a terminal's Ctrl-C
    os.killpg(command.pid, sent)
    _, errors = command.communicate()
    assert "Traceback" not in errors
    assert command.returncode == (-sent if sent == signal.SIGKILL else 128 + sent)
    until(lambda: not any("execution.worker" in command_of(pid) for pid in started))


def test_a_script_without_a_guard_is_not_run_again(tmp_path: Path) -> None:
    plans = write(tmp_path / "in", {f"{n}.txt": plan(3, name=f"p{n}_") for n in range(4)})
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script, plans, tmp_path / "lake"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.stdout == "0\n", done.stderr
