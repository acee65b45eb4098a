"""Peers for workload plans: an expression of twelve fields, then a row per pass.

Fields are told apart by any run of blanks and tabs, as in the plans that are about; a CSV reader
takes only files with single tabs, as here. The tuned peers cut a line wherever it is blank, the
plain ones say of each field whether it is a word or a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.peers.tools import Columns, in_one_process, in_processes, lines_of, write

if TYPE_CHECKING:
    import polars as pl

_PASSES = ("forward", "input_grad", "weight_grad")
_FIELDS = 12
_LINE = "^[ \t]*" + "[ \t]+".join(["([^ \t]+)"] * _FIELDS)
_PLAIN_LINE = r"^\s*" + r"\s+".join(
    [r"(\w+)", r"(-?\d+)", *[r"(\d+)\s+(\w+)\s+(\d+)"] * 3, r"(\d+)"]
)
_NAMES = [str(at + 1) for at in range(_FIELDS)]
_COMPUTE, _COMM, _BYTES = 2, 3, 4  # of the first pass; each has three fields
_FIRST_ROW = 3


def _python(source: Path, target: Path) -> None:
    in_processes(source, target, _parse)


def _parse(text: str) -> dict[str, Columns]:
    def read(line: str) -> Sequence[str] | None:
        words = line.split()
        return words if len(words) == _FIELDS else None

    return _columns(text, read)


def _python_plain(source: Path, target: Path) -> None:
    in_one_process(source, target, _parse_plain)


def _parse_plain(text: str) -> dict[str, Columns]:
    match = re.compile(_PLAIN_LINE).match

    def read(line: str) -> Sequence[str] | None:
        found = match(line)
        return found and found.groups()

    return _columns(text, read)


def _columns(text: str, read: Callable[[str], Sequence[str] | None]) -> dict[str, Columns]:
    """Columns of a piece of a plan whose lines count from 1, given how a row is cut."""
    import numpy as np
    import pyarrow as pa

    found = [
        (number, *words)
        for number, line in enumerate(text.splitlines(), 1)
        if (words := read(line)) is not None
    ]
    number, *fields = zip(*found, strict=True)

    def of_passes(first: int, step: int = 3) -> pa.ChunkedArray:
        return pa.chunked_array([pa.array(fields[first + step * k]) for k in range(3)])

    kinds = np.repeat(np.arange(3, dtype=np.int8), len(found))
    return {
        "passes": {
            "line": pa.chunked_array([pa.array(number)] * 3),
            "layer": of_passes(0, step=0).dictionary_encode(),
            "pass": pa.DictionaryArray.from_arrays(kinds, list(_PASSES)),
            "compute_ns": of_passes(_COMPUTE).cast(pa.int64()),
            "raw_comm": of_passes(_COMM).dictionary_encode(),
            "raw_bytes": of_passes(_BYTES).cast(pa.int64()),
            "update_ns": of_passes(_FIELDS - 1, step=0).cast(pa.int64()),
        }
    }


def _polars(source: Path, target: Path) -> None:
    import polars as pl

    lines = pl.scan_lines(source, name="text", row_index_name="line", row_index_offset=1)
    _sink_rows(lines.filter(pl.col("line") >= _FIRST_ROW), _LINE, target)


def _polars_plain(source: Path, target: Path) -> None:
    import polars as pl

    lines = pl.scan_lines(source, name="text", row_index_name="line", row_index_offset=1)
    _sink_rows(lines, _PLAIN_LINE, target)


def _sink_rows(lines: pl.LazyFrame, expression: str, target: Path) -> None:
    import polars as pl

    fields = lines.select("line", pl.col("text").str.extract_groups(expression).struct.unnest())
    _sink_passes(fields.filter(pl.col("1").is_not_null()), target)


def _polars_csv(source: Path, target: Path) -> None:
    import polars as pl

    fields = pl.scan_csv(
        source,
        separator="\t",
        has_header=False,
        new_columns=_NAMES,
        skip_rows=_FIRST_ROW - 1,
        row_index_name="line",
        row_index_offset=_FIRST_ROW,
    )
    _sink_passes(fields, target)


def _sink_passes(fields: pl.LazyFrame, target: Path) -> None:
    """Writes a row per pass of frames with columns `line` and `1` to `12`."""
    import polars as pl

    def of_passes(at: int, kind: type[pl.DataType] = pl.Int64) -> pl.Expr:
        return pl.concat_list(pl.col(str(at + 3 * k + 1)).cast(kind) for k in range(3))

    per_pass = {
        "pass": pl.lit(list(_PASSES)),
        "compute_ns": of_passes(_COMPUTE),
        "raw_comm": of_passes(_COMM, pl.String),
        "raw_bytes": of_passes(_BYTES),
    }
    (target / "passes").mkdir(parents=True)
    (
        fields.select("line", layer="1", update_ns=pl.col(str(_FIELDS)).cast(pl.Int64), **per_pass)
        .explode(*per_pass)
        .sink_parquet(target / "passes" / "part.parquet", compression="zstd", engine="streaming")
    )


def _duckdb(source: Path, target: Path) -> None:
    rows = f"""
        SELECT line, string_split_regex(text, '[ \t]+') AS f
        FROM lines
        WHERE line >= {_FIRST_ROW}
    """
    _copy_passes(source, rows, "f[{}]", target)


def _duckdb_plain(source: Path, target: Path) -> None:
    rows = f"SELECT line, regexp_extract(text, '{_PLAIN_LINE}', {_NAMES}) AS f FROM lines"
    _copy_passes(source, f"FROM ({rows}) WHERE f['1'] <> ''", "f['{}']", target)


def _copy_passes(source: Path, rows: str, field: str, target: Path) -> None:
    """Writes a row per pass of a query on `lines` that gives fields, counted from 1, as `f`."""
    import duckdb

    def of_passes(at: int, kind: str) -> str:
        return f"unnest([{', '.join(f'{field.format(at + 3 * k + 1)}::{kind}' for k in range(3))}])"

    connection = duckdb.connect()
    connection.execute(f"CREATE TEMP TABLE lines AS {lines_of(source)}")
    passes = f"""
        SELECT line, {field.format(1)} AS layer, unnest({list(_PASSES)}) AS pass,
            {of_passes(_COMPUTE, "BIGINT")} AS compute_ns,
            {of_passes(_COMM, "VARCHAR")} AS raw_comm,
            {of_passes(_BYTES, "BIGINT")} AS raw_bytes,
            {field.format(_FIELDS)}::BIGINT AS update_ns
        FROM ({rows})
    """
    write(connection, passes, target / "passes")


NARROW = {"polars_csv": _polars_csv}
PEERS = {
    "python": _python,
    "python_plain": _python_plain,
    "polars": _polars,
    "polars_plain": _polars_plain,
    "duckdb": _duckdb,
    "duckdb_plain": _duckdb_plain,
}
