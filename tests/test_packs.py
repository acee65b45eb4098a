"""Small parts are packed: the same rows in few files, whatever becomes of the runs."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.conftest import Command
from tests.lakes import Template, ingest_and_build, run_ingest, unchanged
from tests.tiny_lakes import commit_run, drop_run, log_run
from tests.traces import plan, trace, trace_name, write
from tracelake.base.errors import LakeError
from tracelake.lake import Lake
from tracelake.lake.packing import compact
from tracelake.models import build
from tracelake.models.state import named_parts
from tracelake.schema.tables import METADATA_KEY, SCHEMA_VERSION, tables
from tracelake.warehouse import open_warehouse
from tracelake.warehouse.check import check_incremental, check_lake

RUNS = ("a", "b", "c")


def stored_parts(lake: Lake) -> list[str]:
    return [found.part for found in lake.part_files.stored()]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Template:
    made = Lake.create(tmp_path_factory.mktemp("packed") / "lake")
    for number, run_id in enumerate(RUNS):
        commit_run(made, run_id, log_run(steps=3 + number, rejected=number))
    compact(made)
    build(made)
    return Template.of(made)


@pytest.fixture
def lake(packed: Template) -> Lake:
    """Runs a, b and c of a training log, packed."""
    return packed.again()


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
def unpacked(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Template:
    """The lake of that archive."""
    return Template.of(ingest_and_build(archive, tmp_path_factory.mktemp("unpacked") / "lake"))


def own_parts(lake: Lake) -> set[str]:
    return {part for part in stored_parts(lake) if "/run_id=" in part}


def packs(lake: Lake) -> dict[str, Path]:
    """Packs by table, of which there is one each."""
    found = {part.split("/")[0]: lake.root / part for part in lake.snapshot().packs.runs}
    assert len(found) == len(lake.snapshot().packs.runs)
    return found


def packed_runs(lake: Lake, table: str = "layer_times") -> list[str]:
    """Runs in order of the rows of a pack."""
    key = pq.read_table(packs(lake)[table])["run_id"].to_pylist()
    return list(dict.fromkeys(key))


def damage(part: Path) -> None:
    content = bytearray(part.read_bytes())
    content[8] ^= 1
    part.write_bytes(content)


def relations(lake: Lake) -> dict[str, list[tuple[Any, ...]]]:
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


def raw(lake: Lake, table: str = "layer_times") -> dict[str, int]:
    """Rows by run as a glob over a lake finds them that has packs only."""
    found = duckdb.execute(
        f"SELECT run_id, count(*) FROM read_parquet('{lake.root}/{table}/*/*.parquet') GROUP BY 1"
    ).fetchall()
    return dict(found)


# --- the same rows ------------------------------------------------------------------------------


def test_every_relation_has_the_same_rows_before_and_after(
    unpacked: Template, tracelake: Command
) -> None:
    lake = unpacked.again()
    on_lake = ("--lake", lake.root)
    before, files = relations(lake), len(own_parts(lake))
    assert {format_ for _, format_ in rows(lake, "SELECT run_id, format FROM runs")} == {
        *("aicb_workload", "optimus", "rank_trace")
    }
    done = tracelake("compact", *on_lake, "--format", "json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert sum(one["files_before"] for one in told) == files - 1  # `skipped` belongs to no run
    assert [one["files_after"] for one in told] == [1] * len(told)
    assert "0 runs computed" in done.err
    assert relations(lake) == before
    assert {part.split("/")[0] for part in own_parts(lake)} == {"skipped"}
    assert check_lake(lake) == []
    assert check_incremental(lake) == []  # and all computed anew from packs
    assert tracelake("build", "--full", *on_lake).code == 0
    assert relations(lake) == before


def test_runs_of_a_pack_are_computed_some_at_a_time(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = relations(lake)
    monkeypatch.setattr("tracelake.models.batches._BATCH_BYTES", 0)
    assert build(lake, full=True).built == RUNS
    assert relations(lake) == before


def test_a_second_time_there_is_nothing_to_do(lake: Lake, tracelake: Command) -> None:
    before = sorted(stored_parts(lake))
    done = tracelake("compact", "--lake", lake.root)
    assert (done.code, done.out) == (0, "")
    assert "packed 0 files, 0 B -> 0 files, 0 B" in done.err
    assert "already current" in done.err
    assert sorted(stored_parts(lake)) == before


def test_a_dry_run_says_what_would_be_packed(tmp_path: Path, tracelake: Command) -> None:
    lake = Lake.create(tmp_path / "lake")
    for run_id in RUNS:
        commit_run(lake, run_id, log_run())
    before = sorted(stored_parts(lake))
    done = tracelake("compact", "--lake", lake.root, "--dry-run", "--format", "json")
    size = sum((lake.root / part).stat().st_size for part in before)
    told = {one["table"]: one for one in json.loads(done.out)}
    assert set(told) == {"layer_times", "runs", "sources", "train_steps"}
    assert (told["runs"]["runs"], told["runs"]["files_before"]) == (3, 3)
    assert told["runs"]["files_after"] is None
    assert sum(one["bytes_before"] for one in told.values()) == size
    assert done.err.startswith("would pack 12 files, ")
    assert sorted(stored_parts(lake)) == before
    assert not lake.warehouse.exists()


def test_a_pack_is_a_part_with_its_run_in_order(lake: Lake) -> None:
    for table, pack in packs(lake).items():
        schema = pq.read_schema(pack)
        assert schema.equals(tables()[table].packed_schema)
        described = pq.read_metadata(pack).metadata[METADATA_KEY]
        assert described == tables()[table].storage_schema.metadata[METADATA_KEY]
    found = pq.read_table(packs(lake)["layer_times"])
    keys = list(zip(found["run_id"].to_pylist(), found["line"].to_pylist(), strict=True))
    assert keys == sorted(keys)
    group = pq.ParquetFile(packs(lake)["layer_times"]).metadata.row_group(0)
    assert (group.column(0).statistics.min, group.column(0).statistics.max) == ("a", "c")


def test_what_has_come_since_joins_a_pack_that_is_far_from_full(lake: Lake) -> None:
    commit_run(lake, "ab", log_run())
    done = {one.table: one for one in compact(lake)}
    assert (done["layer_times"].runs, done["layer_times"].files_before) == (1, 2)
    build(lake)
    assert packed_runs(lake) == ["a", "ab", "b", "c"]
    assert rows(lake, "SELECT count(*) FROM layer_times") == [(6 + 6 + 8 + 10,)]
    assert own_parts(lake) == set()
    assert check_lake(lake) == []


def test_packs_that_are_full_are_left(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracelake.lake.packing.steps.PACK_ROWS", 12)
    monkeypatch.setattr("tracelake.lake.packing.steps._THIN_ROWS", 6)
    for run_id in ("d", "e", "f", "g"):
        commit_run(lake, run_id, log_run())
    full = packs(lake)["layer_times"]
    (step,) = [one for one in compact(lake) if one.table == "layer_times"]
    assert (step.runs, step.files_before, step.files_after) == (4, 4, 2)
    build(lake)
    assert full.is_file()
    runs = [r for p, r in lake.snapshot().packs.runs.items() if p.startswith("layer_times/")]
    assert sorted(runs) == [("a", "b", "c"), ("d", "e"), ("f", "g")]
    assert check_lake(lake) == []
    assert compact(lake) == []


def test_many_thin_packs_are_joined_some_at_a_time(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("tracelake.lake.packing.steps.PACK_ROWS", 1)
        patched.setattr("tracelake.lake.packing.steps._THIN_ROWS", 1)
        for run_id in ("d", "e", "f", "g"):
            commit_run(lake, run_id, log_run())
        compact(lake)
    monkeypatch.setattr("tracelake.lake.packing.steps._THIN_PACKS", 2)
    steps = [one for one in compact(lake) if one.table == "layer_times"]
    assert [one.files_before for one in steps] == [2, 2, 2, 2]
    build(lake)
    assert packed_runs(lake) == [*"abcdefg"]
    assert check_lake(lake) == []


def test_large_parts_keep_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake.create(tmp_path / "lake")
    commit_run(lake, "a", log_run(steps=2000))
    commit_run(lake, "b", log_run())
    commit_run(lake, "c", log_run())
    (large,) = lake.snapshot().parts("layer_times", ["a"])
    size = (lake.root / large).stat().st_size
    monkeypatch.setattr("tracelake.lake.packing.steps.SMALL_BYTES", size)
    compact(lake)
    build(lake)
    assert lake.snapshot().parts("layer_times", ["a"]) == [large]
    assert own_parts(lake) & lake.snapshot().all_parts >= {large}
    assert packed_runs(lake) == ["b", "c"]
    assert packed_runs(lake, "runs") == [*RUNS]
    assert rows(lake, "SELECT count(*) FROM layer_times JOIN runs USING (run_id)") == [(4012,)]
    assert check_lake(lake) == []


def test_runs_of_an_earlier_schema_keep_their_parts(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    for run_id in RUNS:
        commit_run(lake, run_id, log_run())
    commit_run(lake, "old", log_run(), schema_version=SCHEMA_VERSION - 1, lacking=["attribution"])
    compact(lake)
    build(lake)
    assert {part.split("/")[1] for part in own_parts(lake)} == {"run_id=old"}
    assert packed_runs(lake) == [*RUNS]
    asked = "SELECT run_id FROM layer_times WHERE attribution IS NULL GROUP BY 1"
    assert rows(lake, asked) == [("old",)]
    assert check_lake(lake) == []


# --- runs that go or change -----------------------------------------------------------------------


def replace_b(lake: Lake) -> None:
    commit_run(lake, "b", log_run(steps=9))


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
    old = packs(lake)
    change(lake)
    assert rows(lake, "SELECT count(*) FROM layer_times") == [(24,)]  # until it is built
    built = build(lake)
    assert set(built.built) == set(left) & {"b"}
    by_run = "SELECT run_id, count(*) FROM layer_times GROUP BY 1"
    assert dict(rows(lake, by_run)) == left
    assert not any(pack.exists() for pack in old.values())
    glob = f"{lake.root}/layer_times/runs_packed/*.parquet"
    raw_packs = duckdb.execute(f"SELECT run_id, count(*) FROM '{glob}' GROUP BY 1").fetchall() \
        if list((lake.root / "layer_times").glob("runs_packed/*")) else []  # fmt: skip
    assert dict(raw_packs) == {run: n for run, n in left.items() if run != "b"}
    assert check_lake(lake) == []
    assert check_incremental(lake) == []
    named = lake.snapshot().all_parts | named_parts(lake.warehouse)
    assert sorted(stored_parts(lake)) == sorted(named)
    assert (lake.root / "_manifest/_packs.json").is_file() == bool(left)


def test_packs_of_other_runs_are_left_as_they_are(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracelake.lake.packing.steps._THIN_ROWS", 1)
    for run_id in ("d", "e"):
        commit_run(lake, run_id, log_run())
    compact(lake)
    build(lake)
    before = {p: (lake.root / p).stat().st_ino for p in lake.snapshot().packs.runs}
    drop_run(lake, "d")
    build(lake)
    after = {p: (lake.root / p).stat().st_ino for p in lake.snapshot().packs.runs}
    kept = before.items() & after.items()
    assert {lake.snapshot().packs.runs[pack] for pack, _ in kept} == {RUNS, ("b", "c")}
    assert {lake.snapshot().packs.runs[pack] for pack in after.keys() - before} == {("e",)}


def test_readers_see_no_row_of_a_run_that_went_while_it_was_built(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A run is replaced after packs were written anew and before the lake is read.
    with monkeypatch.context() as patched:
        builder = importlib.import_module("tracelake.models.build")
        patched.setattr(builder, "rewrite_packs", lambda _: replace_b(lake))
        build(lake)
    by_run = "SELECT run_id, count(*) FROM layer_times GROUP BY 1"
    assert dict(rows(lake, by_run)) == {"a": 6, "b": 18, "c": 10}
    assert packed_runs(lake) == [*RUNS]
    moved = Path(shutil.move(lake.root, lake.root.with_name("moved")))
    assert dict(rows(Lake.open(moved), by_run)) == {"a": 6, "b": 18, "c": 10}
    assert compact(Lake.open(moved)) != []  # with the new rows of b
    build(Lake.open(moved))
    assert packed_runs(Lake.open(moved)) == [*RUNS]
    assert raw(Lake.open(moved)) == {"a": 6, "b": 18, "c": 10}


def test_a_run_whose_dead_rows_cannot_go_is_not_packed_again(lake: Lake) -> None:
    damage(packs(lake)["runs"])
    replace_b(lake)
    build(lake)
    compact(lake)
    build(lake)
    snapshot = lake.snapshot()
    assert snapshot.dead == {"b"}
    assert snapshot.parts("layer_times", ["b"]) == list(snapshot.runs["b"].parts["layer_times"])


def test_the_command_drops_a_packed_run_and_says_its_share(lake: Lake, tracelake: Command) -> None:
    size = sum(pack.stat().st_size // (2 if table == "rejects" else 3)
               for table, pack in packs(lake).items())  # fmt: skip
    done = tracelake("drop", "b", "--lake", lake.root, "--format", "json")
    (told,) = json.loads(done.out)
    assert (told["run_id"], told["files"], told["bytes"]) == ("b", 0, size)
    assert raw(lake) == {"a": 6, "c": 10}


def test_input_of_packed_runs_is_known_again_and_may_grow(sample: Path, tmp_path: Path) -> None:
    archive = filled(tmp_path / "archive", sample)
    lake = ingest_and_build(archive, tmp_path / "lake")
    compact(lake)
    build(lake)
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
    assert {part.split("=")[1][:5] for part in own_parts(lake) if "skipped" not in part} == {
        "plan3"
    }
    assert check_lake(lake) == []
    assert relations(lake) == relations(ingest_and_build(archive, tmp_path / "other"))


def test_a_lake_that_was_moved_is_read_where_it_is(lake: Lake, tmp_path: Path) -> None:
    before = relations(lake)
    moved = Lake.open(shutil.move(lake.root, tmp_path / "moved"))
    assert rows(moved, "SELECT count(*) FROM layer_times") == [(24,)]
    build(moved)
    assert relations(moved) == before


# --- what can go wrong ----------------------------------------------------------------------------


def test_a_damaged_pack_is_found_and_its_runs_come_back_from_their_input(
    unpacked: Template, archive: Path, tracelake: Command
) -> None:
    lake = unpacked.again()
    on_lake = ("--lake", lake.root)
    assert tracelake("compact", *on_lake).code == 0
    before = relations(lake)
    pack = packs(lake)["ops"]
    damage(pack)
    (found,) = [f for f in check_lake(lake) if f.check == "parts_intact"]
    assert "runs_packed" in found.message
    assert found.repair.startswith("give their input to tracelake run again")
    assert tracelake("run", archive, *on_lake).code == 0
    assert check_lake(lake) == []
    assert relations(lake) == before


def test_damage_is_not_packed(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    for run_id in RUNS:
        commit_run(lake, run_id, log_run())
    part = lake.root / lake.snapshot().parts("layer_times", ["b"])[0]
    damage(part)
    with pytest.raises(LakeError, match="differs from the hash"):
        compact(lake)
    assert lake.snapshot().parts("layer_times", ["a"]) == list(
        lake.snapshot().runs["a"].parts["layer_times"]
    )


def test_a_list_that_names_other_runs_than_a_pack_holds_is_found(lake: Lake) -> None:
    path = lake.root / "_manifest/_packs.json"
    content = json.loads(path.read_text())
    content["packs"] = {pack: [[0, 1]] for pack in content["packs"]}
    path.write_text(json.dumps(content))
    found = {finding.check: finding for finding in check_lake(lake)}
    assert found["packs_listed"].rows == 5


@pytest.mark.parametrize(("content", "message"), [("{", "cannot be read"), ("9", "version 9")])
def test_a_list_of_packs_that_is_newer_or_damaged_is_refused(
    lake: Lake, tracelake: Command, content: str, message: str
) -> None:
    text = content if content == "{" else json.dumps({"version": 9, "runs": {}, "packs": {}})
    (lake.root / "_manifest/_packs.json").write_text(text)
    for words in (["build"], ["compact"], ["check"], ["ingest", str(lake.root)]):
        done = tracelake(*words, "--lake", lake.root)
        assert done.code == 3
        assert message in done.err


def test_a_tracelake_that_knows_no_packs_refuses_the_lake(lake: Lake) -> None:
    content = json.loads((lake.root / "_manifest/_packs.json").read_text())
    assert content["version"] == 2  # every manifest that it reads has 1, or it reads no further


def test_a_compaction_that_was_stopped_is_ended_by_the_next(
    tmp_path: Path,
) -> None:
    lake, whole = Lake.create(tmp_path / "lake"), Lake.create(tmp_path / "whole")
    for made in (lake, whole):
        for run_id in RUNS:
            commit_run(made, run_id, log_run())
        build(made)
    before = relations(lake)
    compact(whole)
    build(whole)

    def stop(told: str) -> None:
        if told == "packing runs":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(lake, progress=stop)
    assert set(packs(lake)) == {"layer_times"}
    assert relations(lake) == before
    assert {f.check for f in check_lake(lake)} == {"warehouse_current"}
    build(lake)
    assert relations(lake) == before
    compact(lake)
    build(lake)
    assert sorted(stored_parts(lake)) == sorted(stored_parts(whole))
    assert relations(lake) == before


# --- past the warehouse ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(packed: Template) -> Iterator[Path]:
    """A lake that has beside its packs a run that has come since."""
    lake = packed.again()
    commit_run(lake, "d", log_run())
    build(lake)
    readers = lake.root.rename(lake.root.with_name("mixed"))
    with unchanged(readers):
        yield readers


ALL = {"a": 6, "b": 8, "c": 10, "d": 6}


def by_duckdb(root: Path) -> dict[str, int]:
    sql = f"""
        FROM read_parquet('{root}/layer_times/runs_packed/*.parquet')
        UNION ALL BY NAME
        FROM read_parquet('{root}/layer_times/run_id=*/*.parquet',
            hive_partitioning = true, hive_types = {{'run_id': VARCHAR}})
    """
    found = duckdb.execute(f"SELECT run_id, count(total_ns) FROM ({sql}) GROUP BY 1").fetchall()
    return dict(found)


def by_polars(root: Path) -> dict[str, int]:
    packed = pl.scan_parquet(f"{root}/layer_times/runs_packed/*.parquet", hive_partitioning=False)
    own = pl.scan_parquet(
        f"{root}/layer_times/run_id=*/*.parquet", hive_schema={"run_id": pl.String}
    )
    found = pl.concat([packed, own.select(packed.collect_schema().names())])
    return dict(found.group_by("run_id").agg(pl.col("total_ns").count()).collect().iter_rows())


def by_pyarrow(root: Path) -> dict[str, int]:
    key = pa.schema([("run_id", pa.string())])
    found = ds.dataset(f"{root}/layer_times", partitioning=ds.partitioning(key, flavor="hive"))
    names = found.to_table(columns=["run_id", "total_ns"])["run_id"].to_pylist()
    return {name: names.count(name) for name in names}


@pytest.mark.parametrize("read", [by_duckdb, by_polars, by_pyarrow])
def test_a_reader_past_the_warehouse_finds_every_row(
    mixed: Path, read: Callable[[Path], dict[str, int]]
) -> None:
    assert read(mixed) == ALL


def naive_duckdb(root: Path) -> Iterator[str]:
    yield from (
        run
        for (run,) in duckdb.execute(
            f"SELECT run_id FROM '{root}/layer_times/*/*.parquet'"
        ).fetchall()
    )


def naive_hive(root: Path) -> Iterator[str]:
    glob = f"{root}/layer_times/*/*.parquet"
    sql = f"SELECT run_id FROM read_parquet('{glob}', hive_partitioning = true)"
    yield from (run for (run,) in duckdb.execute(sql).fetchall())


def naive_polars(root: Path) -> Iterator[str]:
    yield from pl.read_parquet(f"{root}/layer_times/*/*.parquet")["run_id"].to_list()


def naive_polars_folder(root: Path) -> Iterator[str]:
    yield from pl.read_parquet(f"{root}/layer_times")["run_id"].to_list()


def naive_pyarrow(root: Path) -> Iterator[str]:
    yield from ds.dataset(f"{root}/layer_times").to_table()["run_id"].to_pylist()


def naive_pyarrow_hive(root: Path) -> Iterator[str]:
    found = ds.dataset(f"{root}/layer_times", partitioning="hive")
    yield from found.to_table()["run_id"].to_pylist()


def naive_pandas_like(root: Path) -> Iterator[str]:
    yield from pq.read_table(f"{root}/layer_times")["run_id"].to_pylist()


@pytest.mark.parametrize(
    "read",
    [
        *(naive_duckdb, naive_hive, naive_polars, naive_polars_folder, naive_pyarrow),
        *(naive_pyarrow_hive, naive_pandas_like),
    ],
)
def test_one_that_asks_without_care_gets_an_error_or_every_row(
    mixed: Path, read: Callable[[Path], Iterator[str]]
) -> None:
    try:
        found = list(read(mixed))
    except (duckdb.Error, pl.exceptions.PolarsError, pa.ArrowException, KeyError):
        return
    assert {run: found.count(run) for run in found} == ALL
