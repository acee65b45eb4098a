"""Peers for rank traces: an expression for the line, one for each of its sub-operations.

Cutting the line at its sub-operations first makes polars and DuckDB half as fast again as one
expression that looks for all of them, and classes of plain ASCII thrice as fast as `\\w`, which
means all of Unicode to polars. Python is at its best with `findall`.

Times are read as floating-point ms and rounded to the 0.01 ms that the traces print, which gives
exact nanoseconds at these magnitudes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench.peers.tools import Columns, in_processes, lines_of, write

_NS_PER_TICK = 10_000
_TICKS_PER_MS = 100

_OP = (
    r"^rank:(?P<rank>[0-9]+):(?P<op>[a-z_]+)\(stage_id=(?P<stage_id>[0-9]+),batch_id=[0-9]+"
    r",mg_state=(?P<phase>[A-Za-z]+),duration=(?P<duration_ns>[0-9.]+),description=.*?"
    r",group_kind=(?P<group>[A-Za-z_]+),input__shape=(?P<shape>None|\[[0-9, ]*\])"
    r",input__dtype=(?:torch\.)?(?P<dtype>[A-Za-z0-9]+),timestamp=(?P<end_ns>[0-9.]+)"
    r",sub_operations="
)
_CALL_START = "trace_src_func="
_CALL = (
    r"(?P<caller>[A-Za-z0-9_]+),duration=(?P<duration_ns>[0-9.]+),timestamp=(?P<end_ns>[0-9.]+)"
    r",input__shape=(?P<shape>\[[0-9, ]*\]),input__dtype=torch\.(?P<dtype>[a-z0-9]+)"
    r",func_name=(?P<tensor>[A-Za-z0-9_]+),group=(?P<group>[a-z_]+),comm_func=(?P<func>[a-z_]+)"
)
_INTEGERS = {"rank", "stage_id"}
_TIMES = {"duration_ns", "end_ns"}


def _names(expression: str) -> list[str]:
    return list(re.compile(expression).groupindex)


def _python(source: Path, target: Path) -> None:
    in_processes(source, target, _parse)


def _parse(text: str) -> dict[str, Columns]:
    """Columns of a piece of a file whose lines count from 1."""
    op, call = re.compile(_OP), re.compile(_CALL_START + _CALL)
    ops: list[tuple[Any, ...]] = []
    calls: list[tuple[Any, ...]] = []
    for number, line in enumerate(text.splitlines(), 1):
        found = op.match(line)
        if found:
            ops.append((number, *found.groups()))
            matches = call.findall(line, found.end())
            calls.extend((number, place, *match) for place, match in enumerate(matches))
    return {
        "ops": _arrays(["line", *_names(_OP)], ops),
        "comms": _arrays(["line", "sub_seq", *_names(_CALL)], calls),
    }


def _arrays(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Columns:
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = {}
    for name, values in zip(names, zip(*rows, strict=True), strict=True):
        column = pa.array(values)
        if name in _TIMES:
            ticks = pc.round(pc.multiply(column.cast(pa.float64()), float(_TICKS_PER_MS)))
            column = pc.multiply(ticks.cast(pa.int64()), _NS_PER_TICK)
        elif name in _INTEGERS:
            column = column.cast(pa.int32())
        elif name not in ("line", "sub_seq"):
            coded = column.dictionary_encode()
            texts = [None if text == "None" else text for text in coded.dictionary.to_pylist()]
            if name == "shape":
                shapes = [text and [int(size) for size in text[1:-1].split(",")] for text in texts]
                column = pa.array(shapes, pa.list_(pa.int64())).take(coded.indices)
            else:
                column = pa.array(texts, pa.string()).take(coded.indices)
        columns[name] = column
    return columns


def _polars(source: Path, target: Path) -> None:
    import polars as pl

    def typed(name: str) -> pl.Expr:
        column = pl.col(name)
        if name in _TIMES:
            return (column.cast(pl.Float64) * _TICKS_PER_MS).round().cast(pl.Int64) * _NS_PER_TICK
        if name in _INTEGERS:
            return column.cast(pl.Int32)
        stated = pl.when(column != "None").then(column)
        if name == "shape":
            return stated.str.strip_chars("[]").str.split(", ").cast(pl.List(pl.Int64)).alias(name)
        return stated.alias(name)

    lines = pl.scan_lines(source, name="text", row_index_name="line", row_index_offset=1)
    text = pl.col("text")
    ops = lines.select("line", text.str.extract_groups(_OP)).unnest("text")
    calls = (
        lines.select("line", text.str.split(_CALL_START).list.slice(1))
        .with_columns(sub_seq=pl.int_ranges(pl.col("text").list.len()))
        .explode("text", "sub_seq", empty_as_null=False)
        .with_columns(text.str.extract_groups(f"^{_CALL}"))
        .unnest("text")
    )
    sinks = []
    for relation, frame, keys, expression in (
        ("ops", ops, ["line"], _OP),
        ("comms", calls, ["line", "sub_seq"], _CALL),
    ):
        (target / relation).mkdir(parents=True)
        rows = frame.select(*keys, *map(typed, _names(expression)))
        path = target / relation / "part.parquet"
        sinks.append(rows.sink_parquet(path, compression="zstd", lazy=True))
    pl.collect_all(sinks, engine="streaming")


def _duckdb(source: Path, target: Path) -> None:
    import duckdb

    def typed(name: str) -> str:
        column = f'found."{name}"'
        if name in _TIMES:
            ticks = f"round({column}::DOUBLE * {_TICKS_PER_MS})::BIGINT"
            return f'{ticks} * {_NS_PER_TICK} AS "{name}"'
        if name in _INTEGERS:
            return f'{column}::INTEGER AS "{name}"'
        kind = "::BIGINT[]" if name == "shape" else ""
        return f"""nullif({column}, 'None'){kind} AS "{name}" """

    def found(column: str, expression: str) -> str:
        plain = re.sub(r"\?P<\w+>", "", expression)
        return f"regexp_extract({column}, '{plain}', {_names(expression)}) AS found"

    connection = duckdb.connect()
    connection.execute(f"CREATE VIEW lines AS {lines_of(source)}")
    # One thread numbers the lines: what it hands over is a table that all threads then read.
    connection.execute(
        f"""
        CREATE TEMP TABLE calls AS
        SELECT line, generate_subscripts(calls, 1) - 1 AS sub_seq, unnest(calls) AS text
        FROM (SELECT line, string_split(text, '{_CALL_START}')[2:] AS calls FROM lines)
        """
    )
    for relation, table, keys, expression in (
        ("ops", "lines", ["line"], _OP),
        ("comms", "calls", ["line", "sub_seq"], f"^{_CALL}"),
    ):
        columns = ", ".join([*keys, *map(typed, _names(expression))])
        rows = f"SELECT *, {found('text', expression)} FROM {table}"
        write(connection, f"SELECT {columns} FROM ({rows})", target / relation)


PEERS = {"python": _python, "polars": _polars, "duckdb": _duckdb}
