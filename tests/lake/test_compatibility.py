"""Lakes of other versions: what earlier ones wrote is read, what newer ones wrote is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.conftest import Command
from tests.fixture_lake import FIXTURES, GOLDEN, INPUTS, LATER_INPUT, VERSION, answers, opened
from tests.lakes import Template, few_models
from tests.tiny_lakes import commit_run, log_run
from tracelake.base.errors import LakeError
from tracelake.lake.manifest import MANIFEST_VERSION
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.models.catalog import catalog
from tracelake.models.state import WAREHOUSE_VERSION
from tracelake.nightly.backlog import VERSION as BACKLOG_VERSION
from tracelake.schema.tables import SCHEMA_VERSION
from tracelake.warehouse.warehouse import open_warehouse

KEPT = sorted(FIXTURES.glob("lake-*"))


@pytest.fixture(params=KEPT, ids=lambda path: path.name)
def fixture(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def recorded(fixture: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((fixture / "made.json").read_text())["answers"]
    return found


def asked(lake: Lake, fixture: Path) -> dict[str, Any]:
    """The answers to what the kept lake was asked; tables of later versions must be empty."""
    found, known = answers(lake), recorded(fixture)
    assert all(found[name] == [{"found": 0}] for name in found.keys() - known.keys())
    return {name: found[name] for name in known}


def test_a_lake_of_this_version_is_kept() -> None:
    assert f"lake-{VERSION}" in [path.name for path in KEPT]


def test_a_lake_of_this_version_answers_as_it_is(tmp_path: Path) -> None:
    fixture = FIXTURES / f"lake-{VERSION}"
    assert answers(opened(fixture, tmp_path / "lake")) == recorded(fixture)


def test_a_kept_lake_is_built_and_answers_as_it_did(
    fixture: Path, tmp_path: Path, tracelake: Command
) -> None:
    lake = opened(fixture, tmp_path / "lake")
    assert tracelake("build", "--lake", lake.root).code == 0
    assert asked(lake, fixture) == recorded(fixture)
    checked = tracelake("check", "--lake", lake.root)
    assert checked.code == 0, checked.out + checked.err


@few_models()
def test_a_kept_lake_takes_new_input(fixture: Path, tmp_path: Path, tracelake: Command) -> None:
    lake = opened(fixture, tmp_path / "lake")
    before = set(lake.snapshot().runs)
    for words in (("ingest", GOLDEN / LATER_INPUT / "input"), ("build",)):
        done = tracelake(*words, "--lake", lake.root)
        assert done.code == 0, done.err
    after = set(lake.snapshot().runs)
    assert before < after
    assert len(after - before) == 1
    old = f"{sorted(before)}".replace("[", "(").replace("]", ")")
    question = f"SELECT count(*) AS n FROM ops WHERE run_id IN {old}"
    found = tracelake("query", question, "--lake", lake.root, "--format", "json")
    assert json.loads(found.out) == [{"n": recorded(fixture)["ops"][0]["found"]}]


@few_models("run_summary")
def test_input_of_a_kept_lake_is_known_again(
    fixture: Path, tmp_path: Path, tracelake: Command
) -> None:
    lake = opened(fixture, tmp_path / "lake")
    before = set(lake.snapshot().runs)
    inputs = [GOLDEN / name / "input" for name in INPUTS]
    done = tracelake("ingest", *inputs, "--lake", lake.root)
    assert done.code in (0, 5), done.err  # what is wrong with the lines was so before
    build(lake)
    assert set(lake.snapshot().runs) == before
    assert asked(lake, fixture) == recorded(fixture)


# --- newer versions -------------------------------------------------------------------------------


def newer_manifest(lake: Lake) -> None:
    _edit(next((lake.root / "_manifest").glob("a.json")), version=MANIFEST_VERSION + 1)


def newer_tables(lake: Lake) -> None:
    commit_run(lake, "b", log_run(), schema_version=SCHEMA_VERSION + 1)


def newer_warehouse(lake: Lake) -> None:
    _update(lake, f"version = {WAREHOUSE_VERSION + 1}")


def newer_models(lake: Lake) -> None:
    _update(lake, f"schema_version = {SCHEMA_VERSION + 1}")


def _edit(path: Path, **changed: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


def _update(lake: Lake, assignment: str) -> None:
    _change(lake, f"UPDATE _build SET {assignment}")


def _change(lake: Lake, statement: str) -> None:
    lake.warehouse.chmod(0o644)
    with duckdb.connect(str(lake.warehouse)) as con:
        con.execute(statement)
    lake.warehouse.chmod(0o444)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    lake = Lake.create(tmp_path_factory.mktemp("compatibility") / "lake")
    commit_run(lake, "a", log_run())
    build(lake)
    return Template.of(lake)


@pytest.fixture
def lake(template: Template) -> Lake:
    return template.again()


WRITING = ("run", "ingest", "build", "check")
ASKING = ("query", "report", "runs", "show")


@pytest.mark.parametrize(
    ("change", "commands", "said"),
    [
        (newer_manifest, WRITING, f"version {MANIFEST_VERSION + 1}"),
        (newer_tables, WRITING, "a newer tracelake wrote run b"),
        (newer_warehouse, ("run", "build", "check", *ASKING), "a newer tracelake built"),
        (newer_models, ("run", "build", "check", *ASKING), "a newer tracelake built"),
    ],
)
def test_what_a_newer_version_wrote_is_refused_and_left_alone(
    lake: Lake,
    tmp_path: Path,
    tracelake: Command,
    change: Callable[[Lake], None],
    commands: tuple[str, ...],
    said: str,
) -> None:
    change(lake)
    words: dict[str, list[str | Path]] = {
        "run": [GOLDEN / LATER_INPUT / "input"],
        "ingest": [GOLDEN / LATER_INPUT / "input"],
        "query": ["SELECT 1"],
        "report": ["--output", tmp_path / "page.html"],
        "show": ["latest"],
    }
    built, committed = lake.warehouse.read_bytes(), _manifests(lake)
    for command in commands:
        refused = tracelake(command, *words.get(command, []), "--lake", lake.root)
        assert refused.code == 3, (command, refused.out, refused.err)
        assert said in refused.err, command
        assert "use th" in refused.err, command
    assert lake.warehouse.read_bytes() == built
    if "ingest" in commands:
        assert _manifests(lake) == committed


def test_a_job_on_a_newer_warehouse_ingests_nothing(tmp_path: Path, tracelake: Command) -> None:
    """Though an earlier job has left its record, so that the warehouse need not be asked."""
    lake = opened(FIXTURES / f"lake-{VERSION}", tmp_path / "lake")
    newer_warehouse(lake)
    committed = _manifests(lake)
    refused = tracelake("run", GOLDEN / LATER_INPUT / "input", "--lake", lake.root)
    assert (refused.code, _manifests(lake)) == (3, committed), refused.err


def _manifests(lake: Lake) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (lake.root / "_manifest").glob("*.json")}


def test_a_record_of_jobs_of_a_newer_version_is_refused(tmp_path: Path, tracelake: Command) -> None:
    lake = opened(FIXTURES / f"lake-{VERSION}", tmp_path / "lake")
    record = lake.root / "_run" / "owed.json"
    _edit(record, version=BACKLOG_VERSION + 1)
    before = record.read_bytes()
    source, page = GOLDEN / LATER_INPUT / "input", tmp_path / "page.html"
    job = ("run", source, "--lake", lake.root, "--report", page, "--since", "9000d")
    refused = tracelake(*job)
    assert refused.code == 3
    assert "a newer tracelake wrote the backlog of jobs" in refused.err
    assert record.read_bytes() == before


def test_a_warehouse_of_an_older_version_is_built_anew_and_says_so(
    lake: Lake, tracelake: Command
) -> None:
    _update(lake, f"version = {WAREHOUSE_VERSION - 1}")
    with pytest.raises(LakeError, match="another version") as refused:
        open_warehouse(lake)
    assert refused.value.hint == "build it again: tracelake build"
    rebuilt = tracelake("build", "--lake", lake.root)
    assert rebuilt.code == 0
    assert "another version of tracelake built it" in rebuilt.err
    assert tracelake("query", "FROM run_summary", "--lake", lake.root).code == 0


def test_readers_say_that_a_warehouse_lacks_what_later_models_have(
    lake: Lake, tracelake: Command, tmp_path: Path
) -> None:
    """It is read as it is, but for what it lacks."""
    _update(lake, "models = 'others'")
    _change(lake, "ALTER TABLE findings DROP COLUMN level")
    _change(lake, "ALTER TABLE run_list DROP COLUMN running_until")
    assert tracelake("query", "FROM run_summary", "--lake", lake.root).code == 0
    page = tmp_path / "page.html"
    for words in (
        ("ask", "attention"),
        ("query", "SELECT level FROM findings"),
        ("report", "-o", page),
        ("show", "latest"),
    ):
        refused = tracelake(*words, "--lake", lake.root)
        assert refused.code == 3
        assert "built with other models than this tracelake has: " in refused.err
        assert "tracelake build --lake" in refused.err
    typo = tracelake("query", "SELECT levl FROM findings", "--lake", lake.root)
    _update(lake, f"models = '{catalog().hash}'")
    known = tracelake("query", "SELECT levl FROM findings", "--lake", lake.root)
    assert (typo.code, known.code) == (3, 2)
    assert "other models" not in known.err


def test_runs_of_an_older_schema_are_read_beside_those_of_this(
    lake: Lake, tracelake: Command
) -> None:
    commit_run(lake, "b", log_run(), schema_version=1, lacking=["profiled"])
    with few_models():
        build(lake)
    found = tracelake(
        "query", "SELECT run_id, profiled FROM runs ORDER BY ALL", "--lake", lake.root,
        "--format", "csv",
    )  # fmt: skip
    assert [line.split(",")[0] for line in found.out.splitlines()[1:]] == ['"a"', '"b"']
