"""Peers for rank traces: an expression for the line, one for each of its sub-operations.

The plain ones match the whole line, then look for sub-operations between its brackets. Cutting the
line at its sub-operations first makes polars and DuckDB half as fast again as one expression that
looks for all of them, and classes of plain ASCII thrice as fast as `\\w`, which means all of
Unicode to polars. Python is at its best with `findall`.

Times are read as floating-point ms and rounded to the 0.01 ms that the traces print, which gives
exact nanoseconds at these magnitudes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    import duckdb
    import polars as pl

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
_PLAIN_OP = (
    r"rank:(?P<rank>\d+):(?P<op>\w+)\(stage_id=(?P<stage_id>\d+),batch_id=\d+,mg_state=(?P<phase>\w+)"
    r",duration=(?P<duration_ns>[\d.]+),description=.*?,group_kind=(?P<group>\w+)"
    r",input__shape=(?P<shape>None|\[[\d, ]*\]),input__dtype=(?:torch\.)?(?P<dtype>\w+)"
    r",timestamp=(?P<end_ns>[\d.]+),sub_operations=\[(?P<calls>.*)\]\)"
)
_PLAIN_CALL = (
    r"trace_src_func=(?P<caller>\w+),duration=(?P<duration_ns>[\d.]+),timestamp=(?P<end_ns>[\d.]+)"
    r",input__shape=(?P<shape>\[[\d, ]*\]),input__dtype=torch\.(?P<dtype>\w+)"
    r",func_name=(?P<tensor>\w+),group=(?P<group>\w+),comm_func=(?P<func>\w+)"
)
_QUOTED = "'[^']+'"
_INTEGERS = {"rank", "stage_id"}
_TIMES = {"duration_ns", "end_ns"}

# The fields of an operation, and those of each of its sub-operations.
_Fields = tuple[Sequence[Any], Sequence[Sequence[Any]]]


def _python(source: Path, target: Path) -> None:
    in_processes(source, target, _parse)


def _parse(text: str) -> dict[str, Columns]:
    op, call = re.compile(_OP), re.compile(_CALL_START + _CALL)

    def read(line: str) -> _Fields | None:
        found = op.match(line)
        return found and (found.groups(), call.findall(line, found.end()))

    return _columns(text, read)


def _python_plain(source: Path, target: Path) -> None:
    in_one_process(source, target, _parse_plain)


def _parse_plain(text: str) -> dict[str, Columns]:
    op, call = re.compile(_PLAIN_OP), re.compile(_PLAIN_CALL)

    def read(line: str) -> _Fields | None:
        found = op.match(line)
        if not found:
            return None
        *fields, calls = found.groups()
        return fields, [match.groups() for match in call.finditer(calls)]

    return _columns(text, read)


def _columns(text: str, read: Callable[[str], _Fields | None]) -> dict[str, Columns]:
    """Columns of a piece of a file whose lines count from 1, given how one is read."""
    ops: list[tuple[Any, ...]] = []
    calls: list[tuple[Any, ...]] = []
    for number, line in enumerate(text.splitlines(), 1):
        found = read(line)
        if found:
            fields, matches = found
            ops.append((number, *fields))
            calls.extend((number, place, *match) for place, match in enumerate(matches))
    return {
        "ops": _arrays(["line", *names_of(_OP)], ops),
        "comms": _arrays(["line", "sub_seq", *names_of(_CALL)], calls),
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

    text = pl.col("text")
    lines = pl.scan_lines(source, name="text", row_index_name="line", row_index_offset=1)
    ops = lines.select("line", text.str.extract_groups(_OP)).unnest("text")
    calls = lines.select("line", text.str.split(_CALL_START).list.slice(1))
    _sink(ops, calls, f"^{_CALL}", target)


def _polars_plain(source: Path, target: Path) -> None:
    import polars as pl

    lines = pl.scan_lines(source, name="text", row_index_name="line", row_index_offset=1)
    ops = lines.select("line", pl.col("text").str.extract_groups(_PLAIN_OP)).unnest("text")
    calls = ops.select("line", text=pl.col("calls").str.extract_all(_QUOTED))
    _sink(ops, calls, _PLAIN_CALL, target)


def _sink(ops: pl.LazyFrame, calls: pl.LazyFrame, call: str, target: Path) -> None:
    """Writes the fields of operations, and those of `calls`: a list of texts per line."""
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

    comms = (
        calls.with_columns(sub_seq=pl.int_ranges(pl.col("text").list.len()))
        .explode("text", "sub_seq", empty_as_null=False)
        .with_columns(pl.col("text").str.extract_groups(call))
        .unnest("text")
    )
    sinks = []
    for relation, frame, keys, expression in (
        ("ops", ops, ["line"], _OP),
        ("comms", comms, ["line", "sub_seq"], _CALL),
    ):
        (target / relation).mkdir(parents=True)
        rows = frame.select(*keys, *map(typed, names_of(expression)))
        path = target / relation / "part.parquet"
        sinks.append(rows.sink_parquet(path, compression="zstd", lazy=True))
    pl.collect_all(sinks, engine="streaming")


def _duckdb(source: Path, target: Path) -> None:
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"CREATE VIEW lines AS {lines_of(source)}")
    ops = f"SELECT line, {extract('text', _OP)} AS found FROM lines"
    calls = f"SELECT line, string_split(text, '{_CALL_START}')[2:] AS calls FROM lines"
    _copy(connection, ops, calls, f"^{_CALL}", target)


def _duckdb_plain(source: Path, target: Path) -> None:
    import duckdb

    connection = duckdb.connect()
    connection.execute(
        f"""
        CREATE TEMP TABLE ops AS
        SELECT line, {extract("text", _PLAIN_OP)} AS found FROM ({lines_of(source)})
        """
    )
    calls = f"SELECT line, regexp_extract_all(found.calls, $${_QUOTED}$$) AS calls FROM ops"
    _copy(connection, "FROM ops", calls, _PLAIN_CALL, target)


def _copy(
    connection: duckdb.DuckDBPyConnection, ops: str, calls: str, call: str, target: Path
) -> None:
    """Writes the fields `found` of operations, and those of `calls`: a list of texts per line."""

    def typed(name: str) -> str:
        column = f'found."{name}"'
        if name in _TIMES:
            ticks = f"round({column}::DOUBLE * {_TICKS_PER_MS})::BIGINT"
            return f'{ticks} * {_NS_PER_TICK} AS "{name}"'
        if name in _INTEGERS:
            return f'{column}::INTEGER AS "{name}"'
        kind = "::BIGINT[]" if name == "shape" else ""
        return f"""nullif({column}, 'None'){kind} AS "{name}" """

    # One thread numbers the lines: what it hands over is a table that all threads then read.
    connection.execute(
        f"""
        CREATE TEMP TABLE calls AS
        SELECT line, generate_subscripts(calls, 1) - 1 AS sub_seq, unnest(calls) AS text
        FROM ({calls})
        """
    )
    comms = f"SELECT line, sub_seq, {extract('text', call)} AS found FROM calls"
    for relation, query, keys, expression in (
        ("ops", ops, ["line"], _OP),
        ("comms", comms, ["line", "sub_seq"], _CALL),
    ):
        columns = ", ".join([*keys, *map(typed, names_of(expression))])
        write(connection, f"SELECT {columns} FROM ({query})", target / relation)


PEERS = {
    "python": _python,
    "python_plain": _python_plain,
    "polars": _polars,
    "polars_plain": _polars_plain,
    "duckdb": _duckdb,
    "duckdb_plain": _duckdb_plain,
}
