"""Runs that are dropped stay away; files that nobody names go, and no others."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.lakes import Template, full_build_differences
from tests.tiny_lakes import commit_run, log_run
from tests.traces import plan, write
from tracelake.base.errors import LakeError, UsageError
from tracelake.base.files import beside
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest
from tracelake.lake.dropped import dropped_runs
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.warehouse.check import check_lake
from tracelake.warehouse.retention import choose_old, choose_runs, collect, drop
from tracelake.warehouse.warehouse import open_warehouse

pytestmark = pytest.mark.usefixtures("few")

NOW = datetime(2026, 6, 1)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    made = Lake.create(tmp_path_factory.mktemp("retention") / "lake")
    commit_run(made, "a", log_run(run_date=datetime(2026, 5, 1)))
    commit_run(made, "b", log_run(run_date=datetime(2026, 1, 1)))
    commit_run(made, "c", log_run())
    build(made)
    return Template.of(made)


@pytest.fixture
def lake(template: Template) -> Lake:
    """Runs a, of 2026-05-01, b, of 2026-01-01, and c, without a date."""
    return template.again()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return write(tmp_path / "archive", {"one.txt": plan(3), "two.txt": plan(4)})


def rows(lake: Lake, sql: str) -> list[tuple[object, ...]]:
    with open_warehouse(lake) as con:
        return con.execute(sql).fetchall()


def statuses(archive: Path, lake: Lake) -> list[str]:
    done = ingest([str(archive)], lake, Options())
    return [str(run.status) for run in sorted(done.runs, key=lambda run: run.rows)]


# --- drop -------------------------------------------------------------------------------


def test_a_dropped_run_leaves_manifests_warehouse_and_disk(lake: Lake) -> None:
    parts = [lake.root / part for part in lake.snapshot().parts_by_table(["a"])["layer_times"]]
    (chosen,) = choose_runs(lake, ["a"])
    assert (chosen.run_date, chosen.files) == (datetime(2026, 5, 1), 4)
    assert chosen.bytes > 0
    drop(lake, [chosen])
    assert all(part.is_file() for part in parts)  # until the warehouse no longer names them
    assert build(lake).dropped == ("a",)
    assert collect(lake) == []  # the build has removed them
    assert not any(part.exists() for part in parts)
    assert rows(lake, "SELECT DISTINCT run_id FROM layer_stats ORDER BY 1") == [("b",), ("c",)]
    assert check_lake(lake) == []
    assert full_build_differences(lake) == []


def test_runs_older_than_an_age_are_those_with_an_older_date(lake: Lake) -> None:
    assert [run.entry.run_id for run in choose_old(lake, timedelta(days=90), NOW)] == ["b"]
    assert [run.entry.run_id for run in choose_old(lake, timedelta(days=1), NOW)] == ["a", "b"]


def test_a_name_that_is_no_run_drops_nothing(lake: Lake) -> None:
    with pytest.raises(UsageError, match="no run 'z'"):
        choose_runs(lake, ["a", "z"])


def test_a_run_is_found_without_a_warehouse(lake: Lake) -> None:
    lake.warehouse.unlink()
    assert [run.run_date for run in choose_runs(lake, ["b"])] == [None]
    with pytest.raises(LakeError, match="no warehouse"):
        choose_old(lake, timedelta(days=1), NOW)


def test_the_input_of_a_dropped_run_does_not_bring_it_back(archive: Path, tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    assert statuses(archive, lake) == ["new", "new"]
    short = next(run for run in lake.snapshot().runs if run.startswith("one"))
    drop(lake, choose_runs(lake, [short]))
    assert statuses(archive, lake) == ["dropped", "unchanged"]
    (archive / "one.txt").touch()
    assert statuses(archive, lake) == ["dropped", "unchanged"]
    original = (archive / "one.txt").read_bytes()
    with (archive / "one.txt").open("a") as file:
        file.write(plan(1).splitlines()[-1] + "\n")
    assert statuses(archive, lake) == ["dropped", "unchanged"]
    (archive / "sub").mkdir()
    (archive / "sub" / "one.txt.gz").write_bytes(gzip.compress(original))
    (archive / "one.txt").unlink()
    assert statuses(archive, lake) == ["dropped", "unchanged"]
    assert [run[:3] for run in lake.snapshot().runs] == ["two"]
    drop(lake, choose_runs(lake, [short], forget=True), forget=True)
    assert dropped_runs(lake) == {}
    assert sorted(statuses(archive, lake)) == ["new", "unchanged"]


def test_another_input_of_the_same_content_is_a_run_of_its_own(
    archive: Path, tmp_path: Path
) -> None:
    lake = Lake.create(tmp_path / "lake")
    statuses(archive, lake)
    (short,) = [run for run in lake.snapshot().runs if run.startswith("one")]
    drop(lake, choose_runs(lake, [short]))
    (archive / "one.txt").rename(archive / "other.txt")
    assert sorted(statuses(archive, lake)) == ["new", "unchanged"]
    (other,) = [run for id_, run in lake.snapshot().runs.items() if id_.startswith("other")]
    assert [source["duplicate_of"] for source in other.sources] == [None]


def test_forgetting_drops_a_run_and_lets_it_come_back(archive: Path, tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    statuses(archive, lake)
    before = lake.snapshot().stamp
    drop(lake, choose_runs(lake, ["one", "two"]), forget=True)
    assert not lake.snapshot().runs
    assert statuses(archive, lake) == ["new", "new"]
    assert lake.snapshot().stamp == before


def test_a_drop_that_died_between_its_steps_is_ended_by_the_next(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    doomed = choose_runs(lake, ["a", "b"])
    with monkeypatch.context() as patched:
        patched.setattr(lake, "commit_all", die)
        with pytest.raises(KeyboardInterrupt):
            drop(lake, doomed)
    assert set(lake.snapshot().runs) == {"a", "b", "c"}
    assert dropped_runs(lake) == {}  # what is committed is not dropped
    drop(lake, choose_runs(lake, ["a", "b"]))
    assert set(lake.snapshot().runs) == {"c"}
    assert set(dropped_runs(lake)) == {"a", "b"}


@pytest.mark.parametrize(("content", "message"), [("{", "cannot be read"), ("9", "version 9")])
def test_a_list_of_dropped_runs_that_cannot_be_read_is_refused(
    lake: Lake, content: str, message: str
) -> None:
    text = content if content == "{" else json.dumps({"version": 9})
    (lake.root / "_manifest" / "_dropped").write_text(text)
    with pytest.raises(LakeError, match=message):
        dropped_runs(lake)


def test_the_command_says_what_it_would_drop_and_drops_it(lake: Lake, tracelake: Command) -> None:
    said = tracelake("drop", "--older-than", "90d", "--lake", lake.root, "--dry-run")
    assert "a  " in said.out
    assert "b  " in said.out
    assert said.err.startswith("would delete 2 runs, 8 files, ")
    assert set(lake.snapshot().runs) == {"a", "b", "c"}
    done = tracelake("drop", "a", "b", "--lake", lake.root, "--format", "ndjson")
    assert [json.loads(line)["run_id"] for line in done.out.splitlines()] == ["a", "b"]
    assert done.err.startswith("deleted 2 runs, 8 files, ")
    assert rows(lake, "SELECT run_id FROM runs") == [("c",)]
    forgot = tracelake("drop", "a", "--forget", "--lake", lake.root)
    assert forgot.err.startswith("deleted 0 runs, 0 files, 0 B; 1 run of earlier deletions forgot")
    commit_run(lake, "job2-5c5c5c5c", log_run(label="job2"))
    build(lake)
    unknown = tracelake("drop", "job1", "--forget", "--lake", lake.root, "--dry-run")
    assert (unknown.code, "did you mean" in unknown.err) == (2, False)
    assert "goes by its id" in unknown.err


def test_a_label_that_no_build_has_seen_is_no_reason_to_delete_another_run(
    lake: Lake, tracelake: Command
) -> None:
    commit_run(lake, "night-4711", log_run(label="night"))
    done = tracelake("drop", "nigh", "--lake", lake.root, "--dry-run")
    assert done.code == 0  # a part of its id
    unknown = tracelake("drop", "day", "--lake", lake.root)
    assert (unknown.code, "did you mean" in unknown.err) == (2, False)
    assert "1 run came in after the last build" in unknown.err


@pytest.mark.parametrize("words", [(), ("a", "--older-than", "1d"), ("--older-than", "soon")])
def test_drop_needs_runs_or_an_age(lake: Lake, tracelake: Command, words: tuple[str, ...]) -> None:
    assert tracelake("drop", *words, "--lake", lake.root).code == 2
    assert set(lake.snapshot().runs) == {"a", "b", "c"}


# --- gc ---------------------------------------------------------------------------------


def stray(lake: Lake) -> Path:
    path = lake.root / "ops" / "run_id=gone" / "part-0.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * 10)
    return path


def dead_staging(lake: Lake) -> Path:
    folder = lake.root / "_staging" / "query-dead"
    folder.mkdir()
    (folder / ".writer").touch()
    (folder / "spill").write_bytes(b"x" * 20)
    return folder


def unsigned_staging(lake: Lake) -> Path:
    folder = lake.root / "_staging" / "ingest-dead"
    folder.mkdir()
    return folder


def half_written(lake: Lake) -> Path:
    path = lake.root / "_manifest" / "a.4711.tmp"
    path.write_bytes(b"{")
    return path


def half_page(lake: Lake) -> Path:
    path = lake.root / ".report.html.4711.tmp"
    path.write_bytes(b"<")
    return path


@pytest.mark.parametrize("leave", [stray, dead_staging, unsigned_staging, half_written, half_page])
def test_what_nobody_needs_is_removed(lake: Lake, leave: Callable[[Lake], Path]) -> None:
    left = leave(lake)
    name = left.relative_to(lake.root).as_posix()
    assert [found.path for found in collect(lake, dry_run=True)] == [name]
    assert left.exists()
    assert [found.path for found in collect(lake)] == [name]
    assert not left.exists()
    assert collect(lake) == []
    assert check_lake(lake) == []


@pytest.mark.parametrize("name", ["report.html", "_manifest/_dropped", "_run/owed.json"])
def test_live_writers_are_spared(lake: Lake, name: str) -> None:
    with lake.staging("ingest") as folder, beside(lake.root / name) as there:
        there.write_text("<")
        assert collect(lake) == []
        assert lake.sweep(lake.snapshot()) == 0
        assert folder.is_dir()
    assert (lake.root / name).read_text() == "<"


def test_what_the_warehouse_names_is_spared_until_the_next_build(lake: Lake) -> None:
    drop(lake, choose_runs(lake, ["a"]))
    assert collect(lake) == []
    assert rows(lake, "SELECT count(*) FROM layer_times WHERE run_id = 'a'") == [(6,)]
    lake.warehouse.unlink()
    assert {found.kind for found in collect(lake)} == {"part"}
    assert build(lake).built == ("b", "c")


@pytest.mark.parametrize("name", ["commit", "warehouse", "staging"])
def test_gc_waits_for_those_at_work(lake: Lake, name: str) -> None:
    stray(lake)
    with ThreadPoolExecutor(1) as pool:
        with lake.lock(name):
            collecting = pool.submit(collect, lake)
            assert wait([collecting], 0.2).not_done
        assert len(collecting.result()) == 1


def test_the_command_says_what_it_removed(lake: Lake, tracelake: Command) -> None:
    stray(lake)
    dry = tracelake("gc", "--lake", lake.root, "--dry-run", "--format", "ndjson")
    assert json.loads(dry.out)["path"] == "ops/run_id=gone/part-0.parquet"
    assert dry.err == "would remove 1 file, 10 B\n"
    assert tracelake("gc", "--lake", lake.root).err == "removed 1 file, 10 B\n"
    assert tracelake("gc", "--lake", lake.root).out == ""
