"""Peers for training logs: an expression each for headers, layer rows and progress records.

The rows of a block belong to the header above it: remembered, filled forward, or found by an as-of
join. Logs in which ranks write over each other are beyond them. The tuned ones of polars
and DuckDB look at how a line begins before any expression runs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.bench.peers.tools import (
    Columns,
    extract,
    in_one_process,
    in_processes,
    lines_of,
    names_of,
    write,
)

if TYPE_CHECKING:
    import polars as pl


class _Expressions(NamedTuple):
    """One for each kind of line; both sets have groups of the same names."""

    header: str
    layer: str
    record: str


_TUNED = _Expressions(
    header=r"^\[rank:(?P<rank>[0-9]+) stage:(?P<stage>[0-9]+)\].* forward time .*"
    r" - step (?P<step>[0-9]+)",
    layer=r"^  layer\[(?P<layer>[A-Za-z0-9_]+)\]: total=(?P<total_ns>[0-9.]+)ms"
    r", ops=(?P<ops>[0-9]+), avg/op=(?P<avg_ns>[0-9.]+)ms",
    record=r"^\| epoch +(?P<epoch>[0-9]+) \| +(?P<step>[0-9]+)/ *(?P<steps_per_epoch>[0-9]+)"
    r" batches \| lr (?P<lr>[0-9.]+) \| ms/batch +(?P<step_time_ns>[0-9.]+)"
    r" \| loss +(?P<loss>[0-9.]+) \| ppl +(?P<ppl>[0-9.]+)",
)
_PLAIN = _Expressions(
    header=r"\[rank:(?P<rank>\d+) stage:(?P<stage>\d+)\].* forward time .* - step (?P<step>\d+)",
    layer=r"\s+layer\[(?P<layer>\w+)\]: total=(?P<total_ns>[\d.]+)ms, ops=(?P<ops>\d+)"
    r", avg/op=(?P<avg_ns>[\d.]+)ms",
    record=r"\| epoch\s+(?P<epoch>\d+) \|\s+(?P<step>\d+)/\s*(?P<steps_per_epoch>\d+) batches"
    r" \| lr (?P<lr>[\d.]+) \| ms/batch\s+(?P<step_time_ns>[\d.]+) \| loss\s+(?P<loss>[\d.]+)"
    r" \| ppl\s+(?P<ppl>[\d.]+)",
)
_HEADER, _LAYER, _RECORD = map(names_of, _TUNED)
_INTEGERS = {"rank", "stage", "step", "epoch", "steps_per_epoch", "ops"}
_FLOATS = {"lr", "loss", "ppl"}
_NS_PER_MS = 1_000_000


def _python(source: Path, target: Path) -> None:
    in_processes(source, target, _parse, starts_with=b"[rank:")


def _python_plain(source: Path, target: Path) -> None:
    in_one_process(source, target, _parse_plain, starts_with=b"[rank:")


def _parse(text: str) -> dict[str, Columns]:
    return _columns(text, _TUNED)


def _parse_plain(text: str) -> dict[str, Columns]:
    return _columns(text, _PLAIN)


def _columns(text: str, expressions: _Expressions) -> dict[str, Columns]:
    """Columns of a piece of a log whose lines count from 1."""
    header, layer, record = (re.compile(one).match for one in expressions)
    block: tuple[Any, ...] = (None, None, None)
    layers: list[tuple[Any, ...]] = []
    records: list[tuple[Any, ...]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if found := layer(line):
            layers.append((number, *block, *found.groups()))
        elif found := header(line):
            block = found.groups()
        elif found := record(line):
            records.append((number, *found.groups()))
    return {
        "layers": _arrays(["line", *_HEADER, *_LAYER], layers),
        "steps": _arrays(["line", *_RECORD], records),
    }


def _arrays(names: list[str], rows: list[tuple[Any, ...]]) -> Columns:
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = {}
    values = zip(*rows, strict=True) if rows else iter([()] * len(names))
    for name, found in zip(names, values, strict=True):
        column = pa.array(found, pa.int64() if name == "line" else pa.string())
        if name.endswith("_ns"):
            ns = pc.round(pc.multiply(column.cast(pa.float64()), float(_NS_PER_MS)))
            column = ns.cast(pa.int64())
        elif name in _INTEGERS:
            column = column.cast(pa.int64())
        elif name in _FLOATS:
            column = column.cast(pa.float64())
        columns[name] = column
    return columns


def _polars(source: Path, target: Path) -> None:
    import polars as pl

    text = pl.col("text")
    lines = pl.scan_lines(source, name="text", row_index_name="line", row_index_offset=1)
    blocks = lines.filter(text.str.starts_with("  layer[") | text.str.starts_with("[rank:"))
    _sink(blocks, lines.filter(text.str.starts_with("| epoch")), _TUNED, target)


def _polars_plain(source: Path, target: Path) -> None:
    import polars as pl

    lines = pl.scan_lines(source, name="text", row_index_name="line", row_index_offset=1)
    _sink(lines, lines, _PLAIN, target)


def _sink(
    blocks: pl.LazyFrame, records: pl.LazyFrame, expressions: _Expressions, target: Path
) -> None:
    """Writes what the lines of blocks and the progress records say."""
    import polars as pl

    def typed(name: str) -> pl.Expr:
        column = pl.col(name)
        if name.endswith("_ns"):
            return (column.cast(pl.Float64) * _NS_PER_MS).round().cast(pl.Int64)
        if name in _INTEGERS:
            return column.cast(pl.Int64)
        return column.cast(pl.Float64) if name in _FLOATS else column

    text = pl.col("text")
    layers = (
        blocks.select(
            "line",
            text.str.extract_groups(expressions.header).struct.unnest().forward_fill(),
            text.str.extract_groups(expressions.layer).struct.unnest(),
        )
        .filter(pl.col("layer").is_not_null())
        .select("line", *map(typed, _HEADER + _LAYER))
    )
    steps = (
        records.select("line", text.str.extract_groups(expressions.record).struct.unnest())
        .filter(pl.col("epoch").is_not_null())
        .select("line", *map(typed, _RECORD))
    )
    sinks = []
    for relation, rows in (("layers", layers), ("steps", steps)):
        (target / relation).mkdir(parents=True)
        path = target / relation / "part.parquet"
        sinks.append(rows.sink_parquet(path, compression="zstd", lazy=True))
    pl.collect_all(sinks, engine="streaming")


def _duckdb(source: Path, target: Path) -> None:
    _copy(source, _TUNED, ("[rank:", "  layer[", "| epoch"), target)


def _duckdb_plain(source: Path, target: Path) -> None:
    _copy(source, _PLAIN, ("", "", ""), target)


def _copy(
    source: Path, expressions: _Expressions, starts: tuple[str, str, str], target: Path
) -> None:
    """Writes what the expressions find in the lines that begin so."""
    import duckdb

    def typed(name: str) -> str:
        if name.endswith("_ns"):
            return f"round(found.{name}::DOUBLE * {_NS_PER_MS})::BIGINT AS {name}"
        kind = "BIGINT" if name in _INTEGERS else "DOUBLE" if name in _FLOATS else "VARCHAR"
        return f"found.{name}::{kind} AS {name}"

    def rows(expression: str, start: str) -> str:
        names = names_of(expression)
        return f"""
            SELECT {", ".join(["line", *map(typed, names)])}
            FROM (
                SELECT line, {extract("text", expression)} AS found
                FROM lines
                WHERE starts_with(text, '{start}')
            )
            WHERE found.{names[0]} <> ''
        """

    headers, layers, records = map(rows, expressions, starts)
    connection = duckdb.connect()
    connection.execute(f"CREATE TEMP TABLE lines AS {lines_of(source)}")
    connection.execute(f"CREATE TEMP TABLE headers AS {headers}")
    connection.execute(f"CREATE TEMP TABLE layers AS {layers}")
    joined = "SELECT l.*, h.* EXCLUDE (line) FROM layers AS l ASOF JOIN headers AS h USING (line)"
    write(connection, joined, target / "layers")
    write(connection, records, target / "steps")


PEERS = {
    "python": _python,
    "python_plain": _python_plain,
    "polars": _polars,
    "polars_plain": _polars_plain,
    "duckdb": _duckdb,
    "duckdb_plain": _duckdb_plain,
}
