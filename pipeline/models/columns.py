"""Read the rows of a SELECT as arrays, for what computes with numbers alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracelake.base.packing import packed
from tracelake.models.base import literal

# Rows of a piece, each of 100 bytes and as many more in the arrays that are made of it.
_PIECE_ROWS = 200_000


@dataclass(frozen=True)
class Columns:
    """Hold rows, an array per column.

    Attributes:
        arrays: By name; any number for NULL, 0 and 1 for flags, texts as numbers.
        texts: What the numbers of texts mean, by name of their column.
    """

    arrays: Mapping[str, npt.NDArray[Any]]
    texts: Mapping[str, Sequence[str]]


def pieces_of_steps(con: duckdb.DuckDBPyConnection, sql: str) -> Iterator[str]:
    """Yield SELECTs of the rows of one: pieces of whole runs, or of whole steps of a large one.

    Its rows have `run_id` and `step`; a run's come one after the other.
    """
    sizes = con.execute(f"SELECT run_id, step, count(*) FROM ({sql}) GROUP BY ALL ORDER BY ALL")
    runs = [list(steps) for _, steps in groupby(sizes.fetchall(), itemgetter(0))]
    for together in packed(runs, (lambda steps: sum(map(itemgetter(2), steps)), _PIECE_ROWS)):
        first, last = (literal(steps[0][0]) for steps in (together[0], together[-1]))
        rows = f"SELECT * FROM ({sql}) WHERE run_id BETWEEN {first} AND {last}"
        if len(together) > 1:
            yield rows
            continue
        for steps in packed(together[0], (itemgetter(2), _PIECE_ROWS)):
            yield f"{rows} AND step BETWEEN {steps[0][1]} AND {steps[-1][1]}"


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
    return Columns(arrays, texts)


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
