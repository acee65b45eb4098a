"""Read the rows of a SELECT as arrays, for what computes with numbers alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracelake.models.base import literal

# Rows of a piece, each of 100 bytes and as many more in the arrays that are made of it.
_PIECE_ROWS = 200_000


@dataclass(frozen=True)
class Columns:
    """Hold rows, an array per column.

    Attributes:
        rows: How many there are.
        arrays: By name; any number for NULL, 0 and 1 for flags, texts as numbers.
        texts: What the numbers of texts mean, by name of their column.
    """

    rows: int
    arrays: Mapping[str, npt.NDArray[Any]]
    texts: Mapping[str, Sequence[str]]


def pieces_of_steps(con: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    """Return SELECTs of the rows of one: pieces of whole runs, or of whole steps of a large one.

    Its rows have `run_id` and `step`; a run's come one after the other.
    """
    pieces: list[str] = []
    runs: list[str] = []
    rows = 0
    sizes = con.execute(f"SELECT run_id, step, count(*) FROM ({sql}) GROUP BY ALL ORDER BY ALL")
    for run_id, of_run in groupby(sizes.fetchall(), itemgetter(0)):
        steps = [(step, size) for _, step, size in of_run]
        size = sum(size for _, size in steps)
        if runs and rows + size > _PIECE_ROWS:
            pieces.append(_rows_of(sql, runs))
            runs, rows = [], 0
        if size <= _PIECE_ROWS:
            runs.append(run_id)
            rows += size
            continue
        of_run_rows = _rows_of(sql, [run_id])
        for first, last in _spans(steps):
            pieces.append(f"{of_run_rows} AND step BETWEEN {first} AND {last}")
    if runs:
        pieces.append(_rows_of(sql, runs))
    return pieces


def _rows_of(sql: str, run_ids: Sequence[str]) -> str:
    return f"SELECT * FROM ({sql}) WHERE run_id IN ({', '.join(map(literal, run_ids))})"


def _spans(steps: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last step of pieces, for steps with their rows."""
    first, rows = steps[0][0], 0
    for (before, _), (step, size) in pairwise([(steps[0][0], 0), *steps]):
        if rows and rows + size > _PIECE_ROWS:
            yield first, before
            first, rows = step, 0
        rows += size
    yield first, steps[-1][0]


def read_columns(con: duckdb.DuckDBPyConnection, sql: str) -> Columns:
    """Return the rows of a SELECT; DuckDB's own copy of them is gone then."""
    table = con.sql(sql).to_arrow_table()
    arrays = {}
    texts = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
            arrays[name], texts[name] = _texts(column)
        elif pa.types.is_boolean(column.type):
            arrays[name] = _values(column.cast(pa.uint8()))
        else:
            arrays[name] = _values(column)
    return Columns(table.num_rows, arrays, texts)


def _texts(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Return texts as numbers, and what they mean."""
    array = column.combine_chunks()
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    return _values(array.indices).astype(np.int32), array.dictionary.to_pylist()


def _values(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return numbers, any for NULL; `to_numpy` would import pandas, which takes seconds."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    kind = np.dtype(str(array.type))
    if not len(array):
        return np.empty(0, kind)
    return np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array)]
