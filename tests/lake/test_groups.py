"""Runs that are written together are the same rows in few files, whatever becomes of the runs."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.conftest import Command
from tests.fixture_lake import FIXTURES, INPUTS, opened
from tests.golden_cases import GOLDEN
from tests.lakes import (
    Template,
    few_models,
    full_build_differences,
    ingest_and_build,
    merge_groups,
    run_ingest,
    statuses,
)
from tests.tiny_lakes import commit_run, drop_run, log_run
from tests.traces import plan, trace, trace_name, write
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest
from tracelake.lake.manifest import Change
from tracelake.lake.rewriting import _Rewriting
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.models.state import named_parts, recorded
from tracelake.schema.tables import METADATA_KEY, SCHEMA_VERSION, tables
from tracelake.warehouse.check import check_lake
from tracelake.warehouse.warehouse import open_warehouse

Relations = dict[str, list[tuple[Any, ...]]]

RUNS = ("a", "b", "c")
LAYERS = "layer_times/format=tiny/month=undated"


def stored_parts(lake: Lake) -> list[str]:
    return [found.part for found in lake.part_files.stored()]


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Template:
    made = Lake.create(tmp_path_factory.mktemp("merged") / "lake")
    for number, run_id in enumerate(RUNS):
        commit_run(made, run_id, log_run(steps=3 + number, rejected=number))
    with few_models():
        merge_groups(made)
    return Template.of(made)


@pytest.fixture
def few() -> Iterator[None]:
    with few_models():
        yield


@pytest.fixture
def lake(merged: Template, few: None) -> Lake:  # noqa: ARG001 - as it was built
    """Runs a, b and c of a training log, in one group."""
    return merged.again()


def filled(folder: Path, sample: Path) -> Path:
    """Runs of every format, several of each."""
    shutil.copytree(sample, folder / "sample")
    more = {f"job{n}/{trace_name(r)}": trace(r, steps=n) for n in (2, 3) for r in range(2)}
    plans = {f"plan{n}.txt": plan(n) for n in (3, 4)}
    return write(folder, {**more, **plans, "nothing.txt": "no trace\n"})


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Path:
    return filled(tmp_path_factory.mktemp("archive"), sample)


@pytest.fixture(scope="module")
def apart(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Template:
    """The lake of that archive, in which each run has parts and a manifest of its own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tracelake.ingest.batches._SMALL_BYTES", 0)
        return Template.of(ingest_and_build(archive, tmp_path_factory.mktemp("apart") / "lake"))


@pytest.fixture(scope="module")
def together(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Template:
    """The lake of that archive as it is otherwise."""
    return Template.of(ingest_and_build(archive, tmp_path_factory.mktemp("together") / "lake"))


@pytest.fixture(scope="module")
def whole(apart: Template) -> Relations:
    """Every row of that archive."""
    return relations(apart.again())


def parts(lake: Lake) -> dict[str, Path]:
    """Parts by table, of which there is one each."""
    found = {part.split("/")[0]: lake.root / part for part in sorted(lake.snapshot().all_parts)}
    assert len(found) == len(lake.snapshot().all_parts)
    return found


def runs_in(part: Path) -> list[str]:
    """Runs in order of the rows of a part."""
    return list(dict.fromkeys(pq.ParquetFile(part).read(["run_id"])["run_id"].to_pylist()))


def groups(lake: Lake) -> list[str]:
    return sorted(path.stem for path in (lake.root / "_manifest").glob("[!_]*.json"))


def damage(part: Path) -> None:
    content = bytearray(part.read_bytes())
    content[8] ^= 1
    part.write_bytes(content)


def relations(lake: Lake) -> Relations:
    """Every row of every table and model."""
    with open_warehouse(lake) as con:
        names = con.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_catalog = 'warehouse'"
            " AND table_name NOT LIKE '\\_build%' ESCAPE '\\' ORDER BY ALL"
        ).fetchall()
        return {
            name: con.execute(f'FROM warehouse.main."{name}" ORDER BY ALL').fetchall()
            for (name,) in names
        }


def rows(lake: Lake, sql: str) -> list[tuple[Any, ...]]:
    with open_warehouse(lake) as con:
        return con.execute(sql).fetchall()


def raw(lake: Lake) -> dict[str, int]:
    """Rows by run as a glob over a lake finds them."""
    found = duckdb.execute(
        f"SELECT run_id, count(*) FROM '{lake.root}/layer_times/*/*/*.parquet' GROUP BY 1"
    ).fetchall()
    return dict(found)


# --- the same rows ------------------------------------------------------------------------------


def test_small_runs_are_written_together(
    apart: Template, together: Template, whole: Relations
) -> None:
    lake = together.again()
    assert relations(lake) == whole
    assert len(groups(lake)) == 1 < len(groups(apart.again()))
    partitions = {part.rpartition("/")[0] for part in lake.snapshot().all_parts}
    assert len(lake.snapshot().all_parts) == len(partitions)
    assert check_lake(lake) == []
    assert full_build_differences(lake) == []


def test_large_runs_have_parts_of_their_own(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = sorted(path.stat().st_size for path in archive.glob("plan*.txt"))
    monkeypatch.setattr("tracelake.ingest.batches._SMALL_BYTES", sizes[0] + 1)
    plans = {"large.txt": plan(40), "one.txt": plan(3), "two.txt": plan(2)}
    run_ingest(write(tmp_path / "in", plans), tmp_path / "lake")
    lake = Lake.open(tmp_path / "lake")
    runs = [
        runs_in(lake.root / part) for part in lake.snapshot().parts_by_table()["workload_passes"]
    ]
    assert sorted([run.split("-")[0] for run in found] for found in runs) == [
        ["large"],
        ["one", "two"],
    ]
    assert len(groups(lake)) == 2


def test_every_relation_has_the_same_rows_before_and_after_a_merge(
    apart: Template, whole: Relations
) -> None:
    lake = apart.again()
    assert {format_ for _, format_ in rows(lake, "SELECT run_id, format FROM runs")} == {
        *("aicb_workload", "optimus", "rank_trace")
    }
    merge_groups(lake)
    assert len(groups(lake)) == 1
    assert relations(lake) == whole
    assert check_lake(lake) == []
    assert full_build_differences(lake) == []  # and all computed anew
    assert build(lake, full=True).built == tuple(lake.snapshot().runs)
    assert relations(lake) == whole


def test_runs_of_a_part_are_computed_some_at_a_time(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = relations(lake)
    monkeypatch.setattr("tracelake.models.batches._BATCH_BYTES", -1)
    assert build(lake, full=True).built == RUNS
    assert relations(lake) == before


@pytest.mark.usefixtures("few")
def test_runs_of_a_part_are_computed_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {}
    for month in (1, 2):
        for day in range(1, 5):
            stamp = f"2025{month:02}{day:02}000000"
            files[trace_name(0, world=1, stamp=stamp)] = trace(0, steps=day, start=1000.0 * month)
    run_ingest(write(tmp_path / "in", files), tmp_path / "lake")
    lake = Lake.open(tmp_path / "lake")
    snapshot = lake.snapshot()
    part_of = {run_id: entry.parts["runs"] for run_id, entry in snapshot.runs.items()}
    in_order = [part_of[run_id] for run_id in sorted(part_of)]
    assert in_order != sorted(in_order)  # by their names, runs of one part lie between others
    half = sum(entry.text_bytes for entry in snapshot.runs.values()) // 2
    monkeypatch.setattr("tracelake.models.batches._BATCH_BYTES", half)
    build(lake)
    computed = recorded(lake.warehouse).model_parts
    assert {len({part_of[run_id] for run_id in runs}) for runs in computed.values()} == {1}


def test_the_runs_of_a_part_are_in_order(lake: Lake) -> None:
    for table, part in parts(lake).items():
        assert pq.read_schema(part).equals(tables()[table].rewritten_schema)
        described = pq.read_metadata(part).metadata[METADATA_KEY]
        assert described == tables()[table].storage_schema.metadata[METADATA_KEY]
    found = pq.ParquetFile(parts(lake)["layer_times"]).read()
    keys = list(zip(found["run_id"].to_pylist(), found["line"].to_pylist(), strict=True))
    assert keys == sorted(keys)
    group = pq.ParquetFile(parts(lake)["layer_times"]).metadata.row_group(0)
    assert (group.column(0).statistics.min, group.column(0).statistics.max) == ("a", "c")


@pytest.mark.usefixtures("few")
def test_a_month_is_that_of_the_run(tmp_path: Path) -> None:
    dated = GOLDEN / "optimus" / "merged_ranks" / "input"
    run_ingest(write(tmp_path / "in", {"plan.txt": plan(2)}), tmp_path / "lake")
    lake = ingest_and_build(dated, tmp_path / "lake")
    found = {
        part.split("/", 1)[1].rpartition("/")[0]
        for part in lake.snapshot().parts_by_table()["runs"]
    }
    wanted = rows(lake, "SELECT format, strftime(run_date, '%Y-%m') FROM runs")
    assert found == {f"format={name}/month={month or 'undated'}" for name, month in wanted}


def test_a_query_that_names_a_run_reads_its_parts_alone(
    lake: Lake, tmp_path: Path, tracelake: Command
) -> None:
    commit_run(lake, "d", log_run())
    build(lake)
    (lost,) = lake.snapshot().parts_by_table(["a"])["layer_times"]
    (lake.root / lost).unlink()
    del tmp_path
    opened = importlib.import_module("tracelake").open(lake.root)
    assert len(opened.table("layer_times", run="d").fetchall()) == 6
    assert tracelake("query", "FROM layer_times", "--lake", lake.root).code == 3


def test_a_timeline_reads_the_parts_of_its_run_alone(apart: Template, tracelake: Command) -> None:
    lake = apart.again()
    runs = lake.snapshot().runs
    first, second, *_ = (run_id for run_id, run in runs.items() if "ops" in run.parts)
    for part in runs[second].parts["ops"]:
        (lake.root / part).unlink()
    out = lake.root.parent / "timeline.json"
    assert tracelake("timeline", first, "--lake", lake.root, "-o", out).code == 0
    assert json.loads(out.read_bytes())["otherData"]["run_id"] == first
    assert tracelake("timeline", second, "--lake", lake.root, "-o", out).code == 3


# --- groups that grow in number -----------------------------------------------------------------


@pytest.mark.usefixtures("few")
def test_small_groups_are_merged_once_there_are_many(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    for number in range(15):
        commit_run(lake, f"r{number:02}", log_run())
    build(lake)
    assert len(groups(lake)) == 15
    commit_run(lake, "r15", log_run())
    before = lake.snapshot().all_parts
    assert build(lake).built == ("r15",)  # no model is computed again
    (group,) = groups(lake)
    assert group.startswith("runs-")
    assert runs_in(parts(lake)["layer_times"]) == [f"r{number:02}" for number in range(16)]
    assert before.isdisjoint(stored_parts(lake))
    assert raw(lake) == {f"r{number:02}": 6 for number in range(16)}
    assert check_lake(lake) == []


@pytest.mark.parametrize(("limit", "value"), [("_FULL_RUNS", 3), ("_FULL_BYTES", 0)])
def test_groups_that_are_full_are_left(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    full = parts(lake)["layer_times"]
    monkeypatch.setattr(f"tracelake.lake.rewriting.{limit}", value)
    for run_id in ("d", "e"):
        commit_run(lake, run_id, log_run())
    merge_groups(lake)
    assert full.is_file()
    left = [runs_in(lake.root / part) for part in lake.snapshot().parts_by_table()["layer_times"]]
    assert sorted(left) == ([[*RUNS], ["d", "e"]] if value else [[*RUNS], ["d"], ["e"]])
    assert check_lake(lake) == []


def test_a_merged_group_has_no_more_than_its_bound(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracelake.lake.rewriting._MERGED_RUNS", 2)
    for run_id in ("d", "e", "f"):
        commit_run(lake, run_id, log_run())
    merge_groups(lake)
    left = [runs_in(lake.root / part) for part in lake.snapshot().parts_by_table()["layer_times"]]
    assert sorted(left) == [["a", "b", "c"], ["d", "e"], ["f"]]


@pytest.mark.usefixtures("few")
def test_runs_of_an_earlier_schema_are_not_merged(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    for run_id in RUNS:
        commit_run(lake, run_id, log_run())
    commit_run(lake, "old", log_run(), schema_version=SCHEMA_VERSION - 1, lacking=["attribution"])
    merge_groups(lake)
    left = [runs_in(lake.root / part) for part in lake.snapshot().parts_by_table()["layer_times"]]
    assert sorted(left) == [[*RUNS], ["old"]]
    asked = "SELECT run_id FROM layer_times WHERE attribution IS NULL GROUP BY 1"
    assert rows(lake, asked) == [("old",)]
    assert check_lake(lake) == []


def test_a_run_that_changes_during_a_merge_keeps_its_new_rows(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run_id in ("d", "e"):
        commit_run(lake, run_id, log_run())
    merge = _Rewriting.merge

    def disturbed(self: _Rewriting, runs: Any) -> Any:
        entries = merge(self, runs)
        commit_run(lake, "d", log_run(steps=9))
        return entries

    with monkeypatch.context() as patched:
        patched.setattr(_Rewriting, "merge", disturbed)
        merge_groups(lake)
    by_run = "SELECT run_id, count(*) FROM layer_times GROUP BY 1"
    wanted = {"a": 6, "b": 8, "c": 10, "d": 18, "e": 6}
    assert dict(rows(lake, by_run)) == wanted
    build(lake)
    assert dict(rows(lake, by_run)) == wanted == raw(lake)
    assert check_lake(lake) == []


# --- runs that go or change -----------------------------------------------------------------------


def replace_b(lake: Lake) -> None:
    (group,) = {run.group for run in lake.snapshot().runs.values() if run.run_id == "b"}
    commit_run(lake, "b", log_run(steps=9))
    assert lake.snapshot().runs["b"].group != group


def drop_b(lake: Lake) -> None:
    drop_run(lake, "b")


def drop_all(lake: Lake) -> None:
    for run_id in RUNS:
        drop_run(lake, run_id)


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (replace_b, {"a": 6, "b": 18, "c": 10}),
        (drop_b, {"a": 6, "c": 10}),
        (drop_all, {}),
    ],
)
def test_a_build_leaves_no_row_of_a_run_that_was_replaced_or_dropped(
    lake: Lake, change: Callable[[Lake], None], left: dict[str, int]
) -> None:
    old = parts(lake)
    change(lake)
    assert rows(lake, "SELECT count(*) FROM layer_times") == [(24,)]  # until it is built
    built = build(lake)
    assert set(built.built) == set(left) & {"b"}
    by_run = "SELECT run_id, count(*) FROM layer_times GROUP BY 1"
    assert dict(rows(lake, by_run)) == left
    assert not any(part.exists() for part in old.values())
    assert not left or raw(lake) == left
    assert check_lake(lake) == []
    assert full_build_differences(lake) == []
    named = lake.snapshot().all_parts | named_parts(lake.warehouse)
    assert sorted(stored_parts(lake)) == sorted(named)
    assert bool(groups(lake)) == bool(left)


def test_parts_of_other_groups_are_left_as_they_are(lake: Lake) -> None:
    for run_id in ("d", "e"):
        commit_run(lake, run_id, log_run())
    build(lake)
    before = {part: (lake.root / part).stat().st_ino for part in lake.snapshot().all_parts}
    drop_run(lake, "b")
    build(lake)
    after = {part: (lake.root / part).stat().st_ino for part in lake.snapshot().all_parts}
    kept = [part for part, _ in before.items() & after.items() if part.startswith(LAYERS)]
    assert sorted(runs_in(lake.root / part) for part in kept) == [["d"], ["e"]]


def test_readers_see_no_row_of_a_run_that_went_while_it_was_built(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A run is replaced after parts were written anew and before the lake is read.
    with monkeypatch.context() as patched:
        builder = importlib.import_module("tracelake.models.build")
        patched.setattr(builder, "tidy", lambda _: replace_b(lake))
        build(lake)
    by_run = "SELECT run_id, count(*) FROM layer_times GROUP BY 1"
    right = {"a": 6, "b": 18, "c": 10}
    assert dict(rows(lake, by_run)) == right
    assert raw(lake) == {**right, "b": 8 + 18}
    found = relations(lake)
    moved = Path(shutil.move(lake.root, lake.root.with_name("moved")))
    assert dict(rows(Lake.open(moved), by_run)) == right
    assert set(build(Lake.open(moved), full=True).built) == {*RUNS}
    assert raw(Lake.open(moved)) == right
    assert relations(Lake.open(moved)) == found  # models had read the new rows alone


def test_outdated_rows_that_cannot_go_are_left_out(lake: Lake) -> None:
    damage(parts(lake)["layer_times"])
    drop_run(lake, "b")
    build(lake)
    snapshot = lake.snapshot()
    assert {part.split("/")[0]: runs for part, runs in snapshot.dead.items()} == {
        "layer_times": {"b"}
    }
    assert {found.check for found in check_lake(lake)} >= {"parts_intact"}


def test_the_command_drops_a_run_and_says_its_share(lake: Lake, tracelake: Command) -> None:
    size = sum(part.stat().st_size // (2 if table == "rejects" else 3)
               for table, part in parts(lake).items())  # fmt: skip
    done = tracelake("drop", "b", "--lake", lake.root, "--format", "json")
    (told,) = json.loads(done.out)
    assert (told["run_id"], told["files"], told["bytes"]) == ("b", 0, size)
    assert raw(lake) == {"a": 6, "c": 10}


@pytest.mark.usefixtures("few")
def test_input_of_a_group_is_known_again_and_may_grow(sample: Path, tmp_path: Path) -> None:
    archive = filled(tmp_path / "archive", sample)
    lake = ingest_and_build(archive, tmp_path / "lake")
    before, stamp = sorted(stored_parts(lake)), lake.snapshot().stamp
    run_ingest(archive, lake.root)
    assert build(lake).unchanged
    for path in archive.rglob("*.txt"):
        path.touch()
    ingest_and_build(archive, lake.root)
    assert (sorted(stored_parts(lake)), lake.snapshot().stamp) == (before, stamp)
    with (archive / "plan3.txt").open("a") as file:
        file.write(plan(1).splitlines()[-1] + "\n")
    ingest_and_build(archive, lake.root)
    found = [runs_in(lake.root / part) for part in lake.snapshot().parts_by_table()["runs"]]
    assert "plan3" in {runs[0][:5] for runs in found if len(runs) == 1}
    assert check_lake(lake) == []
    assert relations(lake) == relations(ingest_and_build(archive, tmp_path / "other"))


@pytest.mark.usefixtures("few")
def test_small_runs_that_change_are_written_together_again(tmp_path: Path) -> None:
    archive = write(tmp_path / "archive", {f"plan{n}.txt": plan(n) for n in range(3, 9)})
    lake = ingest_and_build(archive, tmp_path / "lake")
    whole = (archive / "plan5.txt").read_text()
    for path in archive.iterdir():
        grown = path.read_text() + plan(1).splitlines()[-1] + "\n"
        lost = "".join(whole.splitlines(keepends=True)[:-1])  # so that the lake keeps its run
        path.write_text(lost if path.name == "plan5.txt" else grown)
    assert statuses(run_ingest(archive, lake.root)) == ["kept", *["updated"] * 5]
    found = [runs_in(lake.root / part) for part in lake.snapshot().parts_by_table()["runs"]]
    assert sorted(map(len, found)) == [6, 6]
    build(lake)
    found = [runs_in(lake.root / part) for part in lake.snapshot().parts_by_table()["runs"]]
    assert sorted(map(len, found)) == [1, 5]
    assert check_lake(lake) == []
    write(archive, {"plan5.txt": whole})
    assert relations(lake) == relations(ingest_and_build(archive, tmp_path / "other"))


def test_a_lake_that_was_moved_is_read_where_it_is(lake: Lake, tmp_path: Path) -> None:
    before = relations(lake)
    moved = Lake.open(shutil.move(lake.root, tmp_path / "moved"))
    assert rows(moved, "SELECT count(*) FROM layer_times") == [(24,)]
    build(moved)
    assert relations(moved) == before


# --- what can go wrong ----------------------------------------------------------------------------


def test_a_damaged_part_is_found_and_its_runs_come_back_from_their_input(
    archive: Path,
    together: Template,
    whole: Relations,
    tracelake: Command,
) -> None:
    lake = together.again()
    (part, *_) = lake.snapshot().parts_by_table()["workload_passes"]
    damage(lake.root / part)
    (found,) = [f for f in check_lake(lake) if f.check == "parts_intact"]
    assert part in found.message
    assert found.repair.startswith("give their input to tracelake run again")
    assert tracelake("run", archive, "--lake", lake.root).code == 0
    assert check_lake(lake) == []
    assert relations(lake) == whole


@pytest.mark.usefixtures("few")
def test_damage_is_not_merged(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    for run_id in RUNS:
        commit_run(lake, run_id, log_run())
    damage(lake.root / lake.snapshot().parts_by_table(["b"])["layer_times"][0])
    merge_groups(lake)
    assert groups(lake) == [*RUNS]
    assert rows(lake, "SELECT DISTINCT run_id FROM layer_times ORDER BY 1") == [("a",), ("c",)]


def test_a_manifest_that_lists_other_runs_than_a_part_has_is_found(lake: Lake) -> None:
    (path,) = (lake.root / "_manifest").glob("runs-*.json")
    content = json.loads(path.read_text())
    content["parts"] = {part: [[0, 1]] for part in content["parts"]}
    path.write_text(json.dumps(content))
    found = {finding.check: finding for finding in check_lake(lake)}
    assert found["parts_listed"].rows == 5


@pytest.mark.parametrize("listed", [["x", "y", "z"], ["a", "b", "x"]])
def test_a_build_goes_on_where_a_manifest_lists_runs_that_are_not_there(
    lake: Lake, listed: list[str]
) -> None:
    before = rows(lake, "FROM layer_times ORDER BY ALL")
    (path,) = (lake.root / "_manifest").glob("runs-*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "listed": listed}))
    build(lake)
    assert rows(lake, "FROM layer_times ORDER BY ALL") == before
    assert set(lake.snapshot().runs) == {*RUNS}


@pytest.mark.parametrize("wrong", [[[0, 3]], [[2, 1]], [[0]], "x"])
def test_a_manifest_whose_list_is_damaged_is_refused(
    lake: Lake, tracelake: Command, wrong: object
) -> None:
    (path,) = (lake.root / "_manifest").glob("runs-*.json")
    content = json.loads(path.read_text())
    content["parts"] = dict.fromkeys(content["parts"], wrong)
    path.write_text(json.dumps(content))
    done = tracelake("build", "--lake", lake.root)
    assert done.code == 3
    assert "the manifest is damaged" in done.err


def test_a_run_that_another_ingest_has_committed_is_in_one_group(
    archive: Path,
    whole: Relations,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = Lake.create(tmp_path / "lake")
    commit = Lake.commit_all
    met: list[int] = []

    def overtaken(self: Lake, changes: Any) -> None:
        if not met:
            met.append(1)
            ingest([str(archive / "plan3.txt")], Lake.open(lake.root), Options(), jobs=1)
        commit(self, changes)

    with monkeypatch.context() as patched:
        patched.setattr(Lake, "commit_all", overtaken)
        ingest([str(archive)], lake, Options(), jobs=1)
    assert lake.snapshot().twice == ()
    build(lake)
    assert check_lake(lake) == []
    assert relations(lake) == whole


def test_a_run_in_two_groups_is_one_run(lake: Lake) -> None:
    # As two machines leave it that commit the same input to a store at once.
    other = Lake.create(lake.root.with_name("other"))
    commit_run(other, "b", log_run(steps=4, rejected=1))
    shutil.copytree(other.root, lake.root, dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("_lock", "_staging", "_loose"))  # fmt: skip
    assert {run_id for run_id, _ in lake.snapshot().twice} == {"b"}
    build(lake)
    assert lake.snapshot().twice == ()
    assert raw(lake) == {"a": 6, "b": 8, "c": 10}
    assert check_lake(lake) == []
    drop_run(lake, "b")
    build(lake)
    assert raw(lake) == {"a": 6, "c": 10}


def test_a_change_made_from_an_older_entry_is_left_out(lake: Lake) -> None:
    before = lake.snapshot().runs["b"]
    replace_b(lake)
    now = lake.snapshot().runs["b"]
    lake.commit_all([Change(before.group, [before], {}, over=[before])])
    assert lake.snapshot().runs["b"] == now


# --- lakes of earlier versions --------------------------------------------------------------------


@pytest.fixture
def packed(tmp_path: Path, few: None) -> Lake:  # noqa: ARG001
    """A lake in which an earlier version has moved rows of many runs into packs."""
    lake = opened(FIXTURES / "lake-1.2.5", tmp_path / "packed")
    assert (lake.root / "_manifest" / "_packs.json").is_file()
    return lake


def test_packs_become_a_group(packed: Lake) -> None:
    runs = packed.snapshot().runs
    build(packed)
    after = packed.snapshot()
    assert {run_id: run.parts for run_id, run in after.runs.items()} == {
        run_id: run.parts for run_id, run in runs.items()
    }
    assert not (packed.root / "_manifest" / "_packs.json").exists()
    assert check_lake(packed) == []
    run_id = min(run_id for run_id, run in runs.items() if "runs_packed" in run.parts["runs"][0])
    drop_run(packed, run_id)
    build(packed)
    assert check_lake(packed) == []
    left = [runs_in(packed.root / p) for p in packed.snapshot().all_parts if "runs_packed" in p]
    assert left
    assert run_id not in {run for runs in left for run in runs}


def test_inputs_of_packs_are_known_again(packed: Lake, tmp_path: Path) -> None:
    inputs = [str(GOLDEN / name / "input") for name in INPUTS]
    ingest(inputs, packed, Options(), jobs=1)
    assert not (packed.root / "_manifest" / "_packs.json").exists()
    build(packed)
    fresh = Lake.create(tmp_path / "fresh")
    ingest(inputs, fresh, Options(), jobs=1)
    build(fresh)
    by_run = "SELECT run_id, count(*) FROM ops GROUP BY ALL ORDER BY ALL"
    assert rows(packed, by_run) == rows(fresh, by_run)
    assert check_lake(packed) == []


@pytest.mark.parametrize(("content", "message"), [("{", "cannot be read"), ("9", "version 9")])
def test_a_list_of_packs_that_is_newer_or_damaged_is_refused(
    packed: Lake, tracelake: Command, content: str, message: str
) -> None:
    text = content if content == "{" else json.dumps({"version": 9, "runs": {}, "packs": {}})
    (packed.root / "_manifest/_packs.json").write_text(text)
    for words in (["build"], ["check"], ["ingest", str(packed.root)]):
        done = tracelake(*words, "--lake", packed.root)
        assert done.code == 3
        assert message in done.err


def test_compact_says_that_there_is_nothing_to_do(lake: Lake, tracelake: Command) -> None:
    before = sorted(stored_parts(lake))
    done = tracelake("compact", "--lake", lake.root)
    assert (done.code, done.out) == (0, "")
    assert "needs no compaction" in done.err
    assert sorted(stored_parts(lake)) == before
    assert "compact" not in tracelake("--help").out


# --- past the warehouse ---------------------------------------------------------------------------


def by_duckdb(root: Path) -> Iterator[str]:
    sql = f"SELECT run_id FROM '{root}/layer_times/*/*/*.parquet'"
    yield from (run for (run,) in duckdb.execute(sql).fetchall())


def by_polars(root: Path) -> Iterator[str]:
    yield from pl.read_parquet(f"{root}/layer_times")["run_id"].to_list()


def by_pyarrow(root: Path) -> Iterator[str]:
    yield from pq.read_table(f"{root}/layer_times")["run_id"].to_pylist()


def by_dataset(root: Path) -> Iterator[str]:
    found = ds.dataset(f"{root}/layer_times", partitioning="hive").to_table()
    assert set(found["format"].to_pylist()) == {"tiny"}
    yield from found["run_id"].to_pylist()


@pytest.mark.parametrize("read", [by_duckdb, by_polars, by_pyarrow, by_dataset])
def test_a_reader_past_the_warehouse_finds_every_row(
    lake: Lake, read: Callable[[Path], Iterator[str]]
) -> None:
    commit_run(lake, "d", log_run())
    build(lake)
    found = list(read(lake.root))
    assert {run: found.count(run) for run in found} == {"a": 6, "b": 8, "c": 10, "d": 6}
