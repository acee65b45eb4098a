"""Models as data: headers, what a SELECT may read, the contract of its rows, and the build."""

from __future__ import annotations

import errno
import hashlib
import importlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.lakes import Template, few_models, full_build_differences
from tests.tiny_lakes import commit_run, drop_run, log_run
from tracelake.base.errors import ContractError, LakeError, TracelakeError, UsageError
from tracelake.base.resources import resource_dir
from tracelake.formats.rank_trace.layout import OPS
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.models.catalog import Catalog, catalog, load
from tracelake.models.compute import connect
from tracelake.models.describe import describe
from tracelake.models.graph import frugal_order
from tracelake.models.header import read_model
from tracelake.models.validate import Proof
from tracelake.schema.tables import SCHEMA_VERSION, columns, reasons, tables
from tracelake.warehouse.check import check_lake
from tracelake.warehouse.warehouse import open_warehouse

GOOD = """-- Steps of a run.
-- @grain run_id
-- @column steps BIGINT steps | Steps seen.
SELECT run_id, count(*) AS steps FROM train_steps GROUP BY run_id
"""


def folder_of(root: Path, **files: str) -> Path:
    """A folder of models; `a__b` is topic a, model b."""
    for name, sql in files.items():
        topic, _, stem = name.partition("__")
        path = root / (f"{topic}/{stem}.sql" if stem else f"{topic}.sql")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(sql)
    return root


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """A lake of three runs, which one thread has computed together."""
    lake = Lake.create(tmp_path_factory.mktemp("models") / "lake")
    for number, run_id in enumerate("abc"):
        commit_run(lake, run_id, log_run(steps=3 + 2 * number, rejected=number))
    build(lake, threads=1)
    return Template.of(lake)


@pytest.fixture
def built(template: Template) -> Lake:
    return template.again()


@contextmanager
def opened(lake: Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as con:
        con.execute(f"ATTACH '{lake.warehouse}' AS w (READ_ONLY)")
        con.execute("USE w")
        yield con


def warehouse_rows(lake: Lake, sql: str) -> list[tuple[object, ...]]:
    with opened(lake) as con:
        return con.execute(sql).fetchall()


def all_rows(lake: Lake) -> dict[str, list[tuple[object, ...]]]:
    """Rows of every relation that the warehouse holds or names."""
    names = [*tables(), *catalog().stored]
    with opened(lake) as con:
        return {name: con.execute(f'FROM "{name}" ORDER BY ALL').fetchall() for name in names}


# --- the shipped models ------------------------------------------------------------------


def test_shipped_models_keep_their_contract() -> None:
    assert {"run_summary", "coverage", "step_stats"} <= set(catalog().public)


def test_every_model_of_the_design_is_there() -> None:
    wanted = {
        "rank_bubbles",
        "op_shares",
        "step_changes",
        "stage_summary",
        "rank_summary",
        "stage_bubbles",
        "collective_calls",
        "collective_bandwidth",
        "straggler_steps",
        "straggler_ranks",
        "layer_steps",
        "layer_stats",
        "stage_balance",
        "step_stats",
        "workload_comm",
        "coverage",
        "run_summary",
        "run_history",
        "straggler_history",
    }
    assert wanted <= set(catalog().public)


def test_models_do_not_know_the_names_of_a_trainer() -> None:
    names = {*(op.decode() for op in OPS), "_bwd_async"}
    found = {
        path.name: sorted(name for name in names if f"{name}'" in text)
        for path in ROOT.glob("sql/*/*.sql")
        if (text := re.sub(r"--.*", "", path.read_text(encoding="utf-8")))
    }
    # The published analysis defines what its own operations come after.
    for name in ("_whatif_edges.sql", "_whatif_scope.sql", "_whatif_template.sql"):
        del found[name]
    assert {name: told for name, told in found.items() if told} == {}


def test_headline_columns_come_first_and_in_order() -> None:
    shown = {name: [c.name for c in found] for name, found in catalog().columns.items()}
    for name, wanted in {
        "layer_steps": "run_id step layer layer_index stages total_ms step_share_ratio"
        " deviation_ratio warmup",
        "layer_stats": "run_id layer layer_index steps mean_ms p50_ms p95_ms max_ms cv_ratio"
        " worst_step",
        "step_stats": "run_id step step_ms loss busiest_stage imbalance_ratio warmup outlier",
        "workload_comm": "run_id pass collective group_kind calls bytes compute_ms needed_gbps"
        " reason",
        "straggler_ranks": "run_id rank stage verdict slowdown slow_steps steps time_lost_ms"
        " relative_score reason",
        "straggler_history": "config subject host device rank verdict slow_runs runs slowdown"
        " time_lost_ms gpu_hours_lost last_slow_run",
        "run_summary": "run_id format config run_date steps step_p50_ms bubble_ratio slowest_stage"
        " stragglers comm_ratio busbw_gbps coverage_ratio rejects",
        "run_history": "run_id config run_date verdict regressions reason baseline_runs step_p50_ms"
        " step_p50_ms_baseline step_p50_ms_change_ratio step_p50_ms_allowed_ratio bubble_ratio"
        " bubble_ratio_baseline bubble_ratio_change_ratio bubble_ratio_allowed_ratio busbw_gbps",
    }.items():
        assert shown[name][: len(wanted.split())] == wanted.split()


def test_one_name_has_one_type_in_all_models() -> None:
    types: dict[str, set[str]] = {}
    for name in catalog().public:
        for column in catalog().columns[name]:
            types.setdefault(column.name, set()).add(column.type)
    # A clock's rate in clock_offsets, a verdict in run_history.
    del types["drift"]
    assert {name: kinds for name, kinds in types.items() if len(kinds) > 1} == {}


def test_the_reasons_of_the_sql_are_those_that_are_documented() -> None:
    written: set[str] = set()
    for model in catalog().models.values():
        for block in re.findall(
            r"(?:CASE(?:(?!\bCASE\b).)*?END\s*(?:\)\s*)?AS\s+\w*(?:reason|missing)\b)",
            model.sql,
            re.DOTALL,
        ):
            written |= set(re.findall(r"(?:THEN|ELSE)\s+'([a-z_]+)'", block))
    assert written == reasons().keys()


def test_a_call_can_have_every_reason_that_its_sql_gives() -> None:
    with connect() as con:
        con.execute(catalog().macros)
        ((known,),) = con.execute("SELECT enum_range(NULL::call_reason)").fetchall()
    written = re.findall(r"'([a-z_]+)'", catalog().models["collective_calls"].sql)
    assert set(known) == reasons().keys() & set(written)


def test_files_stay_readable() -> None:
    for path in resource_dir("sql").rglob("*.sql"):
        assert len(path.read_text().splitlines()) <= 120, path


def test_no_window_counts_with_a_filter() -> None:
    """DuckDB 2.0 takes a time for it that grows with the square of the partition.

    240,000 steps took 11 s; `count(CASE WHEN ... THEN 1 END) OVER` takes 20 ms.
    """
    slow = re.compile(r"\bcount\([^()]*\)\s+FILTER\s+\((?:[^()]|\([^()]*\))*\)\s+OVER\b")
    for folder in (ROOT / "sql", ROOT / "pipeline"):
        for path in (p for p in folder.rglob("*") if p.suffix in (".sql", ".py")):
            assert not slow.search(path.read_text(encoding="utf-8")), path


# --- headers and graph ---------------------------------------------------------------------


def test_a_good_folder_loads_in_order(tmp_path: Path) -> None:
    second = GOOD.replace("count(*) AS steps FROM train_steps", "max(steps) AS steps FROM steps")
    loaded = load(folder_of(tmp_path, a__after=second, b__steps=GOOD))
    assert list(loaded.models) == ["steps", "after"]
    assert [m.name for m in loaded.upstream(["after"])] == ["steps", "after"]
    assert loaded.inputs["after"] == {"steps"}
    steps = loaded.columns["steps"][1]
    assert (steps.name, steps.type, steps.unit) == ("steps", "BIGINT", "steps")
    assert loaded.columns["steps"][0] == columns()["run_id"]


BAD = {
    "no doc": (GOOD.replace("-- Steps of a run.\n", ""), "first line is not a sentence", 1),
    "no grain": (GOOD.replace("-- @grain run_id\n", ""), "no grain", 1),
    "unknown tag": (GOOD.replace("@grain", "@grian", 1), "unknown tag @grian", 2),
    "tag twice": (GOOD.replace("-- @column", "-- @grain run_id\n-- @column"), "given twice", 3),
    "not a column": (GOOD.replace(" | ", " : "), "not a column", 3),
    "known column, other type": (
        GOOD.replace("steps BIGINT", "rank BIGINT"),
        "column rank is INTEGER in schemas/columns.toml",
        3,
    ),
    "undocumented column": (
        GOOD.replace("AS steps", "AS number"),
        "column number is not documented",
        None,
    ),
    "wrong type": (GOOD.replace("count(*)", "sum(step)"), "column steps is HUGEINT", None),
    "declared, not selected": (
        GOOD.replace("count(*) AS steps", "1::INTEGER AS rank"),
        "the SELECT does not give steps",
        None,
    ),
    "scope": (GOOD.replace("-- @column", "-- @scope all\n-- @column"), "scope 'all'", 3),
    "per run without run_id": (GOOD.replace("@grain run_id", "@grain steps"), "has run_id", 2),
    "unknown relation": (GOOD.replace("FROM train_steps", "FROM train_step"), "train_step", 4),
    "a file": (GOOD.replace("FROM train_steps", "FROM 'x.parquet'"), "x.parquet", 4),
    "table function": (
        GOOD.replace("FROM train_steps", "FROM read_csv('x')"),
        "table function read_csv",
        4,
    ),
    "CTE named as a relation": (
        GOOD.replace("SELECT run_id", "WITH ops AS (SELECT 1)\nSELECT run_id"),
        "CTE ops has the name of a relation",
        4,
    ),
    "pivot": (GOOD.replace("FROM train_steps", "FROM (PIVOT ops ON op)"), "not a plain SELECT", 0),
    "not a SELECT": (GOOD.replace("SELECT", "CREATE TABLE x AS SELECT"), "not a plain SELECT", 0),
    "two statements": (GOOD + ";\nSELECT 1", "2 statements", None),
    "not SQL": (GOOD.replace("GROUP BY", "GROUP BUY"), "syntax error", 4),
    "now": (GOOD.replace("count(*)", "epoch_ns(now())"), "now() differs from call to call", 4),
    "random": (GOOD.replace("count(*)", "max(random())"), "random() differs", 4),
    "describe": (GOOD.replace("FROM train_steps", "FROM (DESCRIBE ops)"), "DESCRIBE", None),
    "SQL that cannot be bound": (GOOD.replace("count(*)", "count(nope)"), "nope", None),
}


@pytest.mark.parametrize(("sql", "message", "line"), BAD.values(), ids=BAD.keys())
def test_a_breach_names_file_and_line(
    tmp_path: Path, sql: str, message: str, line: int | None
) -> None:
    with pytest.raises(ContractError, match=re.escape(message)) as caught:
        load(folder_of(tmp_path, a__steps=sql))
    assert caught.value.path == str(tmp_path / "a/steps.sql")
    assert caught.value.exit_code == 4
    if line:
        assert caught.value.line == line


def test_a_relation_is_read_before_the_next_wide_one_is_made() -> None:
    inputs = {"a": {"ops"}, "b": {"ops"}, "of_a": {"a", "b"}, "of_b": {"b", "ops"}, "c": {"a"}}
    wide = {"a": "123", "b": "12", "of_a": "1", "of_b": "1", "c": "1"}
    order = frugal_order([*inputs], {name: frozenset(i) for name, i in inputs.items()}, wide)
    assert order == ["b", "of_b", "a", "of_a", "c"]


def test_models_may_not_read_each_other_in_a_circle(tmp_path: Path) -> None:
    one = GOOD.replace("FROM train_steps", "FROM two")
    two = GOOD.replace("FROM train_steps", "FROM one")
    with pytest.raises(ContractError, match=r"in a circle: (one <- two <- one|two <- one <- two)"):
        load(folder_of(tmp_path, a__one=one, a__two=two))


@pytest.mark.parametrize("name", ["ops", "steps"])
def test_a_name_is_taken_once(tmp_path: Path, name: str) -> None:
    with pytest.raises(ContractError, match=f"the name {name} is taken"):
        load(folder_of(tmp_path, a__steps=GOOD, **{f"b__{name}": GOOD}))


def test_a_model_per_run_may_not_read_a_fleet_model(tmp_path: Path) -> None:
    fleet = GOOD.replace("-- @column", "-- @scope fleet\n-- @column")
    below = GOOD.replace("FROM train_steps", "FROM fleet")
    with pytest.raises(ContractError, match="reads the fleet model fleet"):
        load(folder_of(tmp_path, a__fleet=fleet, a__below=below))


def test_macros_are_scalar_and_read_nothing(tmp_path: Path) -> None:
    use = GOOD.replace("count(*)", "twice(count(*))")
    good = load(folder_of(tmp_path, macros="CREATE TEMP MACRO twice(x) AS 2 * x;", a__steps=use))
    assert list(good.models) == ["steps"]
    for macro, message in {
        "CREATE TEMP MACRO twice(x) AS TABLE SELECT x;": "table macro",
        "CREATE TEMP MACRO twice(x) AS (SELECT count(*) FROM ops) + x;": "name ops does not exist",
        "CREATE TEMP MACRO twice(x) AS": "syntax error",
    }.items():
        with pytest.raises(ContractError, match=message):
            load(folder_of(tmp_path, macros=macro, a__steps=use))


def test_the_hash_follows_models_and_macros(tmp_path: Path) -> None:
    def loaded(**files: str) -> str:
        return load(folder_of(tmp_path, **files)).hash

    first = loaded(a__steps=GOOD)
    assert loaded(a__steps=GOOD + "-- a comment\n") != first
    assert loaded(a__steps=GOOD) == first
    assert loaded(a__steps=GOOD, macros="CREATE TEMP MACRO one() AS 1;") != first


# --- proofs ------------------------------------------------------------------------------


def proved(directory: Path, **files: str) -> Proof:
    """Proof of a folder of models, kept from an earlier one if there was one."""
    folder_of(directory, **files)
    models = {path.stem: read_model(path) for path in sorted(directory.glob("*/*.sql"))}
    return Proof.kept(models, files.get("macros", ""), directory / "macros.sql")


def test_a_proof_is_kept_and_the_same_as_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    after = GOOD.replace("count(*) AS steps FROM train_steps", "max(steps) AS steps FROM steps")
    first = proved(tmp_path / "sql", a__after=after, b__steps=GOOD)
    with monkeypatch.context() as forbidden:
        forbidden.delattr(Proof, "of")
        again = proved(tmp_path / "sql")
    assert again == first
    assert list(again.inputs) == ["steps", "after"]


@pytest.mark.parametrize(
    "changed",
    [
        {"a__steps": GOOD.replace("count(*)", "sum(step)")},
        {"a__other": GOOD.replace("FROM train_steps", "FROM nowhere")},
        {"macros": "CREATE TEMP MACRO twice(x) AS TABLE SELECT x;"},
    ],
)
def test_what_changed_since_the_proof_is_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str]
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    proved(tmp_path / "sql", a__steps=GOOD)
    with pytest.raises(ContractError):
        proved(tmp_path / "sql", **changed)


def test_another_duckdb_proves_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    proved(tmp_path / "sql", a__steps=GOOD)
    monkeypatch.setattr(duckdb, "__version__", "0")
    monkeypatch.delattr(Proof, "of")
    with pytest.raises(AttributeError):
        proved(tmp_path / "sql")


def test_without_a_place_to_keep_it_a_proof_costs_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    assert proved(tmp_path / "sql", a__steps=GOOD) == proved(tmp_path / "sql")


# --- describe ----------------------------------------------------------------------------


def test_describe_lists_relations_and_columns() -> None:
    listed = describe().to_pylist()
    names = [row["name"] for row in listed]
    assert names[: len(tables())] == list(tables())
    assert "run_summary" in names
    assert not any(name.startswith("_") for name in names)
    by_name = {row["column"]: row for row in describe("step_stats").to_pylist()}
    assert by_name["step_ms"]["unit"] == "ms"
    assert by_name["step"]["doc"] == columns()["step"].doc
    with pytest.raises(UsageError, match="did you mean step_stats"):
        describe("step_stat")


# --- build --------------------------------------------------------------------------------


def test_an_empty_lake_has_every_relation(lake: Lake) -> None:
    assert not build(lake).unchanged
    found = all_rows(lake)
    assert found.keys() >= {*tables(), *catalog().public}
    assert not any(found.values())


@few_models("run_summary")
def test_run_ids_stay_text(lake: Lake) -> None:
    commit_run(lake, "007", log_run())
    build(lake)
    assert warehouse_rows(lake, "SELECT run_id, pp FROM runs") == [("007", 2)]
    assert warehouse_rows(lake, "SELECT run_id, steps FROM run_summary") == [("007", 3)]


def test_inputs_without_a_run_have_no_run_id(lake: Lake) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with lake.staging("test") as folder:
        rows = [{"path": "x.bin", "member": None, "reason": "no_format"}]
        table = pa.Table.from_pylist(rows, schema=tables()["skipped"].storage_schema)
        pq.write_table(table, folder / "part")
        content = hashlib.sha256((folder / "part").read_bytes()).hexdigest()[:16]
        name = f"skipped/run_id=__HIVE_DEFAULT_PARTITION__/part-{content}.parquet"
        lake.commit_skipped(rows, {name: folder / "part"})
    build(lake)
    assert warehouse_rows(lake, "SELECT run_id, path FROM skipped") == [(None, "x.bin")]


def test_what_is_current_is_left_alone(built: Lake) -> None:
    before = built.warehouse.stat()
    again = build(built)
    assert (again.unchanged, again.built) == (True, ())
    assert built.warehouse.stat().st_ino == before.st_ino
    assert again.summary() == "warehouse: already current"
    assert build(built, full=True).built == ("a", "b", "c")


def test_only_changed_runs_are_computed(built: Lake) -> None:
    commit_run(built, "b", log_run(steps=6))
    commit_run(built, "d", log_run())
    drop_run(built, "a")
    result = build(built)
    assert (result.built, result.dropped) == (("b", "d"), ("a",))
    shown = warehouse_rows(built, "SELECT run_id, steps FROM run_summary ORDER BY ALL")
    assert shown == [("b", 6), ("c", 7), ("d", 3)]
    listed = warehouse_rows(built, "SELECT run_id FROM runs ORDER BY ALL")
    assert listed == [("b",), ("c",), ("d",)]


def test_a_warehouse_is_carried_on_where_blocks_cannot_be_shared(
    built: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.EXDEV, "not between these")

    commit_run(built, "d", log_run())
    monkeypatch.setattr(os, "copy_file_range", refused)
    assert build(built).built == ("d",)
    listed = warehouse_rows(built, "SELECT run_id FROM run_summary ORDER BY 1")
    assert listed == [("a",), ("b",), ("c",), ("d",)]


def test_superseded_parts_go_with_the_build_that_replaces_them(built: Lake) -> None:
    before = built.snapshot().all_parts
    commit_run(built, "a", log_run(steps=5))

    def left() -> set[str]:
        return {p.relative_to(built.root).as_posix() for p in built.root.glob("*/format=*/*/*")}

    assert left() == built.snapshot().all_parts | before
    build(built)
    assert left() == built.snapshot().all_parts
    assert not left() >= before


def test_the_warehouse_is_documented_and_read_only(built: Lake) -> None:
    assert built.warehouse.stat().st_mode & 0o777 == 0o444
    comments = warehouse_rows(
        built,
        "SELECT table_name, column_name FROM duckdb_columns()"
        " WHERE database_name = 'w' AND comment IS NULL AND table_name NOT LIKE '\\_%' ESCAPE '\\'",
    )
    assert comments == []
    (step_ms,) = warehouse_rows(
        built,
        "SELECT comment FROM duckdb_columns()"
        " WHERE table_name = 'step_stats' AND column_name = 'step_ms'",
    )
    assert "Unit: ms." in str(step_ms[0])
    tables_without = warehouse_rows(
        built,
        "SELECT view_name FROM duckdb_views() WHERE database_name = 'w' AND NOT internal"
        " AND comment IS NULL UNION ALL SELECT table_name FROM duckdb_tables()"
        " WHERE database_name = 'w' AND comment IS NULL AND NOT starts_with(table_name, '_')",
    )
    assert tables_without == []


def test_a_moved_lake_gets_its_views_re_pointed(built: Lake, tmp_path: Path) -> None:
    shutil.move(built.root, tmp_path / "elsewhere")
    moved = Lake.open(tmp_path / "elsewhere")
    with pytest.raises(duckdb.IOException):
        warehouse_rows(moved, "FROM layer_times")
    result = build(moved)
    assert (result.unchanged, result.built) == (False, ())
    assert warehouse_rows(moved, "SELECT DISTINCT run_id FROM layer_times ORDER BY 1") == [
        ("a",),
        ("b",),
        ("c",),
    ]


def test_other_models_rebuild_everything(built: Lake, tmp_path: Path) -> None:
    models = load(folder_of(tmp_path / "sql", a__steps=GOOD))
    result = build(built, models=models)
    assert (result.built, result.relations) == (("a", "b", "c"), ("steps",))
    assert warehouse_rows(built, "FROM steps ORDER BY 1") == [("a", 2), ("b", 4), ("c", 6)]
    assert build(built, models=models).unchanged


@few_models("run_summary")
@pytest.mark.parametrize("content", [b"", b"not a database" * 1000])
def test_an_unusable_warehouse_is_rebuilt(lake: Lake, content: bytes) -> None:
    commit_run(lake, "a", log_run())
    lake.warehouse.write_bytes(content)
    result = build(lake)
    assert result.notice is not None
    assert "damaged" in result.notice
    assert warehouse_rows(lake, "SELECT run_id FROM run_summary") == [("a",)]


def test_a_stray_wal_is_removed_and_an_open_warehouse_is_refused(built: Lake) -> None:
    wal = built.warehouse.with_name("warehouse.duckdb.wal")
    wal.touch()
    lock = "import fcntl, sys; f = open(sys.argv[1]); fcntl.lockf(f, 2); print(); input()"
    built.warehouse.chmod(0o644)
    lock = lock.replace("open(sys.argv[1])", "open(sys.argv[1], 'r+')")
    command = [sys.executable, "-c", lock, str(built.warehouse)]
    with subprocess.Popen(command, stdin=-1, stdout=-1) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline()
        with pytest.raises(LakeError, match="opened the warehouse for writing"):
            build(built)
        writer.communicate(b"\n")
    notice = build(built).notice
    assert notice is not None
    assert wal.name in notice
    assert not wal.exists()
    assert build(built).unchanged


@pytest.fixture(params=[0, 1_000], ids=["in SQL", "in Python"])
def checked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks keys of few rows in either way."""
    module = importlib.import_module("tracelake.models.compute")
    monkeypatch.setattr(module, "_FEW", request.param)


@pytest.mark.usefixtures("checked")
def test_a_failed_build_leaves_the_old_warehouse(built: Lake, tmp_path: Path) -> None:
    before = built.warehouse.stat().st_ino
    broken = GOOD.replace("@grain run_id", "@grain run_id, steps").replace(
        "count(*) AS steps FROM train_steps GROUP BY run_id", "1::BIGINT AS steps FROM train_steps"
    )
    models = load(folder_of(tmp_path / "sql", a__steps=broken))
    with pytest.raises(ContractError, match="2 rows have the grain run_id=a, steps=1"):
        build(built, models=models)
    assert built.warehouse.stat().st_ino == before
    assert list((built.root / "_staging").iterdir()) == []


WIDE = """-- Many rows of a run.
-- @grain run_id, number
-- @column number BIGINT | A number.
-- @column digest UBIGINT | Its hash.
SELECT run_id, number, hash(number) AS digest
FROM runs, (SELECT unnest(range(1000000)) AS number) AS numbers
"""


def test_what_memory_does_not_take_is_spilled(lake: Lake, tmp_path: Path) -> None:
    commit_run(lake, "a", log_run())
    models = load(folder_of(tmp_path / "sql", a__wide=WIDE))
    build(lake, models=models, memory_limit="48MB", threads=1)
    assert warehouse_rows(lake, "SELECT count(*), count(DISTINCT number) FROM wide") == [
        (1_000_000, 1_000_000)
    ]
    assert list((lake.root / "_staging").iterdir()) == []


MEDIAN = """-- A middle that needs all values at once.
-- @grain run_id
-- @column middle DOUBLE | Their median.
SELECT run_id, median(number) AS middle
FROM runs, (SELECT unnest(range(1500000)) AS number) AS numbers
GROUP BY run_id
"""


def test_what_cannot_be_spilled_gets_more_memory_unless_the_user_limits_it(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_run(lake, "a", log_run())
    models = load(folder_of(tmp_path / "sql", a__middle=MEDIAN))
    with pytest.raises(LakeError, match="--memory is too small for middle"):
        build(lake, models=models, memory_limit="16MB")
    monkeypatch.setattr("tracelake.models.memory.FIRST_ENGINE_BYTES", 16_000_000)
    build(lake, models=models)
    assert warehouse_rows(lake, "SELECT middle FROM middle") == [(749_999.5,)]


def test_too_little_memory_is_said_and_harms_nothing(built: Lake) -> None:
    before = built.warehouse.stat().st_ino
    commit_run(built, "d", log_run())
    with pytest.raises(LakeError, match="--memory is too small") as caught:
        build(built, memory_limit="1KB")
    assert caught.value.hint == "raise the memory limit"
    assert built.warehouse.stat().st_ino == before
    assert list((built.root / "_staging").iterdir()) == []


@pytest.mark.usefixtures("checked")
def test_null_in_the_grain_is_refused(lake: Lake, tmp_path: Path) -> None:
    commit_run(lake, "a", log_run())
    null = GOOD.replace("@grain run_id", "@grain run_id, steps").replace(
        "count(*)", "nullif(count(*), 2)"
    )
    with pytest.raises(ContractError, match="1 rows have NULL in the grain"):
        build(lake, models=load(folder_of(tmp_path / "sql", a__steps=null)))


def test_what_an_earlier_schema_did_not_have_is_null(lake: Lake, tmp_path: Path) -> None:
    commit_run(lake, "a", log_run(), schema_version=1, lacking=["device", "layers"])
    commit_run(lake, "b", log_run(), schema_version=SCHEMA_VERSION)
    build(lake)
    counts = "SELECT run_id, steps, rejects FROM run_summary ORDER BY run_id"
    assert warehouse_rows(lake, counts) == [("a", 3, 0), ("b", 3, 0)]
    listed = "SELECT run_id, device, path FROM sources ORDER BY run_id"
    assert warehouse_rows(lake, listed) == [("a", None, "log.txt"), ("b", None, "log.txt")]
    assert check_lake(lake) == []
    moved = Lake.open(shutil.move(lake.root, tmp_path / "moved"))
    with open_warehouse(moved) as con:
        assert con.execute("SELECT run_id, layers FROM runs ORDER BY run_id").fetchall() == [
            ("a", None),
            ("b", None),
        ]


def test_a_part_may_lack_columns_only_if_an_earlier_schema_wrote_it(lake: Lake) -> None:
    commit_run(lake, "a", log_run(), schema_version=SCHEMA_VERSION, lacking=["device"])
    with pytest.raises(TracelakeError, match="device"):
        build(lake)


def test_a_lost_part_is_named(lake: Lake) -> None:
    commit_run(lake, "a", log_run())
    part = lake.snapshot().parts_by_table()["runs"][0]
    os.unlink(lake.root / part)
    assert build(lake).lost == [("a", part, "missing")]


@few_models("run_summary")
def test_a_build_follows_those_who_commit_meanwhile(lake: Lake) -> None:
    commit_run(lake, "a", log_run())
    late = iter(["b"])

    def commit_late(_: str) -> None:
        for run_id in late:
            commit_run(lake, run_id, log_run())

    assert build(lake, progress=commit_late).built == ("a", "b")
    assert warehouse_rows(lake, "SELECT run_id FROM run_summary ORDER BY 1") == [("a",), ("b",)]


FLEET = """-- Runs of a configuration.
-- @grain config
-- @scope fleet
-- @column run_count BIGINT runs | How many.
SELECT coalesce(config, '') AS config, sum(steps)::BIGINT AS run_count
FROM _run_steps GROUP BY ALL
"""
INTERNAL = """-- Steps of a run with its configuration.
-- @grain run_id
-- @column steps BIGINT steps | Steps.
SELECT r.run_id, r.config, 1::BIGINT AS steps FROM runs AS r
"""


def test_a_private_model_need_not_document_columns_of_what_it_reads(tmp_path: Path) -> None:
    same = "-- The same.\n-- @grain run_id\nSELECT run_id, steps FROM _run_steps\n"
    models = load(folder_of(tmp_path / "sql", a___run_steps=INTERNAL, a___same=same))
    _, steps = models.columns["_same"]
    assert steps.doc == "Steps."
    with pytest.raises(ContractError, match="column steps is not documented"):
        load(folder_of(tmp_path / "public", a___run_steps=INTERNAL, a__same=same))


def test_fleet_models_see_all_runs(lake: Lake, tmp_path: Path) -> None:
    models = load(folder_of(tmp_path / "sql", a__fleet=FLEET, a___run_steps=INTERNAL))
    for number, run_id in enumerate("abc", 1):
        commit_run(lake, run_id, log_run())
        assert build(lake, models=models).built == (run_id,)
        assert warehouse_rows(lake, "FROM fleet") == [("c", number)]
    drop_run(lake, "a")
    build(lake, models=models)
    assert warehouse_rows(lake, "FROM fleet") == [("c", 2)]


COPIES = """-- Files of all runs and inputs that are in none.
-- @grain files
-- @scope fleet
-- @column files BIGINT files | Files.
-- @column passed_over BIGINT files | Inputs that no format took.
SELECT count(*) AS files, (SELECT count(*) FROM skipped) AS passed_over FROM sources
"""


def test_base_tables_that_fleet_models_read_are_in_the_warehouse(
    lake: Lake, tmp_path: Path
) -> None:
    models = load(folder_of(tmp_path / "sql", a__fleet=COPIES))
    for run_id in "abc":
        commit_run(lake, run_id, log_run())
    build(lake, models=models)
    commit_run(lake, "b", log_run(rejected=2))
    drop_run(lake, "c")
    assert build(lake, models=models).built == ("b",)
    assert warehouse_rows(lake, "FROM fleet") == [(2, 0)]
    listed = "SELECT run_id, rejected FROM sources ORDER BY ALL"
    assert warehouse_rows(lake, listed) == [("a", 0), ("b", 2)]
    for part in lake.snapshot().parts_by_table()["sources"]:
        (lake.root / part).unlink()
    assert warehouse_rows(lake, listed) == [("a", 0), ("b", 2)]
    assert warehouse_rows(lake, "FROM fleet") == [(2, 0)]


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["put", "drop", "build"]),
        st.sampled_from("abc"),
        st.integers(1, 4),
        st.integers(1, 3),
    ),
    min_size=3,
    max_size=6,
)


@settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(changes=CHANGES)
def test_a_build_per_run_equals_a_full_one(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, str, int, int]]
) -> None:
    lake = Lake.create(tmp_path_factory.mktemp("lake"))
    with few_models("layer_stats", "layer_steps", "step_stats", "run_history"):
        for what, run_id, steps, stages in changes:
            if what == "put":
                commit_run(lake, run_id, log_run(steps=steps, stages=stages, layer_ns=steps * 1000))
            elif what == "drop":
                drop_run(lake, run_id)
            else:
                build(lake)
        build(lake)
        assert full_build_differences(lake) == []


def test_what_grows_with_a_job_is_in_parts() -> None:
    assert {"collective_calls", "rank_bubbles", "step_stats"} <= catalog().in_parts
    assert not {"run_summary", "straggler_ranks", "findings"} & catalog().in_parts


def test_how_large_parts_are_read_does_not_show(
    built: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = all_rows(built)
    monkeypatch.setattr("tracelake.models.batches._SMALL_PART_BYTES", 0)
    build(built, full=True)
    assert all_rows(built) == before


def test_how_large_runs_are_does_not_show(
    sample_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.open(shutil.copytree(sample_lake.root, tmp_path / "lake"))
    before = all_rows(lake)
    largest = max(run.text_bytes for run in lake.snapshot().runs.values())
    monkeypatch.setattr("tracelake.models.batches._SMALL_PART_BYTES", 0)
    monkeypatch.setattr("tracelake.models.batches._CODED_BYTES", -1)
    monkeypatch.setattr("tracelake.models.batches._BATCH_BYTES", largest - 1)
    monkeypatch.setattr("tracelake.models.batches._IN_FILE_BYTES", -1)
    build(lake, full=True)
    assert all_rows(lake) == before


@few_models()
def test_relations_of_a_large_run_are_in_a_file_for_a_time(
    built: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: list[Path] = []

    def look(_: str) -> None:
        files.extend(built.root.rglob("memory"))

    build(built, full=True, threads=1, progress=look)
    assert not files
    monkeypatch.setattr("tracelake.models.batches._IN_FILE_BYTES", -1)
    build(built, full=True, threads=1, progress=look)
    assert files
    assert not any(path.exists() for path in files)


def test_keys_of_a_large_run_are_checked(
    built: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracelake.models.batches._BATCH_BYTES", -1)
    twice = """\
-- Steps, each of them twice.
-- @grain run_id, step
SELECT run_id, step FROM train_steps UNION ALL SELECT run_id, step FROM train_steps
"""
    with pytest.raises(ContractError, match="2 rows have the grain"):
        build(built, models=load(folder_of(tmp_path / "sql", a__twice=twice)))


def test_batches_in_threads_give_what_one_after_the_other_gives(
    built: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = all_rows(built)
    monkeypatch.setattr("tracelake.models.batches._BATCH_BYTES", -1)
    said: list[str] = []
    build(built, full=True, threads=2, progress=said.append)
    assert [line for line in said if re.fullmatch(r"computing \d of 3 runs", line)] == [
        f"computing {number} of 3 runs" for number in range(1, 4)
    ]
    assert all_rows(built) == before
    assert check_lake(built) == []


def test_threads_end_when_the_build_does(built: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracelake.models.batches._BATCH_BYTES", -1)
    before = built.warehouse.read_bytes()

    def interrupt(line: str) -> None:
        if line.startswith("computing 1"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(built, full=True, threads=2, progress=interrupt)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("models")]
    assert built.warehouse.read_bytes() == before
    assert not list((built.root / "_staging").iterdir())
    assert check_lake(built) == []


def test_catalogs_are_read_once() -> None:
    assert isinstance(catalog(), Catalog)
    assert catalog() is catalog()
