"""Print results: a table for people, other formats for programs.

Modules for one format are imported on use, because the import takes longer than most queries.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeAlias

import pyarrow as pa
from rich.cells import cell_len

from tracelake.base.errors import UsageError
from tracelake.base.figures import count
from tracelake.base.files import output
from tracelake.base.text import json_text, pasteable, printable
from tracelake.warehouse.values import distinct, jsonable, named_rows, rows_of, values_of

if TYPE_CHECKING:
    from rich.console import Console

# A table is for people; a longer one is cut, with a note.
TABLE_ROWS = 10_000
# Formats that can have one result only.
ONE_RESULT = {"json": "a JSON document", "parquet": "a Parquet file"}
# Minimum width of a folded column.
_FOLDED = 12

Result: TypeAlias = pa.Table | pa.RecordBatchReader | Iterable[pa.RecordBatchReader]


def write_result(result: Result, fmt: str, out: TextIO | Path) -> None:
    """Write a result, or several one after another.

    `table` fits a terminal and is plain text elsewhere; `csv`, `ndjson`, `markdown` and `parquet`
    stream. JSON has null for NaN and infinities, objects for maps and structs, base64 for binary;
    times are `YYYY-MM-DD HH:MM:SS` with their fraction. CSV has every text unchanged, except on a
    terminal. In JSON and Parquet the second column `a` is `a_1`.

    Args:
        fmt: One of those above, or `json`.
        out: File, or text stream; `parquet` goes to its `buffer`.
        result: One alone for those of `ONE_RESULT`.

    Raises:
        UsageError: The file cannot be written.
    """
    if isinstance(out, Path):
        with output(out) as stream, io.TextIOWrapper(stream, encoding="utf-8") as text:
            write_result(result, fmt, text)
        return
    one = result.to_reader() if isinstance(result, pa.Table) else result
    for number, reader in enumerate([one] if isinstance(one, pa.RecordBatchReader) else one):
        if number and fmt in {"table", "markdown", "csv"}:
            out.write("\n")
        _WRITERS[fmt](reader, out)
    out.flush()


# --- for people -----------------------------------------------------------------------


def _write_table(reader: pa.RecordBatchReader, out: TextIO) -> None:
    schema, more = reader.schema, 0
    rows: list[list[str]] = []
    for batch in reader:
        room = TABLE_ROWS - len(rows)
        rows += [[pasteable(_cell(one)) for one in row] for row in rows_of(batch.slice(0, room))]
        more += max(0, batch.num_rows - room)
    if schema.names == ["explain_key", "explain_value"]:
        out.writelines(f"{text}\n" for _, text in rows)
        return
    right = [_is_number(field.type) for field in schema]
    names = list(map(printable, schema.names))
    if out.isatty():
        _draw(names, right, rows, out)
    else:
        out.writelines(f"{line}\n" for line in _lines(names, right, rows))
    if more:
        out.write(f"({count(more)} more rows; --format csv, ndjson or parquet prints all)\n")


def _lines(names: list[str], right: list[bool], rows: list[list[str]]) -> Iterator[str]:
    """Yield heading and rows as lines of aligned columns."""
    shown = [names, *rows]
    widths = [max(map(_width, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        yield "  ".join(map(_pad, row, widths, right)).rstrip()


def _draw(names: list[str], right: list[bool], rows: list[list[str]], out: TextIO) -> None:
    """Draw on a terminal: lines if they fit, a table with folded cells, or a record per row."""
    from rich.table import Table
    from rich.text import Text

    from tracelake.base.drawing import console_of

    console = console_of(out)
    heading, *lines = _lines(names, right, rows)
    if max(map(cell_len, (heading, *lines))) <= console.width:
        console.print(Text(heading, style="bold"))
        out.writelines(f"{line}\n" for line in lines)
        return
    least = [min(_FOLDED, max(map(_width, column))) for column in zip(names, *rows, strict=True)]
    if sum(least) + 3 * len(names) + 1 > console.width:
        _draw_records(names, rows, console)
        return
    table = Table(header_style="bold")
    for name, number in zip(names, right, strict=True):
        table.add_column(Text(name), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table, soft_wrap=False)


def _draw_records(names: list[str], rows: list[list[str]], console: Console) -> None:
    """Draw each row as a record, a line per value, if the columns do not fit."""
    from rich.text import Text

    width = max(map(cell_len, names))
    for number, row in enumerate(rows, 1):
        console.print(Text(f"row {count(number)}", style="bold"))
        for name, value in zip(names, row, strict=True):
            if value:
                console.print(Text(f"  {_pad(name, width, False)}  {value}"))


def _write_markdown(reader: pa.RecordBatchReader, out: TextIO) -> None:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"

    out.write(line(map(printable, reader.schema.names)))
    out.write(line("---:" if _is_number(field.type) else "---" for field in reader.schema))
    for batch in reader:
        out.writelines(
            line(_cell(value).replace("\n", "<br>") for value in row) for row in rows_of(batch)
        )


def _cell(value: object) -> str:
    """Return a value for people, without control characters."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case float():
            # Six digits of what rounds to a million would be 1e+06.
            digits = ".6g" if abs(value) < 999_999.5 or not math.isfinite(value) else ".1f"
            return f"{value:{digits}}"
        case str():
            return printable(value)
        case int() | Decimal():
            return str(value)
    return printable(_as_text(value))


def _width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _pad(text: str, width: int, right: bool) -> str:
    flat = text.replace("\n", "\\n")
    space = " " * (width - cell_len(flat))
    return space + flat if right else flat + space


def _is_number(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    )


# --- for programs ------------------------------------------------------------------------


def _write_json(reader: pa.RecordBatchReader, out: TextIO) -> None:
    comma = "["
    for text in _json_rows(reader):
        out.write(f"{comma}\n{text}")
        comma = ","
    out.write("[]\n" if comma == "[" else "\n]\n")


def _write_ndjson(reader: pa.RecordBatchReader, out: TextIO) -> None:
    for text in _json_rows(reader):
        out.write(f"{text}\n")


def _json_rows(reader: pa.RecordBatchReader) -> Iterator[str]:
    return (json_text(row) for batch in reader for row in named_rows(batch))


def _write_csv(reader: pa.RecordBatchReader, out: TextIO) -> None:
    import pyarrow.csv as pacsv

    schema = pa.schema([(field.name, _csv_type(field.type)) for field in reader.schema])
    sink = pa.BufferOutputStream()
    pacsv.write_csv(schema.empty_table(), sink)
    shown = printable if out.isatty() else str
    out.write(shown(sink.getvalue().to_pybytes().decode()))
    options = pacsv.WriteOptions(include_header=False, quoting_style="needed")
    for batch in reader:
        arrays = [_csv_array(a, f.type) for a, f in zip(batch.columns, schema, strict=True)]
        sink = pa.BufferOutputStream()
        pacsv.write_csv(pa.RecordBatch.from_arrays(arrays, schema=schema), sink, options)
        out.write(shown(sink.getvalue().to_pybytes().decode()))


def _csv_type(type_: pa.DataType) -> pa.DataType:
    """Return text for types that CSV cannot represent."""
    simple = _is_number(type_) or pa.types.is_boolean(type_) or pa.types.is_string(type_)
    return type_ if simple else pa.string()


def _csv_array(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if array.type == type_:
        return array
    return pa.array([None if v is None else _as_text(v) for v in values_of(array)], type_)


def _as_text(value: object) -> str:
    """Return a value other than a number as one text: JSON for structured values."""
    plain = jsonable(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _write_parquet(reader: pa.RecordBatchReader, out: TextIO) -> None:
    import pyarrow.parquet as pq

    names = distinct(reader.schema.names)
    schema = pa.schema(
        field.with_name(name) for field, name in zip(reader.schema, names, strict=True)
    )
    try:
        writer = pq.ParquetWriter(out.buffer, schema, compression="zstd")
    except pa.ArrowNotImplementedError as error:
        raise UsageError(
            f"Parquet has no type for a column of the result: {error}",
            hint="cast the column to text, like column::VARCHAR, or give another --format",
        ) from None
    with writer:
        for batch in reader:
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))


_WRITERS: dict[str, Callable[[pa.RecordBatchReader, TextIO], None]] = {
    "table": _write_table,
    "json": _write_json,
    "ndjson": _write_ndjson,
    "csv": _write_csv,
    "parquet": _write_parquet,
    "markdown": _write_markdown,
}
