"""Peers for workload plans: an expression of twelve fields, then a row per pass.

Fields are told apart by any run of blanks and tabs, as in the plans that are about; a CSV reader
takes only files with single tabs, as here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.peers.tools import Columns, in_processes, lines_of, write

if TYPE_CHECKING:
    import polars as pl

_PASSES = ("forward", "input_grad", "weight_grad")
_FIELDS = 12
_LINE = "^[ \t]*" + "[ \t]+".join(["([^ \t]+)"] * _FIELDS)
_COMPUTE, _COMM, _BYTES = 2, 3, 4  # of the first pass; each has three fields
_FIRST_ROW = 3


def _python(source: Path, target: Path) -> None:
    in_processes(source, target, _parse)


def _parse(text: str) -> dict[str, Columns]:
    """Columns of a piece of a plan whose lines count from 1."""
    import numpy as np
    import pyarrow as pa

    found = [
        (number, *words)
        for number, line in enumerate(text.splitlines(), 1)
        if len(words := line.split()) == _FIELDS
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

    text = pl.col("text")
    lines = pl.scan_lines(source, name="text", row_index_name="line", row_index_offset=1)
    fields = lines.filter(pl.col("line") >= _FIRST_ROW).select(
        "line", text.str.extract_groups(_LINE).struct.unnest()
    )
    _sink_passes(fields.filter(pl.col("1").is_not_null()), target)


def _polars_csv(source: Path, target: Path) -> None:
    import polars as pl

    names = [str(at + 1) for at in range(_FIELDS)]
    fields = pl.scan_csv(
        source,
        separator="\t",
        has_header=False,
        new_columns=names,
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
    import duckdb

    def of_passes(at: int, kind: str) -> str:
        return f"unnest([{', '.join(f'f[{at + 3 * k + 1}]::{kind}' for k in range(3))}])"

    connection = duckdb.connect()
    connection.execute(f"CREATE TEMP TABLE lines AS {lines_of(source)}")
    rows = f"""
        SELECT line, f[1] AS layer, unnest({list(_PASSES)}) AS pass,
            {of_passes(_COMPUTE, "BIGINT")} AS compute_ns,
            {of_passes(_COMM, "VARCHAR")} AS raw_comm,
            {of_passes(_BYTES, "BIGINT")} AS raw_bytes,
            f[{_FIELDS}]::BIGINT AS update_ns
        FROM (
            SELECT line, string_split_regex(text, '[ \t]+') AS f
            FROM lines
            WHERE line >= {_FIRST_ROW}
        )
    """
    write(connection, rows, target / "passes")


NARROW = {"polars_csv": _polars_csv}
PEERS = {"python": _python, "polars": _polars, "duckdb": _duckdb}
