"""Parquet parts: the same rows give the same files, and every reader finds them again."""

from __future__ import annotations

import hashlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tracelake.lake import parquet
from tracelake.lake.layout import partition_of
from tracelake.lake.parquet import PartWriter
from tracelake.schema.tables import SCHEMA_VERSION, tables

COMMS = tables()["comms"].storage_schema
WORDS = ("send", None, "all_reduce", "broadcast", "all_reduce", "recv", None)


@pytest.fixture(autouse=True)
def little_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two row groups of ten rows in a part."""
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 10)
    monkeypatch.setattr(parquet, "ROW_GROUPS_PER_PART", 2)
    monkeypatch.setattr(parquet, "SMALL_ROWS", 10)


def comms(rows: int) -> list[dict[str, Any]]:
    return [
        {
            "source_id": 0,
            "line": i + 1,
            "rank": i // 8,
            "step": 1,
            "seq": i,
            "collective": WORDS[i // 3 % len(WORDS)],
            "tensor": f"tensor {i % 23}",
            "start_ns": 10_000 * i,
            "duration_ns": None if i % 5 == 0 else 70 * i,
            "shape": None if i % 4 == 0 else [i, 2] * (i % 3),
            "attributes": None if i % 6 else [("key", str(i)), ("none", None)],
        }
        for i in range(rows)
    ]


def batches(rows: Sequence[dict[str, Any]], cuts: Sequence[int]) -> Iterator[pa.RecordBatch]:
    edges = [0, *cuts, len(rows)]
    for begin, end in itertools.pairwise(edges):
        yield pa.RecordBatch.from_pylist(list(rows[begin:end]), schema=COMMS)


def written(folder: Path, added: Iterator[pa.RecordBatch]) -> dict[str, Path]:
    folder.mkdir()
    with ThreadPoolExecutor(1) as helper:
        writer = PartWriter(folder, helper)
        writer.add("comms", added, "a")
        return writer.close(partition_of("rank_trace", None))


@pytest.mark.parametrize("cuts", [[1], [9, 10, 11], [5, 5, 30], list(range(1, 47)), [12, 25, 44]])
def test_files_depend_on_rows_alone(tmp_path: Path, cuts: list[int]) -> None:
    rows = comms(47)
    whole = written(tmp_path / "whole", batches(rows, []))
    cut = written(tmp_path / "cut", batches(rows, cuts))
    assert list(cut) == list(whole)
    assert len(whole) == 3


@pytest.mark.parametrize("runs", [{"a": 9, "b": 0, "c": 1, "d": 37}, {"a": 10, "b": 37}])
def test_rows_of_several_runs_at_once_are_those_added_run_by_run(
    tmp_path: Path, runs: dict[str, int]
) -> None:
    rows, partition = comms(47), partition_of("rank_trace", None)
    (batch,) = batches(rows, [])
    ends = list(itertools.accumulate(runs.values()))
    with ThreadPoolExecutor(1) as helper:
        (tmp_path / "once").mkdir()
        once = PartWriter(tmp_path / "once", helper)
        once.add_runs("comms", batch, runs)
        (tmp_path / "each").mkdir()
        each = PartWriter(tmp_path / "each", helper)
        for run_id, of_run in zip(runs, batches(rows, ends[:-1]), strict=True):
            each.add("comms", [of_run], run_id)
        assert list(once.close(partition)) == list(each.close(partition))


@pytest.mark.parametrize("cuts", [[1], [1024, 70_001, 70_002, 131_072], [300, 600, 900, 150_000]])
def test_full_dictionaries_and_pages_depend_on_rows_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuts: list[int]
) -> None:
    """A dictionary is given up, and a page ended, where the writer notices that it is full."""
    size = 200_000
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", size)
    number = np.arange(size)
    given = {
        "duration_ns": pa.array(number * 7919 % 1_000_003, mask=number % 5 == 0),
        "tensor": pa.array([f"tensor {i}" for i in range(23)]).take(pa.array(number % 23)),
        "collective": pa.array([None, "send", "recv"]).take(pa.array(number % 7 % 3)),
        "shape": pa.ListArray.from_arrays(
            pa.array(np.arange(size + 1) * 3 // 2, pa.int32()), pa.array(np.arange(2 * size))
        ),
        "attributes": pa.array([None, [("key", "x" * 40)]], COMMS.field("attributes").type).take(
            pa.array(number % 2)
        ),
    }
    filled = pa.table(
        [
            given.get(f.name, pa.nulls(size) if f.nullable else pa.array(number)).cast(f.type)
            for f in COMMS
        ],
        schema=COMMS,
    )
    pieces = [
        filled.slice(begin, end - begin).to_batches()[0]
        for begin, end in itertools.pairwise([0, *cuts, size])
    ]
    whole = written(tmp_path / "whole", iter(filled.to_batches()))
    assert list(written(tmp_path / "cut", iter(pieces))) == list(whole)
    (path,) = whole.values()
    column = pq.ParquetFile(path).metadata.row_group(0).column(1 + COMMS.names.index("duration_ns"))
    assert {"PLAIN", "RLE_DICTIONARY"} <= set(column.encodings)


def test_words_no_row_has_leave_no_trace(tmp_path: Path) -> None:
    rows = comms(7)
    (column,) = [i for i, name in enumerate(COMMS.names) if name == "tensor"]
    (batch,) = batches(rows, [])
    arrays = batch.columns
    longer = pa.array([*arrays[column].dictionary.to_pylist(), "another"])
    arrays[column] = pa.DictionaryArray.from_arrays(arrays[column].indices, longer)
    more = pa.RecordBatch.from_arrays(arrays, schema=COMMS)
    rest = pa.RecordBatch.from_pylist(comms(10)[7:], schema=COMMS)
    seventeen = pa.Table.from_batches([more, rest, more]).combine_chunks().to_batches()
    expected = written(tmp_path / "a", batches([*rows, *comms(10)[7:], *rows], []))
    assert list(written(tmp_path / "b", iter(seventeen))) == list(expected)


def test_rows_come_back_in_order_from_every_reader(tmp_path: Path) -> None:
    rows = comms(47)
    staged = written(tmp_path / "parts", batches(rows, [13, 31]))
    paths = sorted(staged.values())
    tables_ = [pq.read_table(path) for path in paths]
    assert all(table.schema.equals(tables()["comms"].part_schema) for table in tables_)
    # Row groups go to two parts in turn.
    turns = [*rows[:10], *rows[20:30], *rows[40:], *rows[10:20], *rows[30:40]]
    parsed = pa.RecordBatch.from_pylist(turns, schema=COMMS).to_pylist()
    expected = [{"run_id": "a", **row} for row in parsed]
    assert [row for table in tables_ for row in table.to_pylist()] == expected
    plain = ["run_id", *(field.name for field in COMMS if field.name != "attributes")]
    texts = [{name: row[name] for name in plain} for row in expected]
    assert pl.read_parquet(paths, columns=plain).to_dicts() == texts
    found = duckdb.connect().execute(f"SELECT * FROM read_parquet({[str(path) for path in paths]})")
    mapped = [
        {**row, "attributes": row["attributes"] and dict(row["attributes"])} for row in expected
    ]
    names = ["run_id", *COMMS.names]
    assert [dict(zip(names, row, strict=True)) for row in found.fetchall()] == mapped


def test_row_groups_and_parts_are_bounded(tmp_path: Path) -> None:
    staged = written(tmp_path / "parts", batches(comms(47), []))
    groups = []
    for path in sorted(staged.values()):
        file = pq.read_metadata(path)
        groups.append([file.row_group(i).num_rows for i in range(file.num_row_groups)])
    assert groups == [[10, 10], [7], [10, 10]]


def test_a_last_small_group_joins_a_part_with_room(tmp_path: Path) -> None:
    staged = written(tmp_path / "parts", batches(comms(23), []))
    groups = [pq.read_metadata(path).num_row_groups for path in sorted(staged.values())]
    assert groups == [2, 1]


def test_a_part_is_named_by_its_content(tmp_path: Path) -> None:
    for final, path in written(tmp_path / "parts", batches(comms(47), [])).items():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert final == f"comms/format=rank_trace/month=undated/part-{digest[:20]}.parquet"


def test_columns_are_stored_as_their_values_are(tmp_path: Path) -> None:
    staged = written(tmp_path / "parts", batches(comms(17), []))
    group = pq.read_metadata(next(iter(staged.values()))).row_group(0)
    column = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    for name in ("line", "seq", "start_ns", "end_ns"):
        assert "DELTA_BINARY_PACKED" in column[name].encodings
    for name in ("rank", "duration_ns", "collective", "shape.list.element"):
        assert "RLE_DICTIONARY" in column[name].encodings
    assert (column["rank"].statistics.min, column["rank"].statistics.max) == (0, 1)
    assert column["collective"].statistics is None
    assert {one.compression for one in column.values()} == {"ZSTD"}


def test_a_small_part_is_compressed_without_set_up(tmp_path: Path) -> None:
    (path,) = written(tmp_path / "parts", batches(comms(9), [])).values()
    assert pq.read_metadata(path).row_group(0).column(0).compression == "LZ4"


def test_a_part_names_its_table_and_schema_and_the_units_of_its_columns(tmp_path: Path) -> None:
    (path,) = written(tmp_path / "parts", batches(comms(9), [])).values()
    said = json.loads(pq.read_metadata(path).metadata[b"tracelake"])
    assert said == {
        "table": "comms",
        "schema_version": SCHEMA_VERSION,
        "schema": tables()["comms"].hash,
    }
    assert len({table.hash for table in tables().values()}) == len(tables())
    assert pq.read_schema(path).field("start_ns").metadata[b"unit"] == b"ns"


def test_a_column_that_every_row_has_is_stored_as_such(tmp_path: Path) -> None:
    (path,) = written(tmp_path / "parts", batches(comms(7), [])).values()
    stored = pq.ParquetFile(path).schema
    always = {c.name for c in map(stored.column, range(len(stored))) if not c.max_definition_level}
    assert always == tables()["comms"].required | {"run_id"}
    assert always >= {"line", "rank", "step"}


def test_a_row_without_such_a_column_is_not_written(tmp_path: Path) -> None:
    rows = comms(7)
    del rows[3]["step"]
    with pytest.raises(pa.ArrowInvalid, match=r"step.*non-nullable"):
        written(tmp_path / "parts", batches(rows, []))


def test_a_part_that_cannot_be_begun_is_one_error(tmp_path: Path) -> None:
    # Python says what a half-made object raises when it goes: since 3.13, before in this mode.
    code = """
from concurrent.futures import ThreadPoolExecutor
import pyarrow as pa, sys
from pathlib import Path
from tracelake.lake.parquet import PartWriter
from tracelake.schema.tables import tables
row = pa.RecordBatch.from_pylist([{"line": 1}], schema=tables()["comms"].storage_schema)
with ThreadPoolExecutor(1) as helper:
    writer = PartWriter(Path(sys.argv[1]), helper)
    writer.add("comms", [row], "a")
    writer.close("month=undated")
"""
    (tmp_path / "file").write_text("")  # where a folder should be
    command = [sys.executable, "-X", "dev", "-W", "ignore", "-c", code, str(tmp_path / "file")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "NotADirectoryError" in ended.stderr.splitlines()[-1]
    assert "Exception ignored" not in ended.stderr
