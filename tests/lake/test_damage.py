"""Damage to what a lake keeps: it is said, mended, or left out; nothing else is lost."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import duckdb
import pytest

from tests.conftest import Command
from tests.fuzz.lake import Cases
from tests.lakes import Template, asked, few_models, ingest_and_build
from tests.tiny_lakes import commit_run, log_run
from tests.traces import plan, write
from tracelake.lake.losses import of_day
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.models.state import recorded

_MODEL = "run_summary"
_ROWS = f"FROM {_MODEL} ORDER BY ALL"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    lake = Lake.create(tmp_path_factory.mktemp("damage") / "lake")
    commit_run(lake, "a", log_run())
    commit_run(lake, "b", log_run(steps=4))
    with few_models(_MODEL):
        build(lake)
    return Template.of(lake)


@pytest.fixture
def lake(template: Template) -> Lake:
    return template.again()


# --- the warehouse --------------------------------------------------------------------------------


def _bytes(path: Path, offset: int) -> None:
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(offset)
        old = file.read(4)
        file.seek(offset)
        file.write(bytes(byte ^ 0xFF for byte in old))


def _half(path: Path) -> None:
    path.chmod(0o644)
    os.truncate(path, path.stat().st_size // 2)


def _sql(path: Path, statement: str) -> None:
    path.chmod(0o644)
    with duckdb.connect(str(path)) as con:
        con.execute(statement)


def _folder(path: Path) -> None:
    path.unlink()
    (path / "inside").mkdir(parents=True)


DAMAGE: dict[str, tuple[Callable[[Path], None], bool]] = {
    "half of it": (_half, True),
    "middle": (lambda path: _bytes(path, path.stat().st_size // 2), False),
    "table missing": (lambda path: _sql(path, "DROP TABLE run_summary"), True),
    "rows added": (lambda path: _sql(path, "INSERT INTO lost VALUES ('a', 'b', 'c')"), False),
    "rows removed": (lambda path: _sql(path, "DELETE FROM run_summary"), False),
    "folder": (_folder, True),
    "stray log": (lambda path: path.with_name(f"{path.name}.wal").touch(), False),
}


@few_models(_MODEL)
@pytest.mark.parametrize(("damage", "refused"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_warehouse_is_made_anew(
    lake: Lake, tracelake: Command, damage: Callable[[Path], None], refused: bool
) -> None:
    whole = tracelake("query", _ROWS, "--lake", lake.root).out
    damage(lake.warehouse)
    checked = tracelake("check", "--lake", lake.root)
    assert (checked.code, "warehouse" in checked.out) == (5, True), checked
    if refused:
        refusal = tracelake("query", _ROWS, "--lake", lake.root)
        assert refusal.code == 3, refusal
        assert f"tracelake build --lake {lake.root}" in refusal.err
    built = tracelake("build", "--lake", lake.root, "-q")
    assert built.code == 0, built
    assert "built again" in built.err
    assert tracelake("query", _ROWS, "--lake", lake.root).out == whole
    assert recorded(lake.warehouse, in_full=True).trouble is None


# --- parts ----------------------------------------------------------------------------------------


def _cut(part: Path) -> None:
    os.truncate(part, 100)


def _flip(part: Path) -> None:
    content = bytearray(part.read_bytes())
    content[50] ^= 1
    part.write_bytes(content)


def test_a_harmed_part_is_read_again_or_its_run_is_left_out(
    tmp_path: Path, tracelake: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracelake.ingest.batches._SMALL_BYTES", 0)  # a part has one run
    archive = write(tmp_path / "archive", {"one.txt": plan(), "two.txt": plan(4)})
    path = ingest_and_build(archive, tmp_path / "lake").root
    totals = "SELECT count(*) AS passes, count(DISTINCT run_id) AS runs FROM workload_passes"
    whole = tracelake("query", totals, "--lake", path).out
    part = Lake.open(path).snapshot().parts_by_table()["workload_passes"][0]
    (run_id,) = Lake.open(path).snapshot().runs_of[part]
    content = (path / part).read_bytes()

    _flip(path / part)
    checked = tracelake("check", "--lake", path)
    assert (checked.code, f"(of {run_id})" in checked.out) == (5, True)
    mended = tracelake("run", archive, "--lake", path)
    assert (mended.code, part in mended.err) == (0, True)
    assert (path / part).read_bytes() == content
    assert tracelake("query", totals, "--lake", path).out == whole

    at = (path / part).stat()
    _flip(path / part)
    os.utime(path / part, ns=(at.st_atime_ns, at.st_mtime_ns))
    monkeypatch.setattr("tracelake.lake.losses.SHARES", 1)  # every part is due today
    mended = tracelake("run", archive, "--lake", path, "--check")
    assert (mended.code, part in mended.err) == (0, True)
    assert (path / part).read_bytes() == content

    _cut(path / part)
    path = path.rename(tmp_path / "moved")
    for quick in ([], ["--quick"]):
        assert tracelake("check", *quick, "--lake", path).code == 5
    assert tracelake("query", "FROM run_summary", "--lake", path).code == 0
    shutil.rmtree(archive)
    write(archive, {"three.txt": plan(5)})
    left_out = tracelake("run", archive, "--lake", path, "--fail-on", "faults")
    assert left_out.code == 3
    assert "1 run left out" in left_out.err
    assert "give their input to tracelake run" in left_out.err  # ingest reads no part
    assert "1 gate of 1 failed" in left_out.err
    seen = tracelake(
        "query", "SELECT subject FROM findings WHERE kind = 'data_lost'", "--lake", path
    )
    assert part in seen.out
    left = Lake.open(path).snapshot().runs.keys() - {run_id}
    runs = tracelake("query", "SELECT run_id FROM runs", "--lake", path).out
    assert set(runs.split()[1:]) == left
    told = tracelake("check", "--lake", path, "--format", "json")
    assert [one["check"] for one in json.loads(told.out)] == ["parts_intact"]  # it is current
    dropped = tracelake("drop", "--forget", run_id, "--lake", path)
    assert dropped.code == 0
    assert tracelake("check", "--lake", path).code == 0


def test_the_rows_of_a_run_whose_manifest_is_lost_stay(lake: Lake, tracelake: Command) -> None:
    """They are named until the manifest is back, also by builds that compute everything."""

    def told() -> tuple[str, str, set[tuple[str, str]]]:
        checked = json.loads(tracelake("check", "--lake", lake.root, "--format", "json").out)
        (found,) = [one for one in checked if one["check"] == "parts_of_runs"]
        lost = {(row["run_id"], row["damage"]) for row in asked(tracelake, lake.root, "FROM lost")}
        return found["repair"], found["message"].partition(":")[0], lost

    manifest = next((lake.root / "_manifest").glob("a*.json"))
    kept = manifest.read_bytes()
    parts = {path for path in lake.root.rglob("part-*.parquet") if "train_steps" in str(path)}
    manifest.unlink()
    for options in ((), (), ("--full",), ()):
        if options:  # another program has written to the warehouse
            lake.warehouse.chmod(0o644)
            with duckdb.connect(str(lake.warehouse)) as con:
                con.execute("CREATE TABLE t (i INTEGER)")
        built = tracelake("build", "--lake", lake.root, *options)
        assert built.code == 3
        assert "deleted" not in built.err
        assert "1 run left out" in built.err
        assert "is without a manifest" in built.err
        assert all(part.is_file() for part in parts)
        repair, message, lost = told()
        assert repair.endswith("without it: tracelake build, then tracelake gc")
        assert message == "part files are without a manifest"
        assert lost == {("a", "without a manifest")}
        ((run,),) = (
            duckdb.connect(str(lake.warehouse), read_only=True)
            .execute(f"SELECT run_id FROM {_MODEL}")
            .fetchall()
        )
        assert run == "b"
    lake.warehouse.with_name("warehouse.duckdb.wal").touch()  # what it names is not known then
    assert tracelake("build", "--lake", lake.root).code == 0
    assert all(part.is_file() for part in parts)
    manifest.write_bytes(kept)
    again = tracelake("build", "--lake", lake.root)
    assert again.code == 0
    assert tracelake("check", "--lake", lake.root).code == 0


def test_without_its_manifest_and_input_a_run_goes_when_files_are_collected(
    lake: Lake, tracelake: Command
) -> None:
    next((lake.root / "_manifest").glob("a*.json")).unlink()
    assert tracelake("build", "--lake", lake.root).code == 3
    assert tracelake("gc", "--lake", lake.root).code == 0
    assert tracelake("build", "--lake", lake.root).code == 0
    assert tracelake("check", "--lake", lake.root).code == 0


@few_models()
def test_a_copy_counts_while_the_original_is_lost(tmp_path: Path, tracelake: Command) -> None:
    same = {"a/one.txt": plan(), "b/two.txt": plan()}
    archive = write(tmp_path / "archive", {**same, "three.txt": plan(5)})
    made = ingest_and_build(archive, tmp_path / "lake")
    lake = made.root

    def found() -> list[str]:
        sql = "SELECT path FROM sources WHERE duplicate_of IS NOT NULL"
        return tracelake("query", sql, "--lake", lake).out.split()[1:]

    def copies() -> list[str]:
        for words in (("ingest", archive), ("build",)):
            assert tracelake(*words, "--lake", lake).code in (0, 3)
        return found()

    assert found() == ["b/two.txt"]
    runs = made.snapshot().runs.values()
    (original,) = (run for run in runs if run.sources[0]["path"] == "a/one.txt")
    (part,) = original.parts["workload_passes"]
    (lake / part).unlink()
    (archive / "a/one.txt").unlink()
    assert copies() == []
    write(archive, same)
    assert copies() == ["b/two.txt"]


@pytest.mark.parametrize("every", [1, 2, 7, 30])
def test_a_job_of_any_interval_verifies_every_part_in_31_runs(every: int) -> None:
    parts = [f"ops/run_id=a/part-{number}.parquet" for number in range(200)]
    days = [date(2024, 1, 1) + timedelta(days=every * night) for night in range(31)]
    assert all(sum(of_day(day)(part) for day in days) == 1 for part in parts)


# --- manifests and other small files --------------------------------------------------------------

_ENTRY = {"generation": "g", "parts": {}, "options": {}, "sources": []}


def _group(**fields: object) -> str:
    return json.dumps({"version": 1, "runs": {"a": {**_ENTRY, **fields}}})


_OPTIONS = {"format": "optimus", "parser": 1, "schema": 1, "forced": False}


def _source(**facts: object) -> dict[str, object]:
    """The record of an input, with further facts."""
    known: dict[str, object] = {}
    known |= {"path": "x", "stem": "x", "rank": None, "host": None, "stamp": None, "topology": {}}
    stat = {"size": 1, "mtime_ns": 1, "inode": 1, "members": 1, "weight": 1, "position": None}
    names = {"path": "x", "member": None, "head_hash": "x", "content_hash": "x"}
    rest = {"packed": False, "bytes": 1, "lines": 1, "duplicate_of": None}
    return {**stat, **names, **rest, "facts": {**known, **facts}}


def _without(option: str) -> str:
    """A manifest of a run that lacks an option."""
    options = {name: value for name, value in _OPTIONS.items() if name != option}
    return _group(options=options, sources=[_source()])


SMALL: dict[str, tuple[str, str]] = {
    "facts": ("_manifest/a.json", _group(options=_OPTIONS, sources=[_source(dvice=None)])),
    **{f"option {name}": ("_manifest/a.json", _without(name)) for name in _OPTIONS},
    "list": ("_manifest/a.json", "[]"),
    "deep": ("_manifest/a.json", "[" * 200_000),
    "parts": ("_manifest/a.json", _group(parts=5)),
    "parts of a table": ("_manifest/a.json", _group(parts={"ops": "ops/x.parquet"})),
    "part": ("_manifest/a.json", _group(parts={"ops": [5]})),
    "generation": ("_manifest/a.json", _group(generation=5)),
    "one of two runs": (
        "_manifest/a.json",
        json.dumps({"version": 1, "runs": {"a": _ENTRY, "b": {**_ENTRY, "generation": 5}}}),
    ),
    "options of one of two runs": (
        "_manifest/a.json",
        json.dumps(
            {
                "version": 1,
                "runs": {
                    run_id: {**_ENTRY, "options": options, "sources": [_source()]}
                    for run_id, options in (("a", _OPTIONS), ("b", {**_OPTIONS, "parser": "1"}))
                },
            }
        ),
    ),
    "part elsewhere": (
        "_manifest/a.json",
        _group(parts={"ops": ["ops/run_id=../x.parquet/../.."]}),
    ),
    "schema": ("_manifest/a.json", _group(options={"schema": "x"})),
    "source": ("_manifest/a.json", _group(sources=[{"path": 1}])),
    "no inputs": ("_manifest/a.json", _group(options=_OPTIONS)),
    "skipped": ("_manifest/_skipped.json", "[]"),
    "no rows of skipped": (
        "_manifest/_skipped.json",
        '{"version": 1, "inputs": [{"path": "x", "member": null, "reason": "empty"}], "parts": []}',
    ),
    "skipped inputs": ("_manifest/_skipped.json", '{"version": 1, "inputs": [1], "parts": []}'),
    "packs": ("_manifest/_packs.json", '{"version": 2, "runs": {}, "packs": {"ops/x": [[0, 9]]}}'),
    "dropped": ("_manifest/_dropped", '{"version": 1, "runs": {"b": {}}}'),
    "newer dropped": ("_manifest/_dropped", '{"version": 9}'),
}


@pytest.mark.parametrize(("name", "content"), SMALL.values(), ids=SMALL.keys())
def test_a_malformed_file_is_named_with_the_next_step(
    lake: Lake, tracelake: Command, sample: Path, name: str, content: str
) -> None:
    (lake.root / name).write_text(content)
    for command in (["check"], ["run", sample / "optimus"]):
        refused = tracelake(*command, "--lake", lake.root)
        assert refused.code == 3
        assert f"where: {lake.root / name}" in refused.err
        assert "next:" in refused.err


@few_models(_MODEL)
def test_junk_in_the_list_of_loose_parts_removes_nothing(lake: Lake, tracelake: Command) -> None:
    outside = lake.root.parent / "mine.parquet"
    outside.touch()
    (lake.root / "_manifest" / "_loose").write_bytes(
        b"\xff\n../mine.parquet\nops/../../mine.parquet"
    )
    assert tracelake("build", "--lake", lake.root).code == 0
    assert outside.exists()
    lock = lake.root / "_lock" / "commit"
    lock.unlink()
    lock.mkdir()
    refused = tracelake("gc", "--lake", lake.root)
    assert (refused.code, f"where: {lock}" in refused.err) == (3, True)


# --- any of it ------------------------------------------------------------------------------------


def test_damaged_lakes_are_mended_or_the_command_says_why_not(tmp_path: Path) -> None:
    # The campaign over many more cases is `python -m tests.fuzz.lake`.
    cases = Cases(tmp_path)
    for seed in range(12):
        cases.run(seed)
    assert cases.wrong == []
    assert cases.counts["mended in full"]
    assert cases.counts["run said what is wrong"]
