"""Other engines read the Parquet of a lake, each by the line that the documentation prints."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.conftest import ROOT
from tests.lakes import run_ingest
from tracelake.lake.layout import partition_of
from tracelake.lake.manifest import Change, RunEntry
from tracelake.lake.parquet import SMALL_ROWS, PartWriter
from tracelake.lake.store import Lake
from tracelake.schema.tables import PARTITION_KEY, Column, Table, tables

PAGE = ROOT / "docs" / "parquet-layout.md"
ODD = "odd"

Rows = list[tuple[Any, ...]]
Read = Callable[[Path, Table], tuple[dict[str, str], Rows]]

VALUES: dict[str, Any] = {
    "VARCHAR": "täxt, with 'quotes'\n",
    "BOOLEAN": False,
    "INTEGER": -(2**31),
    "BIGINT": 2**63 - 1,
    "DOUBLE": 0.1,
    "TIMESTAMP": datetime(1969, 12, 31, 23, 59, 59, 999_999),
    "BIGINT[]": [1, None, -(2**63)],
    "VARCHAR[]": ["node1", None, ""],
    "MAP(VARCHAR, VARCHAR)": [("key", "value"), ("none", None)],
    "MAP(VARCHAR, BIGINT)": [("key", 2**62)],
}


def odd_rows(table: Table) -> list[dict[str, Any]]:
    """A row of values at their limits, one with as few as can be, one of empty lists and texts."""
    full = {column.name: VALUES[column.type] for column in table.stored}
    least = {name: full[name] for name in table.required}
    kinds = {column.name: column.type for column in table.stored}
    empty: dict[str, Any] = {name: "" for name, kind in kinds.items() if kind == "VARCHAR"}
    empty |= {name: [] for name, kind in kinds.items() if kind.startswith(("BIGINT[", "MAP"))}
    return [full, least, least | empty]


def run_tables() -> dict[str, Table]:
    """Those whose rows belong to runs."""
    return {name: table for name, table in tables().items() if name != "skipped"}


def commit_run(lake: Lake, run_id: str, copies: dict[str, int]) -> None:
    """A run with these rows so many times, by table, in parts as ingest writes them."""
    with lake.staging("test") as folder, ThreadPoolExecutor(1) as helper:
        writer = PartWriter(folder, helper)
        for name, count in copies.items():
            rows = odd_rows(tables()[name]) * count
            if "format" in {c.name for c in tables()[name].columns}:  # as the folder says
                rows = [{**row, "format": ODD} for row in rows]
            schema = tables()[name].storage_schema
            writer.add(name, [pa.RecordBatch.from_pylist(rows, schema=schema)], run_id)
        staged = writer.close(partition_of("odd", None))
        parts = {path.split("/")[0]: (path,) for path in staged}
        entry = RunEntry(run_id, run_id, "generation", parts)
        lake.commit_all([Change(run_id, [entry], staged)])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample, and a run with odd rows in every table, in `ops` enough for a large part."""
    root = tmp_path_factory.mktemp("engines") / "lake"
    run_ingest(ROOT / "data" / "sample", root)
    commit_run(Lake.open(root), ODD, {**dict.fromkeys(run_tables(), 1), "ops": SMALL_ROWS})
    return root


def plain(value: Any) -> Any:
    """A value as every engine can give it: the entries of a map in order of key."""
    if isinstance(value, dict):
        return tuple(sorted(value.items()))
    if isinstance(value, list):
        return tuple(value)
    return value


def in_order(rows: Iterator[tuple[Any, ...]] | Rows) -> Rows:
    return sorted((tuple(map(plain, row)) for row in rows), key=repr)


def stored_rows(root: Path, table: Table) -> Rows:
    """What the part files hold, one by one; rows of `skipped` belong to no run."""
    found: Rows = []
    for part in Lake.open(root).snapshot().parts_by_table()[table.name]:
        content = pq.ParquetFile(root / part).read()
        columns = [content.column(c.name).to_pylist() for c in table.stored]
        maps = [c.type.startswith("MAP") for c in table.stored]
        if table.name != "skipped":
            columns.append(content.column(PARTITION_KEY).to_pylist())
            maps.append(False)
        for row in zip(*columns, strict=True):
            values = [
                dict(v) if is_map and v is not None else v
                for v, is_map in zip(row, maps, strict=True)
            ]
            found.append(tuple(values))
    return in_order(found)


def line_of(engine: str, root: Path, table: Table) -> str:
    """The documented line, for a table of a lake."""
    found = re.search(
        rf"^\| {engine} \| `(.*)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert found is not None, f"no line for {engine} in {PAGE.name}"
    assert found[1].count("lake/ops") == 1
    return found[1].replace("lake/ops", f"{root}/{table.name}")


def names_of(table: Table) -> list[str]:
    """The columns that an engine finds, those of folders last."""
    if table.name == "skipped":
        return [*(c.name for c in table.stored), PARTITION_KEY]
    names = [PARTITION_KEY, *(c.name for c in table.stored)]
    return [*names, *(key for key in ("format", "month") if key not in names)]


def of_columns(types: dict[str, str], rows: Rows, table: Table) -> Rows:
    """The columns of a table, and the run last."""
    wanted = [c.name for c in table.stored]
    wanted += [] if table.name == "skipped" else [PARTITION_KEY]
    places = [list(types).index(name) for name in wanted]
    return in_order(tuple(row[place] for place in places) for row in rows)


# --- engines --------------------------------------------------------------------------------------


def with_polars(root: Path, table: Table) -> tuple[dict[str, str], Rows]:
    frame: pl.DataFrame = eval(line_of("polars", root, table), {"pl": pl})
    return {name: str(kind) for name, kind in frame.schema.items()}, frame.rows()


def with_pyarrow(root: Path, table: Table) -> tuple[dict[str, str], Rows]:
    given = {"pq": pq, "pa": pa, "ds": ds}
    if table.name == "skipped":
        found = pq.read_table(root / "skipped", partitioning=None)
    else:
        found = eval(line_of("pyarrow", root, table), given)
    types = {field.name: str(field.type) for field in found.schema}
    columns = [
        column.to_pylist(maps_as_pydicts="strict")
        if pa.types.is_map(column.type)
        else column.to_pylist()
        for column in found.columns
    ]
    return types, list(zip(*columns, strict=True))


def with_duckdb(root: Path, table: Table) -> tuple[dict[str, str], Rows]:
    with duckdb.connect() as con:
        found = eval(line_of("DuckDB", root, table), {"duckdb": con})
        types = dict(zip(found.columns, map(str, found.types), strict=True))
        return types, found.fetchall()


def with_spark(root: Path, table: Table) -> tuple[dict[str, str], Rows]:
    from pyspark.sql import SparkSession

    frame = eval(line_of("Spark", root, table), {"SparkSession": SparkSession})
    rows = [tuple(row) for row in frame.collect()]
    return dict(frame.dtypes), rows


@pytest.fixture(scope="module")
def spark() -> Iterator[None]:
    """A session of one thread on this machine, which the documented line takes up."""
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed: pip install 'tracelake[spark]'")
    if shutil.which("java") is None:
        pytest.skip("there is no Java, which Spark needs")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]")
    for option, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(option, value)
    session = builder.getOrCreate()
    yield
    session.stop()


# Per engine what a column of each type of schemas/ must be there; words are what its own kind of
# few distinct texts is.
TYPES: dict[str, dict[str, str]] = {
    "polars": {
        "VARCHAR": "String",
        "words": "Categorical",
        "BOOLEAN": "Boolean",
        "INTEGER": "Int32",
        "BIGINT": "Int64",
        "DOUBLE": "Float64",
        "TIMESTAMP": "Datetime(time_unit='us', time_zone=None)",
        "BIGINT[]": "List(Int64)",
        "VARCHAR[]": "List(String)",
        "MAP(VARCHAR, VARCHAR)": "Map(String, String)",
        "MAP(VARCHAR, BIGINT)": "Map(String, Int64)",
    },
    "pyarrow": {
        "VARCHAR": "string",
        "words": "dictionary<values=string, indices=int32, ordered=0>",
        "BOOLEAN": "bool",
        "INTEGER": "int32",
        "BIGINT": "int64",
        "DOUBLE": "double",
        "TIMESTAMP": "timestamp[us]",
        "BIGINT[]": "list<element: int64>",
        "VARCHAR[]": "list<element: string>",
        "MAP(VARCHAR, VARCHAR)": "map<string, string ('{name}')>",
        "MAP(VARCHAR, BIGINT)": "map<string, int64 ('{name}')>",
    },
    "DuckDB": {"words": "VARCHAR"},  # its types are those of schemas/
    "Spark": {
        "VARCHAR": "string",
        "words": "string",
        "BOOLEAN": "boolean",
        "INTEGER": "int",
        "BIGINT": "bigint",
        "DOUBLE": "double",
        "TIMESTAMP": "timestamp_ntz",
        "BIGINT[]": "array<bigint>",
        "VARCHAR[]": "array<string>",
        "MAP(VARCHAR, VARCHAR)": "map<string,string>",
        "MAP(VARCHAR, BIGINT)": "map<string,bigint>",
    },
}
# Of the columns that come from names of folders, where it is not that of texts.
FOLDER_TYPES = {"pyarrow": "dictionary<values=string, indices=int32, ordered=0>"}
NO_RUN_TYPES = {"Spark": "void"}
ENGINES: dict[str, Read] = {
    "polars": with_polars,
    "pyarrow": with_pyarrow,
    "DuckDB": with_duckdb,
    "Spark": with_spark,
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "Spark":
        request.getfixturevalue("spark")
    return name


def type_in(engine: str, column: Column) -> str:
    declared = "words" if column.dictionary else column.type
    return TYPES[engine].get(declared, declared).format(name=column.name)


@pytest.mark.parametrize("name", tables())
def test_an_engine_finds_names_types_and_rows(engine: str, name: str, lake: Path) -> None:
    table = tables()[name]
    types, rows = ENGINES[engine](lake, table)
    text = TYPES[engine].get("VARCHAR", "VARCHAR")
    names = names_of(table)
    wanted = dict.fromkeys(names, FOLDER_TYPES.get(engine, text)) | {PARTITION_KEY: text}
    if name == "skipped":  # no folder of it has a run
        wanted[PARTITION_KEY] = NO_RUN_TYPES.get(engine, text)
        if engine == "pyarrow":
            names.remove(PARTITION_KEY)
            del wanted[PARTITION_KEY]
    assert types == wanted | {c.name: type_in(engine, c) for c in table.stored}
    assert list(types) == names
    assert rows
    assert of_columns(types, rows, table) == stored_rows(lake, table)


@pytest.mark.parametrize("name", run_tables())
def test_values_at_their_limits_are_kept(engine: str, name: str, lake: Path) -> None:
    table = tables()[name]
    maps = {column.name for column in table.stored if column.type.startswith("MAP")}
    written = {
        tuple(
            plain(dict(row[c.name]) if c.name in maps and c.name in row else row.get(c.name))
            for c in table.stored
        )
        for row in odd_rows(table)
        for row in [row | ({"format": ODD} if "format" in {c.name for c in table.columns} else {})]
    }
    types, rows = ENGINES[engine](lake, table)
    assert {row[:-1] for row in of_columns(types, rows, table) if row[-1] == ODD} == written


@pytest.mark.parametrize(
    "runs", [["007"], ["007", "12"], ["2025-01-31"], ["1e-12345678"], ["true"], ["-12345678"]]
)
def test_run_ids_are_texts_whatever_they_look_like(
    engine: str, runs: list[str], tmp_path: Path
) -> None:
    lake = Lake.create(tmp_path / "lake")
    for run_id in runs:
        commit_run(lake, run_id, {"rejects": 1})
    table = tables()["rejects"]
    types, rows = ENGINES[engine](lake.root, table)
    assert {row[-1] for row in of_columns(types, rows, table)} == set(runs)


def test_both_codecs_are_among_the_parts(lake: Path) -> None:
    """Large parts are zstd, small ones LZ4: what is shown above holds for both."""
    codecs = {
        pq.ParquetFile(part).metadata.row_group(0).column(0).compression
        for part in lake.glob("ops/*/*/*.parquet")
    }
    assert codecs == {"ZSTD", "LZ4"}
