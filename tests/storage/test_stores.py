"""Inputs and lakes in an object store: a server of the S3 protocol on loopback."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import itertools
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from obstore.store import LocalStore

from tests.conftest import Command
from tests.lakes import few_models, rows
from tests.object_store import ObjectStore, object_store
from tests.traces import op, trace, trace_name, write
from tests.traces import plan as workload
from tracelake.base import files
from tracelake.base.errors import ChangedError, InputError, LakeError, StoreError, UsageError
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest, plan
from tracelake.ingest.run_plan import Status
from tracelake.inputs.stored_inputs import StoredRoot, stored_root
from tracelake.lake.manifest import Change
from tracelake.lake.store import Lake
from tracelake.models.base import copy_of
from tracelake.models.build import build
from tracelake.models.catalog import catalog
from tracelake.nightly.job import Job
from tracelake.schema.tables import tables
from tracelake.storage.files import StoredFile
from tracelake.storage.objects import listed, remove_all, upload
from tracelake.storage.store_path import place_of
from tracelake.warehouse.running import run_query
from tracelake.warehouse.warehouse import open_warehouse

# One of its lines is bad.
ALL = ("--max-bad-ratio", "1")
SECRET = "no-one-may-read-this-secret"


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in {**server.environment, "AWS_SECRET_ACCESS_KEY": SECRET}.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(autouse=True)
def _patient(store: ObjectStore) -> Iterator[None]:
    yield
    store.faults()


@dataclass(frozen=True)
class Machine:
    """What a machine has of its own: the copies of lakes."""

    home: Path
    patch: pytest.MonkeyPatch

    def here(self) -> None:
        self.patch.setenv("XDG_CACHE_HOME", str(self.home))


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Machine, Machine]:
    one, other = (Machine(tmp_path / name, monkeypatch) for name in ("one", "other"))
    one.here()
    return one, other


@pytest.fixture
def bucket(
    store: ObjectStore,
    machines: object,  # noqa: ARG001 - a home for the copy
    request: pytest.FixtureRequest,
) -> str:
    """A bucket of the test's own, by URI."""
    name = f"bucket-{hashlib.sha256(request.node.name.encode()).hexdigest()[:20]}"
    store.make_bucket(name)
    return f"s3://{name}"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of several formats, plain and packed, with a bad line and what is no input."""
    folder = tmp_path_factory.mktemp("archive")
    write(folder / "job", {trace_name(rank): trace(rank, steps=4) for rank in range(2)})
    with (folder / "job" / trace_name(1)).open("a") as file:
        file.write("rank:1:what is this\n")
    write(folder / "plans", {f"plan{n}.txt": workload(name=f"layer{n}") for n in range(3)})
    packed = folder / "packed"
    packed.mkdir()
    with gzip.open(packed / "single.txt.gz", "wt") as file:
        file.write(workload(name="gz"))
    with tarfile.open(packed / "some.tar.gz", "w:gz") as tar:
        for name in ("x.txt", "y.txt"):
            content = workload(name=name).encode()
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    with zipfile.ZipFile(packed / "some.zip", "w") as archive:
        archive.writestr("in/z.txt", workload(name="zip"))
    return write(folder, {"notes.md": "no trace\n", ".hidden": workload(name="hidden")})


def put(uri: str, folder: Path) -> str:
    """Uploads a folder."""
    files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    upload(place_of(uri), files)
    return uri


def ingested(name: str | Path, *inputs: str | Path) -> Lake:
    lake = Lake.create(name)
    ingest([str(i) for i in inputs], lake, Options())
    return lake


def brought_in(name: str | Path, *inputs: str | Path) -> Lake:
    lake = ingested(name, *inputs)
    build(lake)
    return lake


def parts(lake: Lake, of: Container[str]) -> dict[str, bytes]:
    """The files of tables or models."""
    found = {}
    for stored in lake.part_files.stored():
        if stored.part.split("/")[0] in of:
            with lake.part_files.open(stored.part) as file:
                found[stored.part] = file.read()
    return found


def entries(lake: Lake) -> dict[str, Any]:
    """What manifests say, without what a file system has of its own."""
    told = {run_id: entry.to_json() for run_id, entry in lake.snapshot().runs.items()}
    for entry in told.values():
        for source in entry["sources"]:
            del source["mtime_ns"], source["inode"]
    return told


def warehouse(lake: Lake) -> dict[str, list[tuple[object, ...]]]:
    models = catalog()
    names = [*models.stored, *map(copy_of, models.copied)]
    with open_warehouse(lake) as con:
        return {name: con.execute(f'FROM "{name}" ORDER BY ALL').fetchall() for name in names}


def assert_same_runs(lake: Lake, expected: Lake) -> None:
    """What was read is the same in both, whether or not it was built."""
    assert parts(lake, tables()) == parts(expected, tables())
    assert entries(lake) == entries(expected)


def assert_same(lake: Lake, expected: Lake) -> None:
    assert_same_runs(lake, expected)
    models = catalog().in_parts
    assert parts(lake, models) == parts(expected, models)
    assert str(warehouse(lake)) == str(warehouse(expected))  # NaN is NaN here


@pytest.fixture(scope="module")
def local(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The lake of the archive on a disk."""
    with few_models():
        return brought_in(str(tmp_path_factory.mktemp("lakes") / "local"), archive)


@pytest.fixture(scope="module")
def made(
    store: ObjectStore, archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The lake of the archive in the store, for those that only read it, by URI."""
    uri = "s3://made/lake"
    store.make_bucket("made")
    with few_models(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("maker")))
        brought_in(uri, archive)
    before = listed(place_of(uri))
    yield uri
    assert listed(place_of(uri)) == before


# --- the same lake wherever it and its input are ------------------------------------------------


@few_models()
def test_a_lake_in_a_store_is_that_on_a_disk(bucket: str, archive: Path, local: Lake) -> None:
    lake = brought_in(f"{bucket}/some/lake", archive)
    assert_same(lake, local)
    assert len(lake.snapshot().runs) == 8


@few_models()
def test_an_archive_in_a_store_gives_that_lake_too(
    bucket: str, archive: Path, local: Lake, tmp_path: Path
) -> None:
    uri = put(f"{bucket}/archive", archive)
    assert_same_runs(ingested(tmp_path / "lake", uri), local)
    assert_same(brought_in(f"{bucket}/lake", uri), local)


def test_many_objects_are_opened_ahead_and_taken_in_order(bucket: str, tmp_path: Path) -> None:
    names = [f"{n % 7}/plan{n}.txt" for n in range(20)]
    first = write(tmp_path / "in", {n: workload(2, name=n[2:-4]) for n in names[::2]})
    ranks = {f"job/{trace_name(r, world=18)}": trace(r) for r in range(18)}
    write(first, {**ranks, "3/.hidden/x.txt": "x", "4/notes.md": "x"})
    lakes = [Lake.create(f"{bucket}/lake"), Lake.create(tmp_path / "lake")]
    for _ in range(2):
        put(f"{bucket}/in", first)
        for lake, source in zip(lakes, (f"{bucket}/in", str(first)), strict=True):
            ingest([source], lake, Options())
        assert_same_runs(*lakes)
        write(first, {n: workload(2, name=n[2:-4]) for n in names[1::2]})
    assert len(lakes[0].snapshot().runs) == 21


@few_models()
def test_another_machine_sees_what_was_brought_in(
    made: str, local: Lake, machines: tuple[Machine, Machine]
) -> None:
    machines[1].here()
    lake = Lake.open(made)
    assert_same(lake, local)
    assert lake.root.is_relative_to(machines[1].home)
    with open_warehouse(lake) as con:
        found = con.execute("SELECT count(*), sum(duration_ns) FROM ops").fetchall()
    with open_warehouse(local) as con:
        assert found == con.execute("SELECT count(*), sum(duration_ns) FROM ops").fetchall()


@few_models()
def test_what_is_there_already_is_neither_read_nor_written(
    bucket: str, archive: Path, store: ObjectStore
) -> None:
    uri, name = put(f"{bucket}/archive", archive), f"{bucket}/lake"
    brought_in(name, uri)
    store.count()
    brought_in(name, uri)
    counts = store.count()
    assert "PUT" not in counts
    assert counts.get("GET", 0) == 0


# The name of an input is looked up, and what is below it is listed.
LISTED = {"HEAD": 1, "LIST": 1}


def test_a_small_input_is_requested_once_and_never_asked_for_its_size(
    bucket: str, archive: Path, tmp_path: Path, tracelake: Command, store: ObjectStore
) -> None:
    source = shutil.copytree(archive, tmp_path / "in")
    write(source, {"100% plän%20+2.txt": workload(name="odd"), "empty.txt": ""})
    uri = put(f"{bucket}/archive", source)
    store.count()
    assert tracelake("ingest", uri, "--lake", tmp_path / "stored", *ALL).code == 0
    # Two ranks, four workloads, three archives or compressed ones, one that no format claims.
    assert store.count() == {**LISTED, "GET": 2 + 4 + 3 + 1}
    assert tracelake("ingest", uri, "--lake", tmp_path / "stored", *ALL).code == 0
    assert store.count() == LISTED
    assert tracelake("ingest", source, "--lake", tmp_path / "local", *ALL).code == 0
    assert_same_runs(*(Lake.open(tmp_path / name) for name in ("stored", "local")))
    assert not list((tmp_path / "stored" / "_staging").iterdir())


def test_an_object_may_have_any_name(bucket: str, tmp_path: Path, tracelake: Command) -> None:
    """As a URI that someone types, these names would have options."""
    names = ["job#1/plan.txt", "what?.txt", "a b@c&d=e.txt"]
    write(tmp_path / "in", {name: workload(name=str(n)) for n, name in enumerate(names)})
    uri = put(f"{bucket}/archive", tmp_path / "in")
    assert tracelake("ingest", uri, "--lake", tmp_path / "lake", *ALL).code == 0
    with duckdb.connect() as con:
        query = f"SELECT path FROM '{tmp_path}/lake/sources/**/*.parquet' ORDER BY path"
        assert [path for (path,) in con.execute(query).fetchall()] == sorted(names)


def test_inputs_without_room_for_a_copy_are_requested_again(
    bucket: str,
    archive: Path,
    local: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    store: ObjectStore,
) -> None:
    uri = put(f"{bucket}/archive", archive)
    monkeypatch.setattr("tracelake.inputs.streams._COPIED_BYTES", 1 << 10)
    store.count()
    assert_same_runs(ingested(tmp_path / "lake", uri), local)
    assert store.count()["GET"] > 9


def test_a_full_disk_leaves_no_copies(
    bucket: str, archive: Path, local: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = put(f"{bucket}/archive", archive)
    write_file = files.write

    def full(path: Path, content: bytes) -> None:
        if path.parent.name == ".copies":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write_file(path, content)

    monkeypatch.setattr(files, "write", full)
    assert_same_runs(ingested(tmp_path / "lake", uri), local)


def large_archive(folder: Path) -> Path:
    """Inputs of more than 1 MB each, packed ones too."""
    texts = [workload(30_000, name=name).encode() for name in "abcdef"]
    tar, packed = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as members, zipfile.ZipFile(packed, "w") as archive:
        for text in texts[:2]:
            info = tarfile.TarInfo(f"{text[-9:-2].hex()}.txt")
            info.size = len(text)
            members.addfile(info, io.BytesIO(text))
        for number, text in enumerate(texts[2:4]):
            archive.writestr(f"{number}.txt", text)
    compressed = gzip.compress(texts[4], 0)
    contents = {"x.tar": tar, "x.zip": packed}
    write(folder, {name: content.getvalue() for name, content in contents.items()})
    return write(folder, {"x.txt.gz": compressed, "x.txt": texts[5]})


def test_a_large_input_is_never_asked_for_its_size(
    bucket: str, tmp_path: Path, store: ObjectStore
) -> None:
    source = large_archive(tmp_path / "in")
    uri = put(f"{bucket}/in", source)
    lake, gets = Lake.create(tmp_path / "lake"), {}
    for path in source.iterdir():
        store.count()
        ingest([f"{uri}/{path.name}"], lake, Options())
        counts = store.count()
        assert counts.keys() == {"HEAD", "GET"}
        assert counts["HEAD"] == 1  # the name of the input is looked up
        gets[path.name] = counts["GET"]
    # One or two for the head, then 1 MB and the rest: of a tar twice, of a zip from its end.
    assert gets == {"x.txt": 1 + 2, "x.txt.gz": 2 + 2, "x.zip": 1 + 2, "x.tar": 1 + 2 + 2}
    assert_same_runs(lake, ingested(tmp_path / "local", *source.iterdir()))
    assert len(lake.snapshot().runs) == 6


@pytest.mark.parametrize("rows_then", [50_000, 20_000, 0])
def test_a_large_input_that_changes_after_the_listing_is_noticed(
    bucket: str, tmp_path: Path, rows_then: int
) -> None:
    source = write(tmp_path / "in", {"x.txt": workload(30_000), "y.txt": workload(name="y")})
    uri = put(f"{bucket}/in", source)
    then = workload(rows_then, name="other") if rows_then else ""

    def late(named: str) -> StoredRoot:
        root = stored_root(named)
        put(uri, write(tmp_path / "then", {"x.txt": then}))
        return root

    lake = Lake.create(tmp_path / "lake")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tracelake.inputs.discover.stored_root", late)
        report = ingest([uri], lake, Options())
    if rows_then:
        assert rows(lake.root, "faults", "name") == [("changed_while_read",)]
    else:
        assert [(s["path"], s["reason"]) for s in report.skips] == [("x.txt", "unreadable")]
    ingest([uri], lake, Options())
    expected = ingested(tmp_path / "expected", write(source, {"x.txt": then}))
    for table in tables().keys() - {"skipped"}:
        found, wanted = (rows(of.root, table, tail="ORDER BY ALL") for of in (lake, expected))
        assert found == wanted


def test_inputs_that_change_or_vanish_after_the_listing_are_noticed(
    bucket: str, tmp_path: Path
) -> None:
    names = [f"plan{n}.txt" for n in range(3)]
    write(tmp_path / "in", {name: workload(name=name) for name in names})
    uri = put(f"{bucket}/in", tmp_path / "in")
    changed = write(tmp_path / "changed", {names[0]: workload(3, name="other")})

    def late(named: str) -> StoredRoot:
        root = stored_root(named)
        put(uri, changed)
        remove_all(place_of(uri), [names[1]])
        return root

    lake = Lake.create(tmp_path / "lake")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tracelake.inputs.discover.stored_root", late)
        report = ingest([uri], lake, Options())
    assert [(s["path"], s["reason"]) for s in report.skips] == [(names[1], "unreadable")]
    again = ingest([uri], lake, Options())
    assert Counter(run.status for run in again.runs) == {Status.UPDATED: 1, Status.UNCHANGED: 1}
    (tmp_path / "in" / names[1]).unlink()
    shutil.copy(changed / names[0], tmp_path / "in")
    expected = ingested(tmp_path / "expected", tmp_path / "in")
    for table in tables().keys() - {"skipped"}:
        found, wanted = (rows(of.root, table, tail="ORDER BY ALL") for of in (lake, expected))
        assert found == wanted


def test_only_the_columns_and_rows_that_a_query_needs_are_fetched(
    bucket: str, tmp_path: Path, store: ObjectStore
) -> None:
    drawn = Random(1)
    times = [drawn.randrange(1, 10**6) / 1000 for _ in range(150_000)]
    ends = list(itertools.accumulate(times, initial=10**6))[1:]
    lines = [op(0, "loss_func", round(end, 3), t) for end, t in zip(ends, times, strict=True)]
    write(tmp_path, {trace_name(0): "".join(lines), trace_name(1): trace(1)})
    with few_models():
        lake = brought_in(f"{bucket}/lake", tmp_path)
    (part,) = [s for s in lake.part_files.stored() if s.part.startswith("ops/")]
    with open_warehouse(lake) as con:
        store.count()
        found = con.execute("SELECT count(*) FROM ops WHERE start_ns < 0").fetchall()
    assert found == [(0,)]
    counts = store.count()
    assert counts["GET"] <= 4
    assert part.bytes > 1 << 19


# --- what a URI names ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "folder", "found"),
    [
        ("a", "a", ["b.txt", ".c/d.txt", "e/f.txt", "e/g/h.txt"]),
        ("a/", "a", ["b.txt", ".c/d.txt", "e/f.txt", "e/g/h.txt"]),
        ("a/b.txt", "a", ["b.txt"]),
        ("a/*.txt", "a", ["b.txt"]),
        ("a/e", "a/e", ["f.txt", "g/h.txt"]),
        ("a/e/*", "a/e", ["f.txt", "g/h.txt"]),
        ("*/e/[fg]*", "a/e", ["f.txt", "g/h.txt"]),
        ("a/**/h.txt", "a/e/g", ["h.txt"]),
        ("**/*.txt", "", ["a/b.txt", "a/e/f.txt", "a/e/g/h.txt", "i/j.txt"]),
    ],
)
def test_a_uri_names_an_object_a_folder_or_matches(
    bucket: str, tmp_path: Path, named: str, folder: str, found: list[str]
) -> None:
    names = ("a/b.txt", "a/.c/d.txt", "a/e/f.txt", "a/e/g/h.txt", "i/j.txt")
    put(bucket, write(tmp_path, dict.fromkeys(names, "x\n")))
    root = stored_root(f"{bucket}/{named}")
    assert root.folder.uri == f"{bucket}/{folder}".rstrip("/")
    assert [file.name for file in root.files] == found


@pytest.mark.parametrize("named", ["nothing", "nothing/*.txt"])
def test_a_uri_that_names_nothing_says_so(bucket: str, named: str) -> None:
    with pytest.raises(InputError, match=r"no such object|nothing in the store matches"):
        stored_root(f"{bucket}/{named}")


@few_models()
def test_a_lake_within_its_input_is_no_input(bucket: str, archive: Path, local: Lake) -> None:
    uri = put(f"{bucket}/all", archive)
    lake = brought_in(f"{uri}/lake", uri)
    brought_in(f"{uri}/lake", uri)
    assert_same(lake, local)
    brought_in(f"{uri}/other/lake", uri)
    skipped = {(skip["path"], skip["reason"]) for skip in lake.skipped_inputs()}
    brought_in(f"{uri}/lake", uri)
    now = {(skip["path"], skip["reason"]) for skip in lake.skipped_inputs()}
    assert now - skipped == {("other/lake", "lake")}


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("s3://key:secret@bucket/lake", "no credentials"),
        ("s3://key@bucket/lake", "no credentials"),
        ("s3://bucket/lake?endpoint_override=http://x", "no credentials"),
        ("ftp://host/lake", "unknown kind of store"),
        ("s3:///lake", "names no bucket"),
        ("s3://bucket/../other", "no dots"),
    ],
)
def test_a_uri_that_cannot_be_says_so_and_tells_no_secret(uri: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        place_of(uri)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("uri", ["hdfs://host:8020/logs", "hdfs:///logs", "viewfs://cluster/logs"])
def test_hdfs_is_refused_and_the_error_says_what_to_do(
    uri: str, tracelake: Command, archive: Path, tmp_path: Path
) -> None:
    for given in ([uri, "--lake", tmp_path / "lake"], [archive, "--lake", uri]):
        done = tracelake("ingest", *given)
        assert done.code == 2
        for word in ("HDFS is not read", "copy", "mount", "hdfs dfs -cat FILE | tracelake run -"):
            assert word in done.err


def test_the_mark_of_a_folder_is_no_object(bucket: str, tmp_path: Path, store: ObjectStore) -> None:
    put(bucket, write(tmp_path, {"a/b/c.txt": "x", "a/empty.txt": ""}))
    for name in ("a", "a/b"):
        store.put(f"{bucket.removeprefix('s3://')}/{name}/")
    assert [one.name for one in listed(place_of(f"{bucket}/a"))] == ["b/c.txt", "empty.txt"]


def test_a_name_that_is_no_path_is_told(bucket: str, store: ObjectStore) -> None:
    store.put(f"{bucket.removeprefix('s3://')}/a//b.txt")
    with pytest.raises(StoreError, match=r"invalid path.*a//b\.txt.*rename"):
        stored_root(f"{bucket}/a")


def test_objects_to_remove_need_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in some stores, the first object that is missing is an error of the local one."""
    local = LocalStore(tmp_path)
    monkeypatch.setattr("obstore.store.from_url", lambda *_, **__: local)
    write(tmp_path, {"x/a": "a", "x/c": "c", "x/d": "d"})
    remove_all(place_of("gs://local/x"), ["a", "b", "c"])
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["d"]


def test_there_must_be_a_lake(bucket: str) -> None:
    with pytest.raises(LakeError, match="not a lake"):
        Lake.open(f"{bucket}/lake")


def test_a_stored_file_is_read_from_any_place(bucket: str, tmp_path: Path) -> None:
    content = os.urandom(1_000_000)
    (tmp_path / "file").write_bytes(content)
    put(bucket, tmp_path)
    with StoredFile(place_of(f"{bucket}/file")) as file:
        assert file.read(10) == content[:10]
        assert file.seek(-7, io.SEEK_END) == len(content) - 7
        assert file.read() == content[-7:]
        assert file.seek(500_000) == 500_000
        assert io.BufferedReader(file).read() == content[500_000:]


# --- several machines at once -------------------------------------------------------------------


def script(*lines: str) -> list[str]:
    return [sys.executable, "-c", "\n".join(("from tracelake.cli import main", *lines))]


def started(machine: Machine, *arguments: str | Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(machine.home)}
    command = [*script("main()"), *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@few_models()
def test_machines_at_work_at_once_lose_nothing_of_one_another(
    bucket: str, archive: Path, local: Lake, machines: tuple[Machine, Machine], store: ObjectStore
) -> None:
    name = f"{bucket}/lake"
    store.faults(delay=0.01)
    inputs = [archive / "job", archive]
    jobs = [
        started(machine, "ingest", given, "--lake", name, *ALL)
        for machine, given in zip(machines, inputs, strict=True)
    ]
    jobs += [started(machines[0], "ingest", archive / "plans", "--lake", name)]
    for job in jobs:
        out, err = job.communicate(timeout=120)
        assert job.returncode == 0, (out, err)
    machines[1].here()
    lake = Lake.open(name)
    build(lake)
    with open_warehouse(lake) as con:
        found = con.execute("SELECT count(*), sum(duration_ns) FROM ops").fetchall()
    with open_warehouse(local) as con:
        assert found == con.execute("SELECT count(*), sum(duration_ns) FROM ops").fetchall()


def test_a_run_beside_one_on_another_machine_says_so(
    bucket: str,
    archive: Path,
    tracelake: Command,
    machines: tuple[Machine, Machine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, home = f"{bucket}/lake", machines[0].home
    judge = Job.judge

    def late(self: Job, *given: Any) -> Any:
        monkeypatch.setattr(Job, "judge", judge)
        machines[1].here()
        assert tracelake("run", archive / "job", "--lake", name, *ALL).code == 0
        monkeypatch.setenv("XDG_CACHE_HOME", str(home))
        return judge(self, *given)

    monkeypatch.setattr(Job, "judge", late)
    done = tracelake("run", archive / "plans", "--lake", name)
    assert done.code == 3
    assert "a run on another machine is working on this lake" in done.err
    assert tracelake("run", archive / "plans", "--lake", name).code == 0


def test_a_commit_that_another_machine_overtakes_is_made_again(
    bucket: str, archive: Path, tmp_path: Path, machines: tuple[Machine, Machine]
) -> None:
    name = f"{bucket}/lake"
    first = Lake.create(name)
    ingest([str(archive / "job")], first, Options())
    first.snapshot()
    machines[1].here()
    other = Lake.open(name)
    grown = shutil.copytree(archive / "job", tmp_path / "job")
    for rank in range(2):
        with (grown / trace_name(rank)).open("a") as file:
            file.write(trace(rank, start=2000))
    ingest([str(grown)], other, Options())
    (entry,) = other.snapshot().runs.values()
    # The first machine has not seen that, and drops what it knows.
    machines[0].here()
    (before,) = first.snapshot().runs.values()
    assert before.generation == entry.generation
    first.commit_all([Change(before.group, [], {}, [before.run_id])])
    assert other.snapshot().runs == {}


@few_models()
def test_a_build_that_another_machine_overtakes_is_made_again(
    bucket: str, archive: Path, local: Lake, machines: tuple[Machine, Machine]
) -> None:
    name = f"{bucket}/lake"
    lake = Lake.create(name)
    ingest([str(archive)], lake, Options())
    machines[1].here()
    other = Lake.open(name)
    publish = lake.small.publish_large
    with pytest.MonkeyPatch.context() as patch:

        def overtaken(staged: Path, name: str) -> None:
            patch.undo()
            build(other)
            publish(staged, name)

        patch.setattr(lake.small, "publish_large", overtaken)
        assert build(lake).unchanged  # what the other has built is what is wanted
    assert_same(Lake.open(name), local)


@few_models()
def test_a_large_warehouse_is_put_in_parts_if_nobody_was_first(
    bucket: str,
    archive: Path,
    local: Lake,
    machines: tuple[Machine, Machine],
    monkeypatch: pytest.MonkeyPatch,
    store: ObjectStore,
) -> None:
    monkeypatch.setattr("tracelake.storage.objects._ONE_PUT_BYTES", 0)
    name = f"{bucket}/lake"
    lake = Lake.create(name)
    ingest([str(archive)], lake, Options())
    machines[1].here()
    other = Lake.open(name)
    machines[0].here()
    store.count()
    build(lake)
    assert store.count()["POST"] >= 2  # the beginning and the end of an upload in parts
    assert_same(lake, local)
    with other.staging("build") as folder:
        copied = Path(shutil.copy(local.warehouse, folder))
        with pytest.raises(ChangedError):
            other.small.publish_large(copied, "warehouse.duckdb")


def test_a_reader_opens_what_another_machine_has_built(
    bucket: str, archive: Path, tmp_path: Path, machines: tuple[Machine, Machine]
) -> None:
    name = f"{bucket}/lake"
    brought_in(name, archive / "plans")
    machines[1].here()
    reader = Lake.open(name)
    machines[0].here()
    write(tmp_path / "in", {"more.txt": workload(name="more")})
    with few_models():
        brought_in(name, tmp_path / "in")
    machines[1].here()
    assert run_count(reader) == 3
    assert run_count(Lake.open(name)) == 4


def run_count(lake: Lake) -> int:
    with open_warehouse(lake) as con:
        return int(con.execute("SELECT count(*) FROM runs").fetchall()[0][0])


# --- a store that fails -------------------------------------------------------------------------


def test_a_busy_store_is_asked_again(
    bucket: str, archive: Path, store: ObjectStore, tmp_path: Path
) -> None:
    uri = put(f"{bucket}/archive", archive / "plans")
    store.count()
    store.faults(refuse=6)
    with few_models():
        lake = brought_in(f"{bucket}/lake", uri)
        assert store.count()["503"] > 5
        store.faults()
        assert_same(lake, brought_in(tmp_path / "lake", archive / "plans"))


def test_a_put_whose_answer_is_lost_is_none_of_another_machine(
    bucket: str, archive: Path, store: ObjectStore, tracelake: Command
) -> None:
    job = ["run", archive / "plans", "--lake", f"{bucket}/lake", "--since", "24h", "--quiet"]
    store.faults(lose=2)
    done = tracelake(*job)
    store.faults()
    assert (done.code, done.err) == (0, "")


def test_a_store_that_goes_away_is_told_and_the_next_run_goes_on(
    bucket: str,
    archive: Path,
    local: Lake,
    tracelake: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri, name = put(f"{bucket}/archive", archive), f"{bucket}/lake"
    read = StoredFile.range
    left = 12

    def failing(self: StoredFile, start: int, count: int) -> bytes:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoreError("the store fails: it is gone", path=uri)
        return read(self, start, count)

    monkeypatch.setattr(StoredFile, "range", failing)
    result = tracelake("run", uri, "--lake", name, "--jobs", "1")
    assert result.code == 3
    assert "the store fails" in result.err
    monkeypatch.setattr(StoredFile, "range", read)
    assert tracelake("ingest", uri, "--lake", name, *ALL).code == 0
    assert_same_runs(Lake.open(name), local)


@pytest.mark.usefixtures("machines")
def test_a_query_tells_that_the_store_fails(
    made: str, tracelake: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_count(Lake.open(made)) == 8  # the copy of the warehouse is there

    def failing(self: StoredFile, start: int, count: int) -> bytes:
        del self, start, count
        raise StoreError("the store fails: it is gone", path=made)

    monkeypatch.setattr(StoredFile, "range", failing)
    result = tracelake("query", "SELECT sum(duration_ns) FROM ops", "--lake", made)
    assert result.code == 3
    assert "the store fails: it is gone" in result.err
    assert "Traceback" not in result.err


def test_an_object_that_may_not_be_read_is_passed_over(
    bucket: str, archive: Path, tmp_path: Path, store: ObjectStore
) -> None:
    uri = put(f"{bucket}/archive", archive / "plans")
    store.faults(deny="/plan1.txt")
    lake = ingested(tmp_path / "lake", uri)
    assert len(lake.snapshot().runs) == 2
    assert [s["reason"] for s in lake.skipped_inputs()] == ["unreadable"]


@pytest.mark.parametrize("place", ["input", "lake"])
def test_a_store_that_denies_access_is_told(
    bucket: str, archive: Path, tracelake: Command, tmp_path: Path, store: ObjectStore, place: str
) -> None:
    uri = put(f"{bucket}/archive", archive / "plans")
    store.faults(deny="_manifest/_lake" if place == "lake" else "archive")
    lake = f"{bucket}/lake" if place == "lake" else str(tmp_path / "lake")
    done = tracelake("ingest", uri, "--lake", lake)
    assert done.code == 3
    assert "denies access" in done.err
    assert (lake if place == "lake" else uri) in done.err
    assert SECRET not in done.err


def test_a_bucket_in_another_region_is_told(
    bucket: str, tracelake: Command, tmp_path: Path, store: ObjectStore
) -> None:
    store.faults(elsewhere=True)
    for given in ([f"{bucket}/in", "--lake", tmp_path / "lake"], ["x", "--lake", f"{bucket}/lake"]):
        done = tracelake("ingest", *given)
        assert done.code == 3
        assert "PermanentRedirect" in done.err or "configured region" in done.err
        assert "set AWS_REGION to the region of the bucket" in done.err


# --- commands -----------------------------------------------------------------------------------


def test_the_commands_work_on_a_lake_in_a_store(
    bucket: str, archive: Path, tracelake: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{bucket}/lake"
    done = tracelake("run", archive, "--lake", name, *ALL)
    assert done.code == 0
    assert f"report:    {name}/report.html" in done.out
    assert done.err.count(f"{name}/report.html") == 1
    assert f"warehouse: {name}/warehouse.duckdb" in done.out
    there = {file.name for file in listed(place_of(name))}
    assert {"report.html", "warehouse.duckdb", "_run/records.jsonl", "_run/owed.json"} <= there
    asked = "SELECT count(*) AS n FROM workload_passes"
    answer = tracelake("query", asked, "--lake", name, "--format", "csv").out
    assert tracelake("check", "--lake", name).code == 0
    monkeypatch.setattr("tracelake.lake.rewriting._SMALL_GROUPS", 1)
    merged = tracelake("build", "--lake", name)
    assert merged.code == 0, merged.err
    assert tracelake("query", asked, "--lake", name, "--format", "csv").out == answer
    there = {file.name for file in listed(place_of(name))}
    assert len([file for file in there if file.startswith("workload_passes/")]) == 1
    run_id = next(run for run in Lake.open(name).snapshot().runs if run.startswith("plan0"))
    assert tracelake("drop", run_id, "--lake", name).code == 0
    assert tracelake("build", "--lake", name).code == 0
    assert tracelake("check", "--lake", name).code == 0
    assert run_count(Lake.open(name)) == 7
    assert tracelake("gc", "--lake", name).code == 0
    commands = "SELECT command FROM tracelake_runs ORDER BY started"
    told = tracelake("query", commands, "--lake", name, "--format", "csv").out
    assert told.replace('"', "").split() == ["command", "run", "build", "drop", "build", "gc"]


def test_gc_removes_what_has_lain_uncommitted_for_a_day(
    bucket: str, archive: Path, tracelake: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = f"{bucket}/lake"
    lake = ingested(name, archive)
    stray = "ops/format=x/month=undated/part-0.parquet"
    put(name, write(tmp_path, {stray: "of a worker whose driver died"}))
    before = {found.part for found in lake.part_files.stored()}
    assert tracelake("gc", "--lake", name).code == 0
    assert {found.part for found in lake.part_files.stored()} == before
    monkeypatch.setattr("tracelake.lake.stored._SETTLED_SECONDS", -1)
    assert tracelake("gc", "--lake", name).code == 0
    assert {found.part for found in lake.part_files.stored()} == before - {stray}


@few_models()
def test_a_damaged_part_is_found(
    bucket: str, archive: Path, tracelake: Command, tmp_path: Path
) -> None:
    name = f"{bucket}/lake"
    lake = brought_in(name, archive)
    part = lake.snapshot().parts_by_table()["ops"][0]
    put(name, write(tmp_path, {part: "PAR1 damaged PAR1"}))
    found = tracelake("check", "--lake", name)
    assert found.code == 5
    assert "parts_intact" in found.out


@pytest.mark.usefixtures("machines")
def test_a_query_reads_the_lake_and_nothing_beside_it(made: str, tmp_path: Path) -> None:
    lake, bucket = Lake.open(made), made.removesuffix("/lake")
    put(f"{bucket}/other", lake_part(lake, tmp_path))
    for uri in (f"{bucket}/other/x.parquet", f"{made}/ops/../../other/x.parquet"):
        with pytest.raises((UsageError, LakeError, StoreError, duckdb.Error)):
            list(run_query(lake, f"SELECT * FROM read_parquet('{uri}')"))


def lake_part(lake: Lake, folder: Path) -> Path:
    with lake.part_files.open(lake.snapshot().parts_by_table()["ops"][0]) as file:
        (folder / "x.parquet").write_bytes(file.read())
    return folder


def test_no_secret_reaches_the_lake_or_what_is_said(
    bucket: str, archive: Path, tracelake: Command, machines: tuple[Machine, Machine]
) -> None:
    name = f"{bucket}/lake"
    said = tracelake(
        "--log-format", "json", "run", put(f"{bucket}/in", archive), "--lake", name, *ALL
    )
    assert said.code == 0
    assert SECRET not in said.out + said.err
    for file in listed(place_of(name)):
        with StoredFile(place_of(f"{name}/{file.name}")) as stored:
            assert SECRET.encode() not in stored.read()
    for path in machines[0].home.rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()


@pytest.mark.usefixtures("machines")
def test_the_copy_is_of_this_user_alone(made: str) -> None:
    lake = Lake.open(made)
    assert run_count(lake) == 8
    assert lake.root.stat().st_mode & 0o077 == 0


@few_models()
def test_a_lost_copy_is_made_again(
    made: str, archive: Path, local: Lake, machines: tuple[Machine, Machine]
) -> None:
    lake = brought_in(made, archive)
    shutil.rmtree(machines[0].home)
    assert_same(brought_in(made, archive), local)
    (lake.root / ".versions.json").write_text("{damaged")
    assert_same(brought_in(made, archive), local)


@pytest.mark.parametrize(
    ("missing", "name", "lake"),
    [
        ("obstore", "archive", "s3://bucket/lake"),
        ("fsspec", "archive", "s3://bucket/lake"),
        ("obstore", "s3://bucket/archive", "lake"),
        ("obstore", "s3://bucket/archive/*.txt", "lake"),
    ],
)
def test_without_the_extra_a_store_says_what_to_install(
    missing: str, name: str, lake: str, archive: Path, tmp_path: Path
) -> None:
    (tmp_path / "archive").symlink_to(archive)
    code = f"import sys; sys.modules[{missing!r}] = None"
    done = subprocess.run(
        [*script(code, "main()"), "ingest", name, "--lake", lake],
        text=True,
        capture_output=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 2, done.stderr
    assert f"needs {missing}" in done.stderr
    assert "tracelake[stores]" in done.stderr
    assert "s3://bucket/" in done.stderr


@pytest.mark.parametrize("option", ["--report", "--summary"])
def test_a_page_is_not_written_to_a_uri(
    bucket: str, archive: Path, tracelake: Command, option: str, tmp_path: Path
) -> None:
    done = tracelake("run", archive, "--lake", tmp_path / "lake", option, f"{bucket}/x.html", *ALL)
    assert done.code == 2
    assert "this file cannot be written to a URI" in done.err
    assert not (tmp_path / "lake").exists()


def test_a_dry_run_on_a_lake_in_a_store_writes_nothing(bucket: str, archive: Path) -> None:
    name = f"{bucket}/lake"
    plans, _ = plan([str(archive)], name, Options(), Path("spool"))
    assert len(plans) == 8
    assert listed(place_of(name)) == []


def test_records_of_two_machines_stand_side_by_side(
    bucket: str, archive: Path, tracelake: Command, machines: tuple[Machine, Machine]
) -> None:
    name = f"{bucket}/lake"
    for machine in machines:
        machine.here()
        assert tracelake("ingest", archive, "--lake", name, *ALL).code == 0
    place = place_of(f"{name}/_run/records.jsonl")
    with StoredFile(place) as file:
        told = [json.loads(line) for line in file.read().splitlines()]
    assert [entry["command"] for entry in told] == ["ingest", "ingest"]
