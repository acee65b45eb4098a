"""Read rows of a query, convert their values to Python and JSON, and make tables of objects."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

Row: TypeAlias = dict[str, Any]
TEXT, COUNT = pa.string(), pa.int64()


def read_rows(
    con: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object] = ()
) -> list[Row]:
    """Return rows of a query by column name, with JSON values and times as text."""
    table = con.sql(sql, params=list(parameters)).to_arrow_table()
    return [row for batch in table.to_batches() for row in named_rows(batch)]


def named_rows(batch: pa.RecordBatch) -> Iterator[Row]:
    """Yield rows of a batch by column name as in `distinct`, with JSON values."""
    names = distinct(batch.schema.names)
    for row in rows_of(batch):
        yield {name: jsonable(value) for name, value in zip(names, row, strict=True)}


def distinct(names: Sequence[str]) -> list[str]:
    """Return names of columns, each once, as DuckDB makes them: a second `a` is `a_1`."""
    found: list[str] = []
    for name in names:
        number, own = 0, name
        while own in found:
            number += 1
            own = f"{name}_{number}"
        found.append(own)
    return found


def table_from(rows: Iterable[object], /, **columns: pa.DataType) -> pa.Table:
    """Return a table with a row per object; columns are attributes of it, each with its type."""
    rows = list(rows)
    return pa.table(
        {n: pa.array([getattr(row, n) for row in rows], type_) for n, type_ in columns.items()}
    )


def rows_of(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Return rows of a batch."""
    return zip(*map(values_of, batch.columns), strict=True)


def values_of(array: pa.Array) -> list[Any]:
    """Return values of a column; times as text to the nanosecond, maps as dictionaries."""
    plain = _plain_type(array.type)
    texted = array if plain == array.type else array.cast(plain)
    if pa.types.is_temporal(array.type) and pa.types.is_string(plain):
        import pyarrow.compute as pc  # noqa: PLC0415 - a quarter of the time of a short query

        texted = pc.replace_substring_regex(texted, r"(\.\d*?)0+([+-]|$)", r"\1\2")
        texted = pc.replace_substring_regex(texted, r"\.([+-]|$)", r"\1")
    values: list[Any] = texted.to_pylist(maps_as_pydicts="strict")
    return values


def jsonable(value: object) -> object:
    """Return a value for JSON: null for NaN and infinities, base64 for binary."""
    match value:
        case Mapping():
            return {str(key): jsonable(item) for key, item in value.items()}
        case list():
            return [jsonable(item) for item in value]
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case bytes():
            return base64.b64encode(value).decode()
        case pa.MonthDayNano():
            return _interval(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the type with text in place of every time, at any depth."""
    if pa.types.is_temporal(type_) and not pa.types.is_interval(type_):
        return pa.string()
    if pa.types.is_map(type_):
        return pa.map_(_plain_type(type_.key_type), _plain_type(type_.item_type))
    if pa.types.is_list(type_):
        return pa.list_(_plain_type(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _plain_type(field.type)) for field in type_])
    return type_


def _interval(value: pa.MonthDayNano) -> str:
    months, days, nanoseconds = value
    parts = [f"{months} months"] * bool(months) + [f"{days} days"] * bool(days)
    rest = str(timedelta(microseconds=nanoseconds // 1000))
    return " ".join([*parts, rest] if nanoseconds or not parts else parts)
