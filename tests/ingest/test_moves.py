"""A lake whose inputs were renamed, packed or copied equals a fresh lake of the same inputs."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command
from tests.lakes import Template, few_models, ingest_and_build, merge_groups, rows, run_ingest
from tests.traces import plan, trace, trace_name, write
from tracelake.lake.store import Lake
from tracelake.schema.tables import tables
from tracelake.warehouse.warehouse import open_warehouse

LOG = """\
> GAS: 4
> World size: 2
[rank:0 stage:0] transformer-block(module) forward time (no send/recv) - step 1
layer[0]: total={0} ms, ops=32, avg/op=1.0 ms
"""
# A model that compares runs; copies are left out of it.
COMPARED = "straggler_history"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three jobs of one configuration, a training log and a plan."""
    jobs = {
        f"job{job}/{trace_name(rank, stamp=f'2025010{job + 1}000000')}": trace(
            rank, steps=40, start=1000.0 + job
        )
        for job in range(3)
        for rank in range(2)
    }
    return write(
        tmp_path_factory.mktemp("original") / "in",
        {**jobs, "logs/train_TP1_PP2.log": LOG.replace("{0}", "5.0"), "plans/a.txt": plan(3)},
    )


@pytest.fixture(scope="module")
def merged(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Template:
    """Its lake, after a merge."""
    with few_models(COMPARED):
        lake = ingest_and_build(original, tmp_path_factory.mktemp("merged") / "lake")
        merge_groups(lake)
    return Template.of(lake)


@pytest.fixture
def archive(original: Path, tmp_path: Path) -> Path:
    """The same files, as far as a lake knows them, which may be moved and removed."""
    return shutil.copytree(original, tmp_path / original.name, copy_function=os.link)


def rename_folder(archive: Path) -> None:
    (archive / "job0").rename(archive / "old0")


def rename_files(archive: Path) -> None:
    """One rank gets a name of another configuration, the log and the plan just other names."""
    (file,) = (archive / "job1").glob("*rank1_*")
    file.rename(file.with_name(f"late_{file.name}"))
    (archive / "logs/train_TP1_PP2.log").rename(archive / "logs/yesterday_TP1_PP2.log")
    (archive / "plans/a.txt").rename(archive / "plans/b.txt")


def compress(archive: Path) -> None:
    for path in [path for path in archive.rglob("*") if path.is_file()]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


def tar_beside(archive: Path) -> None:
    for folder in ("job0", "logs"):
        with tarfile.open(archive / f"{folder}.tar", "w") as tar:
            tar.add(archive / folder, arcname=folder)


def tar_instead(archive: Path) -> None:
    tar_beside(archive)
    for folder in ("job0", "logs"):
        shutil.rmtree(archive / folder)


def copy(archive: Path) -> None:
    shutil.copytree(archive / "job0", archive / "copy0")
    shutil.copy(archive / "logs/train_TP1_PP2.log", archive / "logs/saved_TP1_PP2.log")


def rename_copies(archive: Path) -> None:
    """The copy of the log comes to stand before the original."""
    (archive / "copy0").rename(archive / "a_copy0")
    (archive / "logs/saved_TP1_PP2.log").rename(archive / "logs/a_saved_TP1_PP2.log")


def rename_originals(archive: Path) -> None:
    (archive / "job0").rename(archive / "z_job0")
    (archive / "logs/train_TP1_PP2.log").rename(archive / "logs/z_train_TP1_PP2.log")


def add_a_smaller_name(archive: Path) -> None:
    """The run that was the original becomes the copy, though nothing of it has changed."""
    shutil.copy(archive / "plans/a.txt", archive / "plans/0.txt")


def nothing(archive: Path) -> None:
    del archive


def together(archive: Path) -> list[Path]:
    return [archive]


def one_by_one(archive: Path) -> list[Path]:
    return sorted(path for path in archive.iterdir() if path.is_dir())


Step = Callable[[Path], None]
HISTORIES: dict[str, tuple[Sequence[Step], Callable[[Path], list[Path]]]] = {
    "rename folder": ([rename_folder], together),
    "rename files": ([rename_files], together),
    "compress": ([compress], together),
    "tar beside": ([tar_beside], together),
    "tar instead": ([tar_instead], together),
    "name folders one by one": ([nothing], one_by_one),
    "copy": ([copy], together),
    "rename a copy": ([copy, rename_copies], together),
    "rename an original": ([copy, rename_originals], together),
    "a copy with a smaller name": ([add_a_smaller_name], together),
    "everything": ([rename_folder, compress, nothing], one_by_one),
}


def content(lake: Lake) -> dict[str, list[tuple[Any, ...]]]:
    """Every base table, and the model that compares runs."""
    names = [*tables(), COMPARED]
    with open_warehouse(lake) as con:
        return {name: sorted(con.execute(f"FROM {name}").fetchall(), key=repr) for name in names}


def dangling(lake: Lake) -> list[tuple[Any, ...]]:
    """Duplicates of a path that no source has."""
    with open_warehouse(lake) as con:
        sources = con.execute("SELECT path, member, duplicate_of FROM sources").fetchall()
    labels = {path if member is None else f"{path}/{member}" for path, member, _ in sources}
    return [row for row in sources if row[2] is not None and row[2] not in labels]


def bring_in(tracelake: Command, inputs: Sequence[Path], lake: Path) -> str:
    done = tracelake("ingest", *inputs, "--lake", lake)
    assert done.code == 0, done.err
    return done.err


@few_models(COMPARED)
@pytest.mark.parametrize("history", HISTORIES)
def test_a_lake_of_moved_inputs_equals_a_fresh_one(
    history: str, archive: Path, merged: Template, tmp_path: Path, tracelake: Command
) -> None:
    (*before, last), named = HISTORIES[history]
    grown, fresh = merged.again(), Lake.create(tmp_path / "fresh")
    assert "nothing to write" in bring_in(tracelake, [archive], grown.root)
    for step in before:
        step(archive)
        bring_in(tracelake, [archive], grown.root)
        merge_groups(grown)
    last(archive)
    for lake in (grown, fresh):
        bring_in(tracelake, named(archive), lake.root)
        assert tracelake("build", "--lake", lake.root).code == 0
    assert dangling(grown) == []
    assert content(grown) == content(fresh)
    assert "nothing to write" in bring_in(tracelake, named(archive), grown.root)


@few_models("run_history")
def test_a_copy_becomes_the_original_when_that_is_dropped(
    tmp_path: Path, tracelake: Command
) -> None:
    archive = write(tmp_path / "in", {name: plan(3) for name in ("a.txt", "b.txt", "c.txt")})
    lake = tmp_path / "lake"
    assert tracelake("ingest", archive, "--lake", lake).code == 0
    merge_groups(Lake.open(lake))
    (first,) = (run for run in Lake.open(lake).snapshot().runs if run.startswith("a-"))
    assert tracelake("drop", first, "--lake", lake).code == 0
    assert rows(lake, "sources", "path, duplicate_of", "ORDER BY path") == [
        ("b.txt", None),
        ("c.txt", "b.txt"),
    ]
    with open_warehouse(Lake.open(lake)) as con:
        found = con.execute("SELECT path, duplicate_of FROM sources ORDER BY path").fetchall()
        reasons = con.execute("SELECT run_id[1], reason FROM run_history ORDER BY 1").fetchall()
        passes = con.execute(
            "SELECT run_id[1], count(*) FROM workload_passes GROUP BY 1"
        ).fetchall()
    assert found == [("b.txt", None), ("c.txt", "b.txt")]
    assert [reason for run, reason in reasons if run == "b"] != ["duplicate"]
    assert sorted(passes) == [("b", 9), ("c", 9)]


def test_a_run_whose_inputs_are_all_in_a_richer_run_is_the_copy(tmp_path: Path) -> None:
    """Whichever of them has the smaller name, and whichever came first."""
    lake = tmp_path / "lake"
    both = {f"z/{trace_name(rank)}": trace(rank) for rank in range(2)}
    archive = write(tmp_path / "in", {f"a/one_{trace_name(1)}": trace(1)})
    run_ingest(archive, lake)
    run_ingest(write(archive, both), lake)
    assert rows(lake, "sources", "path, duplicate_of", "ORDER BY path") == [
        (f"a/one_{trace_name(1)}", f"z/{trace_name(1)}"),
        (f"z/{trace_name(0)}", None),
        (f"z/{trace_name(1)}", None),
    ]


@few_models("run_history")
def test_of_equal_runs_one_with_a_date_is_the_original(tmp_path: Path, tracelake: Command) -> None:
    """A browser names a second download so that it comes before the first one."""
    lake = tmp_path / "lake"
    dated = [trace_name(rank) for rank in range(2)]
    named = {name: trace(rank) for rank, name in enumerate(dated)}
    copies = {f"{name.removesuffix('.txt')} (1).txt": text for name, text in named.items()}
    bring_in(tracelake, [write(tmp_path / "in", copies)], lake)
    assert rows(lake, "sources", "path, duplicate_of") == [(name, None) for name in copies]
    bring_in(tracelake, [write(tmp_path / "in", named)], lake)
    assert tracelake("build", "--lake", lake).code == 0
    assert dict(rows(lake, "sources", "path, duplicate_of")) == {
        **dict(zip(copies, dated, strict=True)),
        **dict.fromkeys(dated),
    }
    with open_warehouse(Lake.open(lake)) as con:
        history = con.execute("SELECT reason FROM run_history ORDER BY reason DESC").fetchall()
    assert history == [("few_runs",), ("duplicate",)]


def test_a_copy_without_a_date_in_another_folder_gives_way_too(tmp_path: Path) -> None:
    """Both have one run id: that of their names without the date."""
    lake = tmp_path / "lake"
    dated, undated = trace_name(0), trace_name(0).replace("_20250101000000", "")
    run_ingest(write(tmp_path / "in", {f"a/{undated}": trace(0), f"b/{dated}": trace(0)}), lake)
    assert rows(lake, "runs", "run_date IS NULL") == [(False,)]
    assert rows(lake, "sources", "path, duplicate_of", "ORDER BY path") == [
        (f"a/{undated}", f"b/{dated}"),
        (f"b/{dated}", None),
    ]
