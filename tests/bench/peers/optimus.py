"""Peers for training logs: an expression each for headers, layer rows and progress records.

The rows of a block belong to the header above it: remembered, filled forward, or found by an as-of
join. Logs in which ranks write over each other are beyond them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.bench.peers.tools import Columns, in_processes, lines_of, write

_HEADER = (
    r"^\[rank:(?P<rank>[0-9]+) stage:(?P<stage>[0-9]+)\].* forward time .* - step (?P<step>[0-9]+)"
)
_LAYER = (
    r"^  layer\[(?P<layer>[A-Za-z0-9_]+)\]: total=(?P<total_ns>[0-9.]+)ms, ops=(?P<ops>[0-9]+)"
    r", avg/op=(?P<avg_ns>[0-9.]+)ms"
)
_RECORD = (
    r"^\| epoch +(?P<epoch>[0-9]+) \| +(?P<step>[0-9]+)/ *(?P<steps_per_epoch>[0-9]+) batches"
    r" \| lr (?P<lr>[0-9.]+) \| ms/batch +(?P<step_time_ns>[0-9.]+) \| loss +(?P<loss>[0-9.]+)"
    r" \| ppl +(?P<ppl>[0-9.]+)"
)
_INTEGERS = {"rank", "stage", "step", "epoch", "steps_per_epoch", "ops"}
_FLOATS = {"lr", "loss", "ppl"}
_NS_PER_MS = 1_000_000


def _names(expression: str) -> list[str]:
    return list(re.compile(expression).groupindex)


def _python(source: Path, target: Path) -> None:
    in_processes(source, target, _parse, starts_with=b"[rank:")


def _parse(text: str) -> dict[str, Columns]:
    """Columns of a piece of a log whose lines count from 1."""
    header, layer, record = (re.compile(one).match for one in (_HEADER, _LAYER, _RECORD))
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
        "layers": _arrays(["line", *_names(_HEADER), *_names(_LAYER)], layers),
        "steps": _arrays(["line", *_names(_RECORD)], records),
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

    def typed(name: str) -> pl.Expr:
        column = pl.col(name)
        if name.endswith("_ns"):
            return (column.cast(pl.Float64) * _NS_PER_MS).round().cast(pl.Int64)
        if name in _INTEGERS:
            return column.cast(pl.Int64)
        return column.cast(pl.Float64) if name in _FLOATS else column

    text = pl.col("text")
    lines = pl.scan_lines(source, name="text", row_index_name="line", row_index_offset=1)
    layers = (
        lines.filter(text.str.starts_with("  layer[") | text.str.starts_with("[rank:"))
        .select(
            "line",
            text.str.extract_groups(_HEADER).struct.unnest().forward_fill(),
            text.str.extract_groups(_LAYER).struct.unnest(),
        )
        .filter(pl.col("layer").is_not_null())
        .select("line", *map(typed, _names(_HEADER) + _names(_LAYER)))
    )
    steps = (
        lines.filter(text.str.starts_with("| epoch"))
        .select("line", text.str.extract_groups(_RECORD).struct.unnest())
        .select("line", *map(typed, _names(_RECORD)))
    )
    sinks = []
    for relation, rows in (("layers", layers), ("steps", steps)):
        (target / relation).mkdir(parents=True)
        path = target / relation / "part.parquet"
        sinks.append(rows.sink_parquet(path, compression="zstd", lazy=True))
    pl.collect_all(sinks, engine="streaming")


def _duckdb(source: Path, target: Path) -> None:
    import duckdb

    def typed(name: str) -> str:
        if name.endswith("_ns"):
            return f"round(found.{name}::DOUBLE * {_NS_PER_MS})::BIGINT AS {name}"
        kind = "BIGINT" if name in _INTEGERS else "DOUBLE" if name in _FLOATS else "VARCHAR"
        return f"found.{name}::{kind} AS {name}"

    def rows(expression: str, start: str) -> str:
        plain = re.sub(r"\?P<\w+>", "", expression)
        columns = ", ".join(["line", *map(typed, _names(expression))])
        return f"""
            SELECT {columns}
            FROM (
                SELECT line, regexp_extract(text, '{plain}', {_names(expression)}) AS found
                FROM lines
                WHERE starts_with(text, '{start}')
            )
            WHERE found.{_names(expression)[0]} <> ''
        """

    connection = duckdb.connect()
    connection.execute(f"CREATE TEMP TABLE lines AS {lines_of(source)}")
    connection.execute(f"CREATE TEMP TABLE headers AS {rows(_HEADER, '[rank:')}")
    connection.execute(f"CREATE TEMP TABLE layers AS {rows(_LAYER, '  layer[')}")
    joined = "SELECT l.*, h.* EXCLUDE (line) FROM layers AS l ASOF JOIN headers AS h USING (line)"
    write(connection, joined, target / "layers")
    write(connection, rows(_RECORD, "| epoch"), target / "steps")


PEERS = {"python": _python, "polars": _polars, "duckdb": _duckdb}
