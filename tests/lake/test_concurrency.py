"""Commands at the same time: the lake is that of one after the other, and readers see it whole."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.conftest import Command
from tests.lakes import full_build_differences, ingest_and_build, run_ingest, unchanged
from tests.traces import plan, write
from tracelake.base.errors import TracelakeError
from tracelake.lake.store import Lake
from tracelake.models.catalog import catalog
from tracelake.schema.tables import tables
from tracelake.warehouse.check import check_lake
from tracelake.warehouse.warehouse import ask, open_warehouse

TRACELAKE = Path(sys.executable).with_name("tracelake")


def archive(folder: Path, name: str) -> Path:
    """Plans, which the fewest models have rows of."""
    files = {
        f"{name}{number}/plan{number}.txt": plan(3 + number, name=f"{name}{number}_")
        for number in range(4)
    }
    return write(folder / name, files)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("archives")
    return [archive(folder, name) for name in ("one", "three")]


@pytest.fixture(scope="module")
def alone(
    archives: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[bool, Path]]:
    """What one archive comes to, however often it is given, and what two."""
    folder = tmp_path_factory.mktemp("alone")
    lakes = {True: folder / "same", False: folder / "two"}
    ingest_and_build(archives[0], lakes[True])
    run_ingest(archives[0], lakes[False])
    ingest_and_build(archives[1], lakes[False])
    with unchanged(lakes[True]), unchanged(lakes[False]):
        yield lakes


def start(*words: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [TRACELAKE, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TRACELAKE_LOG_FORMAT": "json"},
    )


def end(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """What a command says on standard error, once it has ended well."""
    _, said = process.communicate()
    assert process.returncode == 0, said
    return [json.loads(line) for line in said.splitlines()]


def content(lake: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every relation."""
    with open_warehouse(Lake.open(lake)) as con:
        return {
            name: con.execute(f'FROM "{name}" ORDER BY ALL').fetchall()
            for name in (*tables(), *catalog().public)
        }


@contextmanager
def readers(lake: Path, count: int = 2) -> Iterator[list[tuple[int, ...]]]:
    """Queries all the time; gives how many runs each saw, in base tables and in a model."""
    seen: list[tuple[int, ...]] = []
    troubles: list[Exception] = []
    over = threading.Event()

    def look(con: duckdb.DuckDBPyConnection) -> tuple[int, ...]:
        found = con.execute(
            "SELECT (SELECT count(DISTINCT run_id) FROM sources),"
            " (SELECT count(*) FROM run_summary),"
            " (SELECT count(DISTINCT run_id) FROM workload_passes)"
        ).fetchone()
        return found or ()

    def read() -> None:
        while not over.wait(0.2):
            if not (lake / "warehouse.duckdb").is_file():
                continue
            try:
                seen.append(ask(Lake.open(lake), "the test", look))
            except (duckdb.Error, TracelakeError) as error:
                troubles.append(error)
                return

    threads = [threading.Thread(target=read) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not troubles


@pytest.mark.parametrize(
    ("command", "same"),
    [("run", True), ("ingest", True), ("ingest", False)],
    ids=["run-same-archive", "ingest-same-archive", "ingest-two-archives"],
)
def test_two_at_once_are_as_one_after_the_other(
    archives: list[Path],
    alone: dict[bool, Path],
    tmp_path: Path,
    tracelake: Command,
    command: str,
    same: bool,
) -> None:
    first, second = (archives[0], archives[0]) if same else archives
    together = tmp_path / "together"
    Lake.create(together)
    with readers(together) as seen:
        processes = [start(command, given, "--lake", together) for given in (first, second)]
        for process in processes:
            end(process)
        assert tracelake("build", "--lake", together).code == 0
    assert content(together) == content(alone[same])
    assert check_lake(Lake.open(together)) == []
    assert full_build_differences(Lake.open(together)) == []
    for sources, summaries, _ in seen:
        assert sources == summaries
    with open_warehouse(Lake.open(together)) as con:
        recorded = con.execute("SELECT command, exit_code FROM tracelake_runs").fetchall()
    assert sorted(recorded) == sorted([("build", 0), (command, 0), (command, 0)])


def test_runs_are_dropped_and_collected_while_others_come_in(
    archives: list[Path], tmp_path: Path, tracelake: Command
) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    run_ingest(archives[0], alone)
    gone = sorted(Lake.open(alone).snapshot().runs)[:2]
    tracelake("drop", *gone, "--lake", alone)
    ingest_and_build(archives[1], alone)
    ingest_and_build(archives[0], together)
    with readers(together):
        for process in [
            start("run", archives[1], "--lake", together),
            start("drop", *gone, "--lake", together),
            start("gc", "--lake", together),
        ]:
            end(process)
        assert tracelake("build", "--lake", together).code == 0
    assert content(together) == content(alone)
    assert check_lake(Lake.open(together)) == []


def test_a_second_run_says_whom_it_waits_for(
    archives: list[Path], tmp_path: Path, tracelake: Command
) -> None:
    lake = tmp_path / "lake"
    Lake.create(lake)
    (lake / "_run").mkdir()
    with (lake / "_run" / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        json.dump({"pid": 4711, "host": "node7", "since": "2026-01-01 00:00:00"}, held)
        held.flush()
        refused = tracelake("run", archives[0], "--lake", lake, "--wait", "0s")
    assert refused.code == 3
    assert "another run is working on this lake: pid 4711 on node7" in refused.err


def test_a_lock_whose_holder_is_dead_holds_nobody_up(
    archives: list[Path], tmp_path: Path, tracelake: Command
) -> None:
    lake = tmp_path / "lake"
    Lake.create(lake)
    (lake / "_run").mkdir()
    holder = (
        "import fcntl, json, os, sys, time\n"
        "for name in sys.argv[1:]:\n"
        "    held = os.open(name, os.O_RDWR | os.O_CREAT)\n"
        "    fcntl.flock(held, fcntl.LOCK_EX)\n"
        '    os.write(held, b\'{"pid": 1, "host": "gone", "since": "then"}\')\n'
        "print('held', flush=True)\n"
        "time.sleep(600)\n"
    )
    locks = [lake / "_run" / "lock", *(lake / "_lock" / n for n in ("commit", "warehouse"))]
    process = subprocess.Popen(
        [sys.executable, "-c", holder, *locks], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert tracelake("run", archives[0], "--lake", lake, "--wait", "0s").code == 3
        process.kill()
    done = tracelake("run", archives[0], "--lake", lake, "--wait", "0s")
    assert (done.code, "waiting" in done.err) == (0, False)
