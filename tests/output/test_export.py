"""`tracelake export`: what a lake knows, in files that need no lake."""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from tests.conftest import Command
from tests.lakes import unchanged
from tests.tiny_lakes import commit_run, log_run
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.models.describe import describe, relation_columns

COVERAGE = "SELECT run_id, not_computable FROM coverage ORDER BY run_id"
STEPS = "SELECT run_id, step, loss, step_time_ns FROM train_steps ORDER BY ALL"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Lake.create(tmp_path_factory.mktemp("export") / "lake")
    commit_run(made, "a", log_run(rejected=2))
    commit_run(made, "b", log_run(steps=5))
    build(made)
    return made.root


def test_a_duckdb_file_has_everything_and_needs_no_lake(
    lake: Path, tmp_path: Path, tracelake: Command
) -> None:
    copy, target = tmp_path / "lake", tmp_path / "all.duckdb"
    shutil.copytree(lake, copy)
    done = tracelake("export", "--lake", copy, target)
    assert (done.code, done.out) == (0, "")
    assert f"{describe().num_rows} relations" in done.err
    with duckdb.connect(str(lake / "warehouse.duckdb"), read_only=True) as con:
        answers = [con.execute(sql).fetchall() for sql in (COVERAGE, STEPS)]
    shutil.rmtree(copy)
    with duckdb.connect(str(target), read_only=True) as con:
        assert [con.execute(sql).fetchall() for sql in (COVERAGE, STEPS)] == answers
        found = con.execute(
            "SELECT table_name, column_name, data_type FROM duckdb_columns()"
            " WHERE comment IS NOT NULL ORDER BY table_name, column_index"
        ).fetchall()
    names = describe().column("name").to_pylist()
    assert found == [(n, c.name, c.type) for n in sorted(names) for c in relation_columns(n)]


def test_an_sqlite_file_has_lists_as_json_and_says_what_columns_mean(
    lake: Path, tmp_path: Path, tracelake: Command
) -> None:
    target = tmp_path / "some.sqlite"
    assert tracelake("export", "--lake", lake, target, "--model", "coverage").code == 0
    with duckdb.connect(str(lake / "warehouse.duckdb"), read_only=True) as con:
        expected = con.execute(COVERAGE).fetchall()
    with closing(sqlite3.connect(target)) as con:
        rows = con.execute(COVERAGE).fetchall()
        docs = dict(con.execute("SELECT column, doc FROM _columns WHERE name = 'coverage'"))
    assert [(run, json.loads(why)) for run, why in rows] == expected
    assert expected[0][1]
    assert docs["not_computable"]


@pytest.mark.parametrize("fmt", ["csv", "parquet"])
def test_a_folder_has_a_file_per_chosen_model_of_the_chosen_run(
    lake: Path, tmp_path: Path, tracelake: Command, fmt: str
) -> None:
    chosen = ["--model", "train_steps", "--model", "incidents", "--run", "a"]
    folder = tmp_path / "out"
    assert tracelake("export", "--lake", lake, folder, "--format", fmt, *chosen).code == 0
    assert {path.name for path in folder.iterdir()} == {f"train_steps.{fmt}", f"incidents.{fmt}"}
    steps = folder / f"train_steps.{fmt}"
    if fmt == "csv":
        with steps.open(newline="") as file:
            found = [(row["run_id"], int(row["step"])) for row in csv.DictReader(file)]
    else:
        table = pq.read_table(steps)
        found = list(zip(*(table.column(c).to_pylist() for c in ("run_id", "step")), strict=True))
    assert sorted(found) == [("a", 1), ("a", 2)]


def test_a_wrong_target_changes_nothing(lake: Path, tmp_path: Path, tracelake: Command) -> None:
    old = tmp_path / "old.duckdb"
    old.write_bytes(b"old")
    with unchanged(lake):
        for target, words, said in (
            (tmp_path / "folder", [], "does not say its format"),
            (tmp_path / "new.duckdb", ["--format", "csv"], "is named as a database"),
            (tmp_path / "new.duckdb", ["--format", "sqlite"], "is named as a database of duckdb"),
            (tmp_path / "new.sqlite", ["--format", "duckdb"], "is named as a database of sqlite"),
            (lake / "warehouse.duckdb", [], "a file in the lake"),
            (lake, ["--format", "csv"], "a file in the lake"),
            (old, ["--model", "nothing"], "no table or model 'nothing'"),
            (old, ["--run", "nothing"], "no run 'nothing'"),
        ):
            done = tracelake("export", "--lake", lake, target, *words)
            assert (done.code, said in done.err) == (2, True), done.err
    assert [path.name for path in tmp_path.iterdir()] == ["old.duckdb"]
    assert old.read_bytes() == b"old"
