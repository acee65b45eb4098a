"""The Python package does what the command does: `tracelake.open` and `tracelake.run`."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tracelake
from tests.conftest import ROOT, SAMPLE, Command
from tests.lakes import ingest_and_build
from tests.traces import plan, trace, trace_name, write
from tracelake import run
from tracelake.cli import jobs
from tracelake.lake.store import Lake

SLOW = "wd8_tp2_pp2_numl4_bs1_gpt2bpetokenizer-173a3a41"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("python") / "lake"
    summary = tracelake.run(SAMPLE, lake, fail_on="straggler")
    assert summary["exit_code"] == 5
    assert summary["verdicts"]["failed"][0]["runs"][0]["run_id"] == SLOW
    return lake


@pytest.fixture
def lake(path: Path) -> Iterator[tracelake.OpenLake]:
    with tracelake.open(path) as opened:
        yield opened


def test_a_query_gives_frames_of_every_library(lake: tracelake.OpenLake) -> None:
    answer = lake.sql("SELECT rank, verdict FROM straggler_ranks WHERE run_id = $r", {"R": SLOW})
    rows = answer.fetchall()
    assert (2, "straggler") in rows
    assert len(answer) == len(rows) == 8
    assert answer.pl().rows() == rows
    assert answer.arrow().read_all().schema.names == ["rank", "verdict"]
    ranks = answer.df()["rank"]
    assert ranks.tolist() == [rank for rank, _ in rows]
    one = lake.sql(
        "FROM straggler_ranks WHERE run_id = $r AND rank = $k", {"r": SLOW, "k": ranks[0]}
    )
    assert len(one) == 1


def test_pandas_gets_nullable_integers(lake: tracelake.OpenLake) -> None:
    frame = lake.sql("SELECT run_id, steps, slowest_stage FROM run_summary").df()
    assert str(frame["slowest_stage"].dtype) == "Int32"
    assert frame["slowest_stage"].isna().sum() == 3
    assert str(frame["steps"].dtype) == "Int64"


def test_runs_are_those_of_the_command(
    lake: tracelake.OpenLake, path: Path, tracelake: Command
) -> None:
    listed = json.loads(tracelake("runs", "--lake", path, "--format", "json").out)
    answer = lake.runs()
    assert answer.columns == list(listed[0])
    assert [row[0] for row in answer.fetchall()] == [run["run_id"] for run in listed]


def test_findings_begin_with_the_most_severe(lake: tracelake.OpenLake) -> None:
    kinds = lake.findings().select("severity, kind, run_id").fetchall()
    assert kinds[0] == ("critical", "straggler", SLOW)
    assert len(kinds) == len(lake.sql("FROM findings"))


def test_arguments_of_other_types_are_refused(
    lake: tracelake.OpenLake, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    unset: Any = None
    with pytest.raises(TypeError, match="NoneType"):
        tracelake.run(SAMPLE, unset)
    assert list(tmp_path.iterdir()) == []
    values: Any = [1]
    size: Any = 500
    for said, call in (
        ("are texts", lambda: lake.sql(unset)),
        ("are texts", lambda: lake.sql("SELECT $a", dict.fromkeys(values))),
        ("values by name", lambda: lake.sql("SELECT ?", values)),
        ("no run", lambda: lake.ask("slow_ranks", run="qqqqqqqq")),
        ("top=-1: not a UBIGINT", lambda: lake.ask("slow_ranks", top=-1)),
        ("memory", lambda: tracelake.open(path, memory=size)),
    ):
        with pytest.raises(tracelake.TracelakeError, match=said):
            call()


def test_a_table_of_a_run_reads_that_run_only(path: Path, tmp_path: Path) -> None:
    """Of another run the files are gone, which nobody notices."""
    copy = tmp_path / "lake"
    shutil.copytree(path, copy)
    before = Lake.open(copy).snapshot().all_parts
    ingest_and_build(write(tmp_path / "in", {trace_name(0): trace(0)}), copy)
    for part in Lake.open(copy).snapshot().all_parts - before:
        if part.startswith("ops/"):
            (copy / part).unlink()
    with tracelake.open(copy) as lake:
        answer = lake.table("ops", run="173a").aggregate("count(*), count(DISTINCT run_id)")
        assert answer.fetchall() == [(448, 1)]
        assert len(lake.table("rank_bubbles", run=SLOW)) == 32
        with pytest.raises(tracelake.TracelakeError, match="incidents has no rows per run"):
            lake.table("incidents", run=SLOW)


def test_a_saved_question_about_a_run(lake: tracelake.OpenLake) -> None:
    (row,) = lake.ask("slow_ranks", run=SLOW, top=1).fetchall()
    assert row[:2] == (SLOW, 2)
    with pytest.raises(tracelake.TracelakeError, match="no parameter 'topp'"):
        lake.ask("slow_ranks", topp=1)


def test_a_timeline_is_a_file(lake: tracelake.OpenLake, tmp_path: Path) -> None:
    written = lake.timeline("173a", tmp_path / "t.json", steps="2", ranks=["0-1"])
    events = json.loads(written.read_text())["traceEvents"]
    shown = {e["args"]["name"].split(" (")[0] for e in events if e["name"] == "process_name"}
    assert {name for name in shown if name.startswith("rank")} == {
        "rank 0 · stage 0",
        "rank 1 · stage 0",
    }


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("COPY runs TO 'x.csv'", "COPY is not allowed"),
        ("FROM read_csv('/etc/passwd')", "not allowed in queries"),
        ("FROM read_parquet('/etc/passwd')", "read_parquet|disabled|Permission"),
        ("FROM runs; FROM runs", "several queries"),
        ("FROM nowhere", "nowhere does not exist"),
    ],
)
def test_a_query_is_confined(lake: tracelake.OpenLake, query: str, said: str) -> None:
    with pytest.raises(tracelake.TracelakeError, match=said):
        lake.sql(query).fetchall()


def test_the_lake_is_read_as_it_is_now(tmp_path: Path) -> None:
    """Also after a job has replaced the warehouse and its files."""
    archive, lake = tmp_path / "in", tmp_path / "lake"
    write(archive, {"a.txt": plan(3)})
    ingest_and_build(archive, lake)
    with tracelake.open(lake) as opened:
        before = opened.runs()
        assert len(before) == 1
        write(archive, {"b.txt": plan(4)})
        ingest_and_build(archive, lake)
        assert len(opened.runs()) == 2
        assert len(opened.table("workload_passes")) == len(opened.sql("FROM workload_passes"))


def test_work_that_cannot_be_done_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(tracelake.TracelakeError, match="no such file"):
        tracelake.run(tmp_path / "nowhere", tmp_path / "lake")
    with pytest.raises(tracelake.TracelakeError, match="not a lake"):
        tracelake.open(tmp_path)
    assert not (tmp_path / "lake").exists()
    (Lake.create(tmp_path / "lake").root / "_lock" / "commit").mkdir()
    with pytest.raises(tracelake.TracelakeError, match="move what is there out of the way"):
        tracelake.run(SAMPLE, tmp_path / "lake")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"engine": "foo"}, "engine='foo' is not one of local, dask"),
        ({"fail_on": ["straggler"]}, r"fail_on=\['straggler'\] is not a text \(Exit with 5"),
        ({"topology": {"tp": 1}}, "topology={'tp': 1} is not a text"),
        ({"max_bad_ratio": 2}, "max_bad_ratio=2 is not a number of at least 0 and at most 1"),
        ({"keep": 0}, "keep=0 is not a whole number of at least 1"),
        ({"keep": 1.5}, "keep=1.5 is not a whole number"),
        ({"gpu_hour_price": -1}, "gpu_hour_price=-1 is not a number of at least 0"),
        ({"run_gap": -5}, "run_gap=-5 is not a number of at least 0"),
        ({"jobs": 0}, "jobs=0 is not a whole number of at least 1"),
        ({"check": "yes"}, "check='yes' is not True or False"),
        ({"hosts": 3}, "hosts=3 is not a path"),
        ({"fail_on": None}, "fail_on=None is not a text"),
    ],
)
def test_values_that_the_command_refuses_are_errors(
    options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(tracelake.TracelakeError, match=said):
        tracelake.run(SAMPLE, tmp_path / "lake", **options)
    assert not (tmp_path / "lake").exists()


def test_steps_and_ranks_are_numbers_or_texts(lake: tracelake.OpenLake, tmp_path: Path) -> None:
    texts = lake.timeline("173a", tmp_path / "a.json", steps="2", ranks=["1"])
    numbers = lake.timeline("173a", tmp_path / "b.json", steps=2, ranks=[1])
    assert numbers.read_bytes() == texts.read_bytes()
    texts = lake.timeline("173a", tmp_path / "a.json", steps=2, ranks="0-1")
    numbers = lake.timeline("173a", tmp_path / "b.json", steps=2, ranks=[0, 1])
    assert numbers.read_bytes() == texts.read_bytes()
    with pytest.raises(tracelake.TracelakeError, match="is not a number or a range"):
        lake.timeline("173a", tmp_path / "c.json", steps=[2])  # type: ignore[arg-type]


def test_keywords_are_named_like_the_options(tracelake: Command) -> None:
    described = tracelake("run", "--help").out
    for name in inspect.signature(run).parameters.keys() - {"inputs", "topology"}:
        assert f"--{name.replace('_', '-')} " in described, name


def test_run_takes_the_options_of_the_command() -> None:
    """All but those that make no sense in a program."""
    ours = dict(inspect.signature(tracelake.run).parameters)
    theirs = dict(inspect.signature(jobs.run).parameters)
    for name in ("summary", "post"):
        del theirs[name]
    theirs["topology"] = theirs.pop("given")
    assert ours.keys() == theirs.keys()
    for name in ours.keys() - {"lake", "quiet"}:
        assert ours[name].default == theirs[name].default, name
    assert "typer" not in str(inspect.signature(tracelake.run))


def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(ROOT / "data")
    page = (ROOT / "docs" / "python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 3
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("0 ")


def test_the_package_itself_is_light() -> None:
    """What it offers is imported when it is used."""
    code = (
        "import sys, tracelake; dir(tracelake); assert 'duckdb' not in sys.modules;"
        " tracelake.open; assert 'typer' not in sys.modules; print(tracelake.__all__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['OpenLake', 'TracelakeError', '__version__', 'open', 'run']"
