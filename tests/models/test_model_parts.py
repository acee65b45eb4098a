"""Rows of models per step and call: in Parquet parts, which the warehouse names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

import tracelake as api
from tests.conftest import Command
from tests.lakes import Template, few_models, full_build_differences, ingest_and_build
from tests.tiny_lakes import commit_run, drop_run, log_run
from tests.traces import trace, trace_name, write
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.models.catalog import catalog
from tracelake.warehouse.check import check_lake
from tracelake.warehouse.warehouse import open_warehouse

# What becomes of parts is the same for every model.
FEW = ("step_stats", "layer_steps")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """Three runs in one part, and a fourth in its own."""
    lake = Lake.create(tmp_path_factory.mktemp("parts") / "lake")
    with few_models(*FEW):
        for number, run_id in enumerate("abc"):
            commit_run(lake, run_id, log_run(steps=3 + number))
        build(lake)
        commit_run(lake, "d", log_run(steps=2))
        build(lake)
    return Template.of(lake)


@pytest.fixture
def lake(template: Template) -> Iterator[Lake]:
    with few_models(*FEW):
        yield template.again()


def parts(lake: Lake, model: str = "step_stats") -> list[Path]:
    return sorted(lake.root.glob(f"{model}/runs_packed/*.parquet"))


def part_of_three(lake: Lake) -> Path:
    (part,) = (part for part in parts(lake) if len(pl.read_parquet(part)) > 2)
    return part


def rows(lake: Lake, model: str = "step_stats") -> list[tuple[object, ...]]:
    with open_warehouse(lake) as con:
        return con.execute(f"FROM {model} ORDER BY ALL").fetchall()


def raw(lake: Lake, model: str = "step_stats") -> list[tuple[object, ...]]:
    """The rows of all files, as a reader without tracelake finds them."""
    return sorted(pl.read_parquet(parts(lake, model)).rows())


def test_what_grows_with_a_job_is_in_parts_with_the_declared_types(lake: Lake) -> None:
    with open_warehouse(lake) as con:
        stored = con.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        assert not catalog().in_parts & {name for (name,) in stored}
        for model in ("step_stats", "layer_steps"):
            declared = {column.name: column.type for column in catalog().columns[model]}
            read = con.execute(f"DESCRIBE FROM '{parts(lake, model)[0]}'").fetchall()
            assert {name: type_ for name, type_, *_ in read} == declared
    assert raw(lake) == rows(lake)
    assert len(rows(lake)) == 3 + 4 + 5 + 2


def test_a_run_that_changes_or_goes_leaves_no_row(lake: Lake) -> None:
    first = part_of_three(lake)
    commit_run(lake, "b", log_run(steps=7))
    build(lake)
    assert raw(lake) == rows(lake)
    assert [row[0] for row in rows(lake)] == ["a"] * 3 + ["b"] * 7 + ["c"] * 5 + ["d"] * 2
    assert first not in parts(lake)
    drop_run(lake, "a")
    build(lake)
    assert [row[0] for row in raw(lake)] == ["b"] * 7 + ["c"] * 5 + ["d"] * 2
    assert check_lake(lake) == []
    assert full_build_differences(lake) == []


def _flip(part: Path) -> None:
    """Change a byte as a disk does: size and date stay."""
    at, content = part.stat(), bytearray(part.read_bytes())
    content[50] ^= 1
    part.write_bytes(content)
    os.utime(part, ns=(at.st_atime_ns, at.st_mtime_ns))


def _cut(part: Path) -> None:
    os.truncate(part, 100)


@pytest.mark.parametrize("harm", [Path.unlink, _cut], ids=["removed", "cut"])
def test_a_lost_part_is_found_and_computed_again(
    lake: Lake, tracelake: Command, harm: Callable[[Path], None]
) -> None:
    whole = rows(lake)
    part = part_of_three(lake)
    harm(part)
    checked = tracelake("check", "--lake", lake.root)
    assert checked.code == 5
    assert f"{part.name} (of a, b, c)" in checked.out
    built = build(lake)
    assert built.built == ("a", "b", "c")
    assert built.notice == "part files of models are missing or damaged: 3 runs computed again"
    assert rows(lake) == whole
    assert check_lake(lake) == []


def test_a_byte_that_a_disk_has_changed_is_found_when_its_part_is_due(
    tracelake: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = {trace_name(rank): trace(rank, steps=3) for rank in range(2)}
    archive = write(tmp_path / "archive", traces)
    path = tmp_path / "lake"
    (part,) = parts(ingest_and_build(archive, path), "rank_bubbles")
    content = part.read_bytes()
    _flip(part)
    assert tracelake("check", "--quick", "--lake", path).code == 0
    assert tracelake("check", "--lake", path).code == 5
    assert "already current" in tracelake("build", "--lake", path).err
    monkeypatch.setattr("tracelake.lake.losses.SHARES", 1)  # every part is due today
    done = tracelake("run", archive, "--lake", path, "--check")
    assert (done.code, "1 run computed again" in done.err) == (0, True)
    assert part.read_bytes() == content


def test_small_parts_become_one(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracelake.models.parts._MANY", 3)
    for number in range(4):
        commit_run(lake, f"n{number}", log_run(steps=2))
        build(lake)
        assert len(parts(lake)) <= 3
        assert raw(lake) == rows(lake)
    assert len({row[0] for row in rows(lake)}) == 8
    assert check_lake(lake) == []
    assert full_build_differences(lake) == []


def test_whoever_names_a_run_reads_its_parts_alone(lake: Lake) -> None:
    opened = api.open(lake.root)
    part_of_three(lake).unlink()
    assert [row[0] for row in opened.table("step_stats", run="d").fetchall()] == ["d", "d"]
