"""`run` as a scheduler meets it: dated pages, late runs, one at a time, an account of every end."""

from __future__ import annotations

import importlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest

from tests.conftest import ROOT, Command
from tests.lakes import Template, few_models, ingest_and_build, run_ingest
from tests.tiny_lakes import commit_run, log_run
from tests.traces import plan, write
from tracelake import run
from tracelake.base.errors import UsageError
from tracelake.formats import Format, formats
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.models.describe import relation_columns
from tracelake.nightly import post_command
from tracelake.nightly.backlog import Backlog, Duty
from tracelake.nightly.gates import GATES
from tracelake.nightly.series import Series

TRACELAKE = str(Path(sys.executable).with_name("tracelake"))
SCHEMA = json.loads((ROOT / "docs" / "nightly" / "summary.schema.json").read_text())
NIGHT = datetime(2026, 11, 21, 2, 0, 0, tzinfo=UTC)


def stamp(age: timedelta) -> str:
    return f"{datetime.now() - age:%Y%m%d%H%M%S}"


# More than what a run's id is made of: a run that grows by it is the same run.
LONG = plan(200, name="more_").split("\n", 2)[2]
TODAY, LONG_AGO = stamp(timedelta(hours=1)), "20250101000000"
DAMAGE = [b"", b"[]", b"{}", b'{"version": 1}', None]
"""Records of what is owed that cannot be read, and none."""
Backlogs: TypeAlias = dict[bytes | None, tuple[str, Backlog, list[str]]]


def job(archive: Path, name: str, date: str, *, lines: str = "", lacking: int = 0) -> str:
    """Adds a plan to an archive, which the fewest models have rows of, and gives its name there."""
    text = plan(3, declared=3 + lacking, name=f"{name}_") + lines
    write(archive, {f"{name}/plan_{date}.txt": text})
    return name


def runs_of(lake: Path) -> dict[str, str]:
    """Run ids by the folder that their only file is in."""
    entries = Lake.open(lake).snapshot().runs.items()
    return {entry.sources[0]["path"].split("/")[0]: run_id for run_id, entry in entries}


def account(path: Path) -> dict[str, Any]:
    """A summary, of the form that is documented."""
    return valid(path.read_text(encoding="utf-8"))


def valid(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    jsonschema = importlib.import_module("jsonschema")
    jsonschema.validate(document, SCHEMA, format_checker=jsonschema.FormatChecker())
    return document


def begin(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [TRACELAKE, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process says until it ends, which it does soon."""
    try:
        return process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def stop(process: subprocess.Popen[str], signum: signal.Signals) -> None:
    """Interrupts a process, and again where a module that is being imported swallows it."""
    for _ in range(6):
        process.send_signal(signum)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=10)
            return
    process.kill()
    pytest.fail(f"lives on after {signum.name}")


def until(done: Any, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not done():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@contextmanager
def no_builds(lake: Path) -> Iterator[None]:
    """Keeps jobs between their commits and their page."""
    with Lake.create(lake).lock("warehouse"):
        yield


def committed(lake: Path, count: int) -> bool:
    return len(list((lake / "_manifest").glob("[!_]*.json"))) == count


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture(scope="module")
def first_night(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """A lake after the first job with an age and a gate, which was of the run `first`."""
    folder = tmp_path_factory.mktemp("first night")
    job(folder / "archive", "first", TODAY)
    told = run(folder / "archive", folder / "lake", since="24h", fail_on="incomplete")
    assert told["exit_code"] == 0
    return Template.of(Lake.open(folder / "lake"))


@pytest.fixture
def begun(first_night: Template) -> Lake:
    return first_night.again()


# --- the page ------------------------------------------------------------------------------


def test_a_page_with_an_age_has_what_came_since_the_last_one(
    tracelake: Command, archive: Path, lake: Path, tmp_path: Path
) -> None:
    page, summary = tmp_path / "page.html", tmp_path / "summary.json"
    job(archive, "old", "20240101000000")
    ingest_and_build(archive, lake)
    named = ("--report", page, "--summary", summary)
    nightly = ("run", archive, "--lake", lake, "--since", "24h", *named)

    job(archive, "today", TODAY)
    assert tracelake(*nightly).code == 0
    run = runs_of(lake)
    assert (account(summary)["late"], [r["run_id"] for r in account(summary)["runs"]]) == (
        [],
        [run["today"]],
    )

    # Somebody else brings them in; one has no date at all.
    job(archive, "late", LONG_AGO, lines=LONG)
    write(archive, {"plan/plan.txt": plan()})
    assert tracelake("ingest", archive, "--lake", lake).code == 0
    assert tracelake(*nightly).code == 0
    run = runs_of(lake)
    assert account(summary)["late"] == [run["late"], run["plan"]]
    shown = page.read_text()
    assert {name for name in run if run[name] in shown} == {"late", "today", "plan"}

    # The same page again keeps what it had; a page of its own has what came since.
    assert tracelake(*nightly).code == 0
    assert account(summary)["late"] == [run["late"], run["plan"]]
    # A run that grows has changed; what is only looked at again has not.
    job(archive, "late", LONG_AGO, lines=LONG + LONG)
    other = tmp_path / "other.html"
    assert tracelake(*nightly, "--report", other).code == 0
    assert account(summary)["late"] == [run["late"]]
    shown = other.read_text()
    assert {name for name in run if run[name] in shown} == {"late", "today"}


def test_a_page_that_could_not_be_written_is_made_up_for(
    tracelake: Command, archive: Path, lake: Path, tmp_path: Path
) -> None:
    summary = tmp_path / "summary.json"
    nightly = ("run", archive, "--lake", lake, "--since", "24h", "--summary", summary)
    job(archive, "late", LONG_AGO)
    (tmp_path / "file").write_text("")
    failed = tracelake(*nightly, "--report", tmp_path / "file" / "page.html")
    assert failed.code == 2
    told = account(summary)
    assert (told["exit_code"], told["report"], told["runs"], told["verdicts"]) == (
        2,
        None,
        None,
        None,
    )
    assert told["errors"][0]["where"] == str(tmp_path / "file" / "page.html")
    assert told["ingest"]["runs"]["new"] == 1
    assert tracelake(*nightly).code == 0
    assert account(summary)["late"] == [runs_of(lake)["late"]]
    assert account(summary)["report"] == str(lake / "report.html")


def test_a_page_about_everything_leaves_the_late_ones_to_the_next_with_an_age(
    tracelake: Command, archive: Path, begun: Lake, tmp_path: Path
) -> None:
    lake = begun.root
    nightly = ("run", archive, "--lake", lake, "--since", "24h", "--summary", tmp_path / "s")
    job(archive, "late", LONG_AGO, lacking=1)
    by_hand = tracelake("run", archive, "--lake", lake)
    assert by_hand.code == 0
    assert tracelake(*nightly, "--fail-on", "incomplete").code == 5
    assert account(tmp_path / "s")["late"] == [runs_of(lake)["late"]]


def test_gates_begin_with_the_first_job_that_has_some(
    tracelake: Command, archive: Path, lake: Path
) -> None:
    job(archive, "before", LONG_AGO, lacking=1)
    assert tracelake("run", archive, "--lake", lake).code == 0
    gated = ("run", archive, "--lake", lake, "--fail-on", "incomplete")
    assert tracelake(*gated).code == 0
    job(archive, "after", TODAY, lacking=1)
    assert tracelake(*gated).code == 5
    assert tracelake(*gated).code == 0


def test_a_record_is_written_only_when_something_changed(tracelake: Command, begun: Lake) -> None:
    archive, record = begun.root.with_name("archive"), begun.root / "_run" / "owed.json"
    nightly = ("run", archive, "--lake", begun.root, "--since", "24h", "--fail-on", "incomplete")
    before = record.stat()
    again = tracelake(*nightly)
    assert (again.code, "1 run: 1 unchanged" in again.err) == (0, True)
    assert record.stat().st_mtime_ns == before.st_mtime_ns


@pytest.fixture(scope="module")
@few_models()
def second(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Backlogs]:
    """A lake and its backlogs: each was opened on another record, before its second run came."""
    lake = Lake.create(tmp_path_factory.mktemp("backlogs") / "lake")
    commit_run(lake, "first", log_run())
    build(lake)
    backlogs = {}
    for number, damage in enumerate(DAMAGE):
        path, warned = lake.root / f"owed{number}.json", list[str]()
        if damage is not None:
            path.write_bytes(damage)
        owed = Backlog.open(lake, path.name, [Duty.PAGE], warned.append)
        backlogs[damage] = path.name, owed, warned
    commit_run(lake, "second", log_run())
    build(lake)
    return lake, backlogs


@pytest.mark.parametrize("damage", DAMAGE)
def test_without_a_record_what_the_warehouse_has_is_done(
    second: tuple[Lake, Backlogs], damage: bytes | None
) -> None:
    lake, backlogs = second
    name, owed, warned = backlogs[damage]

    def opened() -> Backlog:
        return Backlog.open(lake, name, [Duty.PAGE], warned.append)

    owed.arrive()
    assert owed.of(Duty.PAGE) == opened().of(Duty.PAGE) == ("second",)
    assert [damage is not None] * len(warned) == ["is started again" in said for said in warned]
    assert len(warned) == (damage is not None)
    owed.settle(Duty.PAGE)
    assert owed.of(Duty.PAGE) == opened().of(Duty.PAGE) == ()


@pytest.mark.parametrize("name", ["_run/owed.json", "_manifest/_skipped.json"])
def test_a_record_that_this_user_may_not_read_stays(
    name: str,
    tracelake: Command,
    begun: Lake,
    archive: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job(archive, "late", LONG_AGO)
    write(archive, {"unknown.txt": "?"})
    run_ingest(archive, begun.root)
    before, read_bytes = (begun.root / name).read_bytes(), Path.read_bytes

    def denied(path: Path) -> bytes:
        if path == begun.root / name:
            raise PermissionError(13, "Permission denied", str(path))
        return read_bytes(path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", denied)
        told = tracelake("run", archive, "--lake", begun.root, "--since", "24h")
    assert (told.code, (begun.root / name).read_bytes()) == (3, before)
    assert f"where: {begun.root / name}\n  next:  move what is there out of the way" in told.err


# --- dated files -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "path", "latest"),
    [
        ("r/{date}.html", "r/2026-11-21.html", "r/latest.html"),
        ("r/t-{datetime}.html", "r/t-20261121T020000Z.html", "r/t-latest.html"),
        ("r/{date}/index.html", "r/2026-11-21/index.html", "r/latest/index.html"),
        ("r/{date}/{date}.html", "r/2026-11-21/2026-11-21.html", "r/latest/latest.html"),
        ("r/page.html", "r/page.html", None),
    ],
)
def test_names_are_dated_by_the_start(template: str, path: str, latest: str | None) -> None:
    series = Series(template, NIGHT)
    assert (str(series.path), series.latest and str(series.latest)) == (path, latest)


def test_a_day_is_that_of_the_place_and_a_moment_is_that_of_utc() -> None:
    start = datetime.fromisoformat("2026-11-22T00:30:00+02:00")
    assert str(Series("{date}", start).path) == "2026-11-22"
    assert str(Series("{datetime}", start).path) == "20261121T223000Z"


@pytest.mark.parametrize("template", ["{dat}.html", "{}.html", "{date}{host}"])
def test_an_unknown_placeholder_is_refused(template: str) -> None:
    with pytest.raises(UsageError, match="no placeholder") as caught:
        Series(template, NIGHT)
    assert caught.value.hint == "one of {date}, {datetime}"


@pytest.mark.parametrize("template", ["{date}.html", "{date}/index.html", "[x]-{datetime}.html"])
def test_only_pages_of_the_series_are_removed(tmp_path: Path, template: str) -> None:
    named = str(tmp_path / template)
    nights = [Series(named, NIGHT + timedelta(days=n)) for n in range(-5, 6)]
    for night in nights:
        write(tmp_path, {str(night.path): "<title>tracelake</title>"})
    theirs = Series(named, NIGHT - timedelta(days=90)).path
    write(tmp_path, {str(theirs): "somebody else's"})
    linked = Series(named, NIGHT - timedelta(days=91)).path
    linked.parent.mkdir(exist_ok=True)
    linked.symlink_to(nights[0].path)
    others = ["2026-1-1.html", "2026-01-01.html.bak", "notes", "2026-01-01/notes", "latest.html"]
    write(tmp_path, dict.fromkeys(others, "tracelake"))
    tonight = nights[5]
    removed = tonight.prune(3)
    # Those that a wrong clock dated later are the newest; that of this start stays all the same.
    left = [tonight, *nights[-2:]]
    assert sorted(removed) == sorted(n.path for n in nights if n not in left)
    assert [n for n in nights if n.path.exists()] == left
    assert theirs.is_file()
    assert linked.is_symlink()
    assert all((tmp_path / name).is_file() for name in others)
    if "/" in template:
        assert not nights[0].path.parent.exists()
    assert tonight.prune(3) == []


def test_a_folder_with_more_than_the_page_stays(tmp_path: Path) -> None:
    old = Series(str(tmp_path / "{date}/index.html"), NIGHT - timedelta(days=9))
    write(tmp_path, {str(old.path): "tracelake", str(old.path.with_name("notes")): "mine"})
    assert Series(old.template, NIGHT).prune(1) == [old.path]
    assert old.path.with_name("notes").is_file()


def test_latest_is_a_copy_where_links_are_not_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = Series(str(tmp_path / "r" / "{date}.html"), NIGHT)
    write(tmp_path, {str(series.path): "tonight"})
    series.link_latest()
    latest = tmp_path / "r" / "latest.html"
    assert latest.readlink() == Path("2026-11-21.html")

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    series.link_latest()
    assert (latest.is_symlink(), latest.read_text()) == (False, "tonight")
    assert sorted(p.name for p in latest.parent.iterdir()) == ["2026-11-21.html", "latest.html"]


def test_pages_and_summaries_of_the_newest_nights_are_kept(
    tracelake: Command, archive: Path, lake: Path, tmp_path: Path
) -> None:
    job(archive, "today", TODAY)
    folder = tmp_path / "pages"
    old = {f"2020-01-{n:02}.{kind}": "tracelake" for n in range(1, 5) for kind in ("html", "json")}
    write(folder, {**old, "2020-01-01.html.bak": "tracelake", "2020-01-02.htm": "tracelake"})
    names = ("--report", folder / "{date}.html", "--summary", folder / "{date}.json")
    done = tracelake("run", archive, "--lake", lake, *names, "--keep", "3")
    assert done.code == 0
    left = {path.name for path in folder.iterdir()}
    night = account(folder / "latest.json")["started"][:10]
    assert left == {
        *(f"{date}.{kind}" for date in ("2020-01-03", "2020-01-04", night, "latest")
          for kind in ("html", "json")),
        *("2020-01-01.html.bak", "2020-01-02.htm"),
    }  # fmt: skip
    assert (folder / "latest.html").readlink() == Path(f"{night}.html")
    assert account(folder / "latest.json")["latest"] == str(folder / "latest.html")
    assert f"report:    {folder / night}.html" in done.out
    for kind in ("html", "json"):
        (folder / f"{night}.{kind}").rename(folder / f"2020-01-05.{kind}")
    assert tracelake("run", archive, "--lake", lake, *names, "--keep", "1").code == 0
    assert sorted(path.name for path in folder.glob("2*")) == [
        *("2020-01-01.html.bak", "2020-01-02.htm", f"{night}.html", f"{night}.json"),
    ]


# --- the account -----------------------------------------------------------------------------


def test_the_summary_tells_what_was_done_and_found(
    tracelake: Command, archive: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACELAKE_LAKE", str(lake))
    job(archive, "fine", TODAY)
    job(archive, "bad", TODAY, lines="what is this\n")
    job(archive, "half", LONG_AGO, lacking=1)
    write(archive, {"notes": "text\n"})
    result = tracelake(
        *("run", archive, "--summary", "-", "--fail-on", "incomplete,straggler"),
    )
    told, run = valid(result.out), runs_of(lake)
    assert (result.code, told["exit_code"], len(told["errors"])) == (3, 3, 2)
    assert "1 run with more bad lines than --max-bad-ratio" in told["errors"][0]["what"]
    assert told["errors"][1]["what"].startswith("1 gate of 2 failed")
    assert told["errors"][1]["where"] == str(lake)
    # Who reads a message has not the environment of the job.
    assert f'tracelake query --lake {lake} "FROM findings' in told["errors"][1]["next"]
    for error in told["errors"]:
        assert f"error: {error['what']}\n" in result.err
    assert told["ingest"] == {
        "runs": {"new": 3, "updated": 0, "unchanged": 0, "refreshed": 0, "kept": 0, "dropped": 0},
        "files": 3,
        "bytes": sum(path.stat().st_size for path in archive.rglob("*.txt")),
        "lines": 16,
        "rows": told["ingest"]["rows"],
        "rejects": 1,
        "skipped": {"no_format": 1},
        "skipped_files": [{"path": "notes", "reason": "no_format"}],
        "changed": sorted(run.values()),
    }
    verdicts = told["verdicts"]
    assert sorted(verdicts["runs"]) == sorted(run.values())
    assert [failed["gate"] for failed in verdicts["failed"]] == ["incomplete"]
    assert verdicts["failed"][0]["runs"] == [
        {
            "run_id": run["half"],
            "seen": [f"The run is incomplete: half/plan_{LONG_AGO}.txt: 4 rows declared, 3 read."],
        }
    ]
    assert verdicts["bad_lines"] == [{"run_id": run["bad"], "rejected": 1, "bad_ratio": 0.25}]
    kinds = {kind["kind"]: (kind["count"], kind["runs"]) for kind in told["attention"]}
    assert list(kinds) == list(GATES)
    assert {kind: found for kind, found in kinds.items() if found[0]} == {
        "incomplete": (1, [run["half"]]),
        "rejects": (1, [run["bad"]]),
    }
    assert {row["run_id"] for row in told["runs"]} == set(run.values())
    assert (told["report"], told["late"]) == (str(lake / "report.html"), [])

    again = valid(tracelake("run", archive, "--lake", lake, "--summary", "-").out)
    assert (again["exit_code"], again["errors"], again["verdicts"]["bad_lines"]) == (0, [], [])
    assert again["ingest"]["runs"]["unchanged"] == 3


def test_an_incident_whose_first_run_is_dropped_is_not_new(
    tracelake: Command, archive: Path, lake: Path, tmp_path: Path
) -> None:
    """Each night a job of one configuration ends in step 9 of 99."""
    seen = []
    for night in range(1, 5):
        lines = [
            f" [2026-03-0{night} 10:00:{n:02}] iteration {n}/ 99 | elapsed time per iteration (ms):"
            f" 812.3 | global batch size: 64 | lm loss: {night}.{n}E+00 |"
            for n in range(1, 10)
        ]
        head = "using world size: 8, data-parallel-size: 8"
        write(archive, {f"night{night}/train.log": "\n".join([head, *lines, ""])})
        if night == 4:
            first = tracelake("query", "SELECT min_by(run_id, run_date) FROM runs", "--lake", lake)
            dropped = tracelake("drop", first.out.split()[-1], "--lake", lake)
            assert dropped.code == 0, dropped.err
        tracelake("run", archive, "--lake", lake, "--summary", tmp_path / "s.json", "--quiet")
        (incident,) = account(tmp_path / "s.json")["incidents"]
        seen.append((incident["incident"], incident["new"], incident["slow_runs"]))
    ids = [name for name, *_ in seen]
    assert ids[0] == ids[1] == ids[2] != ids[3]
    assert [told[1:] for told in seen] == [(True, 1), (False, 2), (False, 3), (False, 3)]


def test_every_column_of_the_headline_is_documented() -> None:
    row = SCHEMA["properties"]["runs"]["items"]
    columns = {column.name for column in relation_columns("run_summary")}
    assert set(row["properties"]) == columns - {"not_computable"}


def test_objects_of_the_summary_have_no_more_and_no_less_than_is_documented() -> None:
    def objects(schema: Any) -> Iterator[dict[str, Any]]:
        if isinstance(schema, dict):
            if "properties" in schema:
                yield schema
            for inner in schema.values():
                yield from objects(inner)

    found = list(objects(SCHEMA))
    assert len(found) > 8
    for schema in found:
        assert schema["additionalProperties"] is False
        assert schema["required"] == list(schema["properties"])
        assert all(inner.get("description") or "const" in inner or schema is found[-1]
                   for inner in schema["properties"].values())  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (["--fail-on", "slowness"], 2, "no gate 'slowness'"),
        (["--memory", "1MB"], 2, "--memory is too small: 1 MB"),
        ([], 3, "nothing usable (no_format: notes)"),
    ],
)
def test_failures_are_told_as_well(
    tracelake: Command, archive: Path, lake: Path, tmp_path: Path,
    arguments: list[str], code: int, what: str,
) -> None:  # fmt: skip
    write(archive, {"notes": "text\n"})
    summary = tmp_path / "new" / "summary.json"
    result = tracelake("run", archive, "--lake", lake, "--summary", summary, *arguments)
    told = account(summary)
    assert (result.code, told["exit_code"]) == (code, code)
    assert told["errors"][0]["what"] == what
    assert f"error: {what}\n" in result.err
    assert told["ingest"] is None


def test_what_stands_in_the_way_of_a_lock_is_no_bug(
    tracelake: Command, archive: Path, lake: Path, tmp_path: Path
) -> None:
    write(archive, {"old.txt": plan(4)})
    run_ingest(archive, lake)
    (lake / "_lock" / "commit").unlink()
    (lake / "_lock" / "commit").mkdir()
    write(archive, {"new.txt": plan()})
    summary = tmp_path / "summary.json"
    assert tracelake("run", archive, "--lake", lake, "--summary", summary).code == 3
    (error,) = account(summary)["errors"]
    assert error["where"] == str(lake / "_lock" / "commit")
    assert error["next"].startswith("move what is there out of the way")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--keep", "3"], "--keep needs file names with a date"),
        (["--keep", "3", "--summary", "-"], "--keep needs file names with a date"),
        (["--report", "-"], "--report needs a file"),
        (["--metrics", "-"], "--metrics needs a file"),
        (["--report", "{day}.html"], "no placeholder {day}"),
        (["--summary", "{day}.json"], "no placeholder {day}"),
        (["--since", "yesterday"], "invalid --since 'yesterday'"),
        (["--wait", "long"], "invalid --wait 'long'"),
        (["--wait", "999999w"], "invalid --wait '999999w'"),
        (["--post", "no-such-program"], "--post: no program 'no-such-program'"),
        (["--post", __file__], f"cannot be executed\n  next:  chmod +x {__file__}"),
        (["--post", "'unclosed"], "No closing quotation"),
        (["--post", ""], "--post names no program"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_done(
    tracelake: Command, archive: Path, lake: Path, arguments: list[str], told: str
) -> None:
    job(archive, "today", TODAY)
    result = tracelake("run", archive, "--lake", lake, *arguments)
    assert (result.code, told in result.err) == (2, True), result.err
    assert not lake.exists()


def test_a_summary_that_cannot_be_written_is_an_error(
    tracelake: Command, archive: Path, lake: Path, tmp_path: Path
) -> None:
    job(archive, "today", TODAY, lacking=1)
    (tmp_path / "file").write_text("")
    where = tmp_path / "file" / "summary.json"
    arguments = ("run", archive, "--lake", lake, "--summary", where)
    gated = tracelake(*arguments, "--fail-on", "incomplete")
    assert gated.code == 5
    assert f"warning: {where}: cannot write" in gated.err
    result = tracelake(*arguments)
    assert result.code == 2
    assert f"where: {where}" in result.err


# --- the hook ----------------------------------------------------------------------------------


@pytest.fixture
def post(tmp_path: Path) -> str:
    """A command that keeps what it is told, says something, and ends as it is told to."""
    script = """
import json, os, pathlib, sys
told = json.load(sys.stdin)
said = {"exit": os.environ["TRACELAKE_EXIT_CODE"], "arguments": sys.argv[2:], "told": told}
pathlib.Path(sys.argv[1]).write_text(json.dumps(said))
print("posted")
sys.exit(int(os.environ.get("POST_EXIT", "0")))
"""
    (tmp_path / "post.py").write_text(script)
    return shlex.join([sys.executable, str(tmp_path / "post.py"), str(tmp_path / "posted")])


def test_the_command_of_post_is_told_how_it_ended(
    tracelake: Command, archive: Path, lake: Path, tmp_path: Path, post: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    summary = tmp_path / "summary.json"
    job(archive, "half", TODAY, lacking=1)
    arguments = ("run", archive, "--lake", lake, "--fail-on", "incomplete", "--summary", summary)
    failed = begin(*arguments, "--post", f"{post} 'two words' $HOME *")
    out, err = end(failed)
    said = json.loads((tmp_path / "posted").read_text())
    assert failed.returncode == 5
    assert said["exit"] == "5"
    assert said["arguments"] == ["two words", "$HOME", "*"]
    assert said["told"] == valid(json.dumps(account(summary)))
    assert "posted" in err
    assert "posted" not in out

    monkeypatch.setenv("POST_EXIT", "7")
    broken = tracelake(*arguments, "--post", post)
    assert broken.code == 5
    assert json.loads((tmp_path / "posted").read_text())["exit"] == "0"
    assert "error: the command of --post ended with 7\n" in broken.err
    told = account(summary)
    assert (told["exit_code"], told["errors"][0]["what"]) == (
        5,
        "the command of --post ended with 7",
    )


def test_a_hook_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(post_command, "SECONDS", 0.5)
    child = tmp_path / "child"
    called = post_command.PostCommand.parse(f"sh -c 'sleep 100 & echo $! > {child}; wait'")
    assert called.call("{}", 0) == "took longer than 0.5 s"
    pid = int(child.read_text())
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            break
        state = Path(f"/proc/{pid}/stat")
        if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("what the hook started lives on")


def test_a_hook_need_not_listen() -> None:
    assert post_command.PostCommand.parse("true").call("x" * 10_000_000, 0) is None
    assert post_command.PostCommand.parse("false").call("x" * 10_000_000, 0) == "ended with 1"


# --- one at a time, and what is cut short ---------------------------------------------------------


def test_a_second_run_waits_for_the_first(tracelake: Command, archive: Path, lake: Path) -> None:
    job(archive, "half", TODAY, lacking=1)
    arguments = ("run", archive, "--lake", lake, "--fail-on", "incomplete")
    with no_builds(lake):
        first = begin(*arguments)
        until(lambda: committed(lake, 1), first)
        hasty = tracelake(*arguments, "--wait", "0s")
        assert hasty.code == 3
        assert f"another run is working on this lake: pid {first.pid} on " in hasty.err
        assert "--wait 6h" in hasty.err
        second = begin(*arguments)
        assert second.stderr is not None
        said = second.stderr.readline()
        assert said.startswith("warning: waiting up to 1:00:00 for another run on this lake: pid ")
        assert f"pid {first.pid} on " in said
        assert (first.poll(), second.poll()) == (None, None)
    end(first)
    _, err = end(second)
    assert (first.returncode, second.returncode) == (5, 0)
    assert "1 run: 1 unchanged" in err
    assert (lake / "_run" / "lock").read_text() == ""


def test_a_build_goes_on_beside_a_run_that_waits(
    tracelake: Command, archive: Path, lake: Path
) -> None:
    job(archive, "today", TODAY)
    with no_builds(lake):
        waiting = begin("run", archive, "--lake", lake)
        until(lambda: committed(lake, 1), waiting)
        build = begin("build", "--lake", lake)
        job(archive, "more", TODAY)
        assert tracelake("ingest", archive, "--lake", lake).code == 0
    end(build)
    end(waiting)
    assert (waiting.returncode, build.returncode) == (0, 0)


def test_what_a_killed_job_brought_in_is_reported_and_judged_by_the_next(
    tracelake: Command, archive: Path, begun: Lake, tmp_path: Path
) -> None:
    lake, summary = begun.root, tmp_path / "summary.json"
    named = ("--report", tmp_path / "page.html", "--summary", summary)
    asked = ("--since", "24h", "--fail-on", "incomplete", "--wait", "0s")
    arguments = ("run", archive, "--lake", lake, *named, *asked)
    job(archive, "late", LONG_AGO, lacking=1, lines="what is this\n")
    with no_builds(lake):
        killed = begin(*arguments)
        until(lambda: committed(lake, 2), killed)
        killed.kill()
        end(killed)
    again = tracelake(*arguments)
    late = runs_of(lake)["late"]
    assert again.code == 3
    assert "1 run: 1 unchanged" in again.err
    assert "more bad lines" in again.err
    assert f"incomplete: 1 run\n    {late}" in again.err
    assert account(summary)["late"] == [late]
    assert late in (tmp_path / "page.html").read_text()
    assert tracelake(*arguments).code == 0


def test_a_verdict_that_was_not_delivered_is_given_again(
    tracelake: Command, archive: Path, lake: Path, tmp_path: Path
) -> None:
    job(archive, "half", TODAY, lacking=1)
    arguments = ("run", archive, "--lake", lake, "--fail-on", "incomplete")
    with begin(*arguments, "--post", f"sh -c 'touch {tmp_path}/told; sleep 20'") as killed:
        until((tmp_path / "told").exists, killed)
        killed.kill()
    assert tracelake(*arguments).code == 5
    assert tracelake(*arguments).code == 0


def test_a_run_whose_files_are_moved_or_renamed_is_judged_once(
    tracelake: Command, archive: Path, lake: Path
) -> None:
    gated = ("run", archive, "--lake", lake, "--fail-on", "incomplete")
    job(archive, "whole", TODAY)
    assert tracelake(*gated).code == 0
    job(archive, "half", TODAY, lacking=1)
    assert tracelake(*gated[:4]).code == 0  # it waits for its verdict
    renamed = (archive / "half").rename(archive / "other")
    (file,) = renamed.iterdir()
    file.rename(renamed / f"job_{file.name}")
    assert tracelake(*gated).code == 5
    renamed.rename(archive / "2026-11")
    moved = tracelake(*gated)
    assert (moved.code, "1 updated" in moved.err) == (0, True)


def test_a_run_that_another_version_reads_is_judged_once(
    tracelake: Command, archive: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a later one has read, an earlier one leaves."""
    gated = ("run", archive, "--lake", lake, "--fail-on", "incomplete")
    job(archive, "half", TODAY, lacking=1)
    assert tracelake(*gated).code == 5
    registry, told = cast("dict[str, Format]", formats()), []
    for version in (98, 99, 98):
        own = replace(registry["aicb_workload"], version=version)
        monkeypatch.setitem(registry, own.name, own)
        done = tracelake(*gated)
        told.append((done.code, "1 updated" in done.err))
    assert told == [(0, True), (0, True), (0, False)]


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_an_interrupt_is_told_and_made_up_for(
    tracelake: Command, archive: Path, lake: Path, tmp_path: Path, post: str,
    signum: signal.Signals, code: int,
) -> None:  # fmt: skip
    job(archive, "half", TODAY, lacking=1)
    summary = tmp_path / "summary.json"
    arguments = ("run", archive, "--lake", lake, "--fail-on", "incomplete", "--summary", summary)
    with no_builds(lake):
        process = begin(*arguments, "--post", post)
        until(lambda: committed(lake, 1), process)
        stop(process, signum)
    told = account(summary)
    assert (process.returncode, told["exit_code"]) == (code, code)
    assert told["errors"][0]["what"] == "interrupted before the end"
    assert told["verdicts"] is None
    assert json.loads((tmp_path / "posted").read_text())["exit"] == str(code)
    assert tracelake(*arguments).code == 5


def test_it_runs_with_the_environment_that_cron_gives(archive: Path, lake: Path) -> None:
    name = job(archive, "job-ü", TODAY)
    pages = lake.parent / "pages"
    arguments = (
        "run",
        archive,
        "--lake",
        lake,
        "--since",
        "24h",
        "--report",
        pages / "{date}.html",
    )
    done = begin(*arguments, "--summary", "-", "--quiet", "--post", "cat", env={}, cwd="/")
    out, err = end(done)
    assert done.returncode == 0, err
    assert valid(out) == {**valid(err), "ended": valid(out)["ended"]}
    assert len(list(pages.iterdir())) == 2
    assert runs_of(lake)[name]
