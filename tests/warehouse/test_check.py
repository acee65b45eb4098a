"""Every check of a lake can fail: break one thing, find it named."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.conftest import Command
from tests.lakes import (
    Template,
    differences,
    few_models,
    full_build_differences,
    ingest_and_build,
    run_ingest,
)
from tests.tiny_lakes import (
    OPTIONS,
    Rows,
    commit_run,
    commit_runs,
    drop_run,
    log_run,
    source_record,
)
from tests.traces import plan, write
from tracelake.base.errors import ContractError
from tracelake.lake.manifest import Change
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.models.compute import connect
from tracelake.models.sums import write_sums
from tracelake.warehouse.check import Finding, check_lake, checks, findings_table


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Template, Template]:
    """A lake before its first build, and after."""
    made = [Lake.create(tmp_path_factory.mktemp("check") / "lake") for _ in range(2)]
    for lake in made:
        commit_run(lake, "a", log_run(rejected=2))
        commit_run(lake, "t", traced(op(1, 0, 50), op(2, 50, 100)))
    build(made[1])
    return Template.of(made[0]), Template.of(made[1])


@pytest.fixture
def lake(templates: tuple[Template, Template]) -> Lake:
    return templates[0].again()


@pytest.fixture
def built(templates: tuple[Template, Template]) -> Lake:
    return templates[1].again()


def named(findings: list[Finding]) -> set[tuple[str, str]]:
    return {(finding.check, finding.severity) for finding in findings}


def test_a_good_lake_has_no_findings(built: Lake) -> None:
    assert check_lake(built) == []
    assert full_build_differences(built) == []


def test_every_check_is_a_select_with_a_severity() -> None:
    found = checks()
    assert {"lines_accounted", "windows_close", "rows_stored"} <= {check.name for check in found}
    assert all(check.doc and check.severity in {"error", "warning"} for check in found)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("-- Doc.\nSELECT 1 FROM ops", "severity ''"),
        ("-- Doc.\n-- @severity error\nSELECT 1 FROM _rank_steps", "unknown relation _rank_steps"),
        ("-- Doc.\n-- @severity error\nDELETE FROM ops", "not a plain SELECT"),
    ],
)
def test_a_bad_check_is_refused(tmp_path: Path, sql: str, message: str) -> None:
    (tmp_path / "bad.sql").write_text(sql)
    with pytest.raises(ContractError, match=message):
        checks(tmp_path)


def changed(table: str, **values: Any) -> Rows:
    rows = {name: [dict(row) for row in given] for name, given in log_run(rejected=2).items()}
    rows[table][0].update(values)
    return rows


def op(seq: int, start: int, end: int, **values: Any) -> dict[str, Any]:
    name = "forward_step" if seq == 1 else "backward_step"
    times = {"start_ns": start, "end_ns": end, "duration_ns": end - start}
    return {
        "source_id": 0,
        "line": seq,
        "rank": 0,
        "stage": 0,
        "step": 1,
        "seq": seq,
        "op": name,
        "category": "compute",
        **times,
        **values,
    }


def traced(*ops: dict[str, Any]) -> Rows:
    run = {"format": "rank_trace", "pp": 1, "world_size": 1, "micro_batches": 1, "simulated": False}
    source = {"source_id": 0, "path": "x", "lines": len(ops), "row_lines": len(ops), "rejected": 0}
    source |= {"context_lines": 0, "irrelevant": [], "rows": len(ops)}
    return {"runs": [run], "sources": [source], "ops": list(ops)}


BROKEN: dict[str, tuple[Rows, str, str]] = {
    "a line nobody counted": (changed("sources", lines=99), "lines_accounted", "error"),
    "a rejected line that was not kept": (
        changed("sources", rejected=3, lines=11),
        "rejects_kept",
        "error",
    ),
    "a row too few": (changed("sources", rows=9), "rows_stored", "error"),
    "a row of an unknown file": (changed("layer_times", source_id=7), "rows_stored", "error"),
    "a run without a row": (
        {table: rows for table, rows in log_run().items() if table != "runs"},
        "runs_known",
        "error",
    ),
    "an end before its start": (
        traced(op(1, 0, 50), op(2, 50, 100, duration_ns=-1)),
        "times_ordered",
        "error",
    ),
    "operations that overlap": (
        traced(op(1, 0, 60), op(2, 50, 100)),
        "operations_disjoint",
        "warning",
    ),
    "more ranks than there can be": (
        changed("runs", ranks_seen=5, ranks_expected=2),
        "ratios_in_range",
        "error",
    ),
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> list[Finding]:
    """What is found in a lake with all of them, each in a run of its name."""
    lake = Lake.create(tmp_path_factory.mktemp("broken") / "lake")
    commit_runs(lake, {run_id: rows for run_id, (rows, _, _) in BROKEN.items()})
    build(lake)
    return check_lake(lake)


@pytest.mark.parametrize("run_id", BROKEN)
def test_broken_rows_are_found(run_id: str, broken: list[Finding]) -> None:
    _, check, severity = BROKEN[run_id]
    assert [
        found.check
        for found in broken
        if found.severity == severity and f"run_id={run_id}," in found.message
    ] == [check]


@few_models("rank_bubbles")
def test_a_warning_about_the_input_needs_no_repair(tmp_path: Path, tracelake: Command) -> None:
    lake = Lake.create(tmp_path / "lake")
    commit_run(lake, "overlap", traced(op(1, 0, 60), op(2, 50, 100)))
    build(lake)
    done = tracelake("check", "--lake", lake.root, "--format", "csv")
    assert done.code == 0
    assert done.out.splitlines()[1].endswith('"none: the input is like this"')
    assert done.err.endswith("no errors, 1 warning\n")


def edit_warehouse(lake: Lake, name: str, sql: str) -> None:
    """Change rows of a model that is in parts, as if the build had given these."""
    lake.warehouse.chmod(0o644)
    with duckdb.connect(":memory:") as con:
        con.execute(f"ATTACH '{lake.warehouse}' AS warehouse")
        con.execute(f"CREATE TEMP TABLE rows AS FROM warehouse.{name}")
        con.execute(f"DROP VIEW warehouse.{name}")
        con.execute(f"CREATE TABLE warehouse.{name} AS FROM rows")
        con.execute(sql)
        write_sums(con)  # as if the build had written this
    lake.warehouse.chmod(0o444)


def test_figures_that_do_not_add_up_are_found(built: Lake) -> None:
    edit_warehouse(built, "rank_bubbles", "UPDATE warehouse.rank_bubbles SET gap_ns = gap_ns + 1")
    assert named(check_lake(built)) == {("windows_close", "error")}
    assert full_build_differences(built) == ["rank_bubbles"]


def test_how_large_tables_are_read_does_not_show(
    tmp_path: Path, sample: Path, sample_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns of large batches are ENUM while models are computed."""
    monkeypatch.setattr("tracelake.models.batches._SMALL_PART_BYTES", 0)
    monkeypatch.setattr("tracelake.models.batches._CODED_BYTES", -1)
    lake = ingest_and_build(sample, tmp_path / "lake")
    with connect() as con:
        assert differences(con, lake.warehouse, sample_lake.warehouse) == []
    assert named(check_lake(lake)) == set()


def test_reasons_come_from_a_closed_list(built: Lake) -> None:
    changed = "UPDATE warehouse.step_stats SET reason = 'because' WHERE run_id = 'a' AND step = 1"
    edit_warehouse(built, "step_stats", changed)
    (finding,) = check_lake(built)
    assert (finding.check, finding.rows) == ("reasons_known", 1)
    assert "'because'" in finding.message


def lose(part: Path) -> None:
    part.unlink()


def damage(part: Path) -> None:
    part.write_bytes(part.read_bytes()[:-1] + b"x")


@pytest.mark.parametrize(
    ("harm", "check"), [(lose, "parts_exist"), (damage, "parts_intact")], ids=["lost", "damaged"]
)
def test_harmed_parts_are_found(built: Lake, harm: Callable[[Path], None], check: str) -> None:
    part = built.snapshot().parts_by_table()["layer_times"][0]
    harm(built.root / part)
    found = {finding.check: finding for finding in check_lake(built)}
    assert part in found[check].message
    assert found[check].repair.endswith("without it: tracelake drop --forget a")
    with few_models():
        assert [(run_id, lost) for run_id, lost, _ in build(built, full=True).lost] == [("a", part)]


def test_a_quick_check_reads_no_part_whole(built: Lake) -> None:
    part = built.root / built.snapshot().parts_by_table()["rejects"][0]
    data = bytearray(part.read_bytes())
    data[6] ^= 1  # in the first page, not in the footer
    part.write_bytes(data)
    assert ("parts_intact", "error") in named(check_lake(built))
    found = check_lake(built, quick=True)
    assert found  # what cannot be read at all is found by those that read it
    assert "parts_intact" not in {finding.check for finding in found}
    assert {finding.repair for finding in found} == {"tracelake check, without --quick"}
    part.unlink()
    assert ("parts_exist", "error") in named(check_lake(built, quick=True))


@few_models()
def test_what_a_check_says_mends_harmed_parts(tmp_path: Path, tracelake: Command) -> None:
    archive, path = write(tmp_path / "archive", {"one.txt": plan()}), tmp_path / "lake"
    lake = ingest_and_build(archive, path)
    lose(path / lake.snapshot().parts_by_table()["workload_passes"][0])
    result = tracelake("check", "--lake", path, "--format", "ndjson")
    assert result.code == 5
    (repair,) = {json.loads(line)["repair"] for line in result.out.splitlines()}
    words = repair.partition(": ")[2].split()[1:]
    assert tracelake(*words, "--lake", path).code == 0
    run_ingest(archive, path)
    build(lake)
    assert check_lake(lake) == []


def test_parts_that_no_manifest_names_are_found(built: Lake) -> None:
    stray = built.root / "ops" / "run_id=gone" / "part-0.parquet"
    stray.parent.mkdir(parents=True)
    stray.touch()
    (finding,) = check_lake(built)
    assert (finding.check, finding.severity, finding.rows) == ("parts_named", "warning", 1)
    assert finding.repair == "tracelake gc"


def test_what_the_next_build_removes_is_no_stray(built: Lake) -> None:
    drop_run(built, "a")
    commit_run(built, "b", log_run())
    assert named(check_lake(built)) == {("warehouse_current", "error")}
    build(built)
    assert check_lake(built) == []


def test_two_rows_of_one_grain_are_found(built: Lake) -> None:
    twice = "INSERT INTO warehouse.step_stats FROM warehouse.step_stats LIMIT 1"
    edit_warehouse(built, "step_stats", twice)
    assert ("grains_unique", "error") in named(check_lake(built))


def test_lines_that_a_manifest_does_not_know_of_are_found(built: Lake) -> None:
    entry = replace(
        built.snapshot().runs["a"],
        generation="x",
        sources=(source_record("a", lines=7),),
        options=OPTIONS,
    )
    built.commit_all([Change("a", [entry], {})])
    build(built)
    assert named(check_lake(built)) == {("lines_recorded", "error")}


def test_parts_of_another_schema_are_found(built: Lake) -> None:
    (rejects,) = built.snapshot().parts_by_table()["rejects"]
    entry = built.snapshot().runs["a"]
    (layers,) = entry.parts["layer_times"]
    other = f"{layers.rpartition('/')[0]}/{rejects.rpartition('/')[2]}"
    os.link(built.root / rejects, built.root / other)
    parts = {**entry.parts, "layer_times": (other,)}
    changed = type(entry)("a", "a", "other", parts)
    built.commit_all([Change("a", [changed], {}, runs_of={other: ("a",)})])
    assert ("parts_schema", "error") in named(check_lake(built))


def test_a_lake_without_a_warehouse_is_told_to_build(lake: Lake) -> None:
    (finding,) = check_lake(lake)
    assert (finding.check, finding.severity) == ("warehouse", "error")
    assert finding.repair == "tracelake build"


def test_a_stale_warehouse_is_found(built: Lake) -> None:
    commit_run(built, "b", log_run())
    (finding,) = check_lake(built)
    assert (finding.check, finding.severity, finding.rows) == ("warehouse_current", "error", 1)
    assert "(b)" in finding.message


def test_a_damaged_warehouse_is_found(lake: Lake) -> None:
    lake.warehouse.write_bytes(b"x" * 10_000)
    assert named(check_lake(lake)) == {("warehouse", "error")}


def test_a_moved_lake_is_noticed_and_still_checked(built: Lake, tmp_path: Path) -> None:
    shutil.move(built.root, tmp_path / "elsewhere")
    moved = Lake.open(tmp_path / "elsewhere")
    assert named(check_lake(moved)) == {("views_found", "warning")}


def test_findings_make_a_table() -> None:
    table = findings_table([Finding("a", "error", "wrong", 3, "mend it")])
    row = {"severity": "error", "check": "a", "rows": 3, "message": "wrong", "repair": "mend it"}
    assert table.to_pylist() == [row]
    assert findings_table([]).num_rows == 0
