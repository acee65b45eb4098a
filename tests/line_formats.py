"""Every LineFormat with lines of its own: the registered ones, and the example of the docs.

`read_by_python` is what a LineFormat must give, one line at a time by Python's own expressions and
decimals.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Context as Precision
from decimal import Decimal
from typing import Any

from tests.conftest import ROOT
from tests.golden_cases import GOLDEN
from tracelake.formats import formats
from tracelake.formats.lines import Context, Irrelevant, LineFormat, Record, Row, columns_of
from tracelake.formats.readers import ANSI, PREFIX, TAG, BadValueError
from tracelake.schema.tables import columns, tables

PAGE = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")
_CODE = re.compile(r'```\w+ title="([^"]+)"\n(.*?)```', re.DOTALL)
_TEXT = re.compile(r"```text\n(.*?)```", re.DOTALL)
_BITS = {"INTEGER": 31, "BIGINT": 63}
_FORMS = {
    **dict.fromkeys(_BITS, "[+-]?[0-9]+"),
    "DOUBLE": r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(nan|inf)",
}
_EXACT = Precision(prec=1000)


def printed_files() -> dict[str, str]:
    """The files of docs/extend.md by path."""
    return dict(_CODE.findall(PAGE))


def printed_input() -> str:
    """The input that docs/extend.md shows."""
    (text,) = _TEXT.findall(PAGE)
    return str(text)


def line_formats() -> dict[str, tuple[LineFormat, list[bytes]]]:
    """Each LineFormat by name, with files of it, the largest first."""
    found = {
        name: (fmt, sorted(_golden(name), key=len, reverse=True))
        for name, fmt in formats().items()
        if isinstance(fmt, LineFormat)
    }
    names: dict[str, Any] = {}
    exec(printed_files()["pipeline/formats/step_lines.py"], names)
    return {**found, "step_lines": (names["FORMAT"], [printed_input().encode()])}


def _golden(name: str) -> list[bytes]:
    return [p.read_bytes() for p in GOLDEN.glob(f"{name}/*/input/**/*") if p.is_file()]


def _taken_out(text: str) -> str:
    """A line of docker's files without the object of JSON around it."""
    try:
        said = json.loads(text)["log"] if text.startswith('{"log"') else text
    except (ValueError, KeyError):
        return text
    return str(said).rstrip("\r\n")


def read_by_python(fmt: LineFormat, data: bytes) -> list[tuple[int, str, Any]]:
    """(number, what it is, row or reason) of every line with its end; a row is by column."""
    held: dict[int, dict[str, Any]] = {}
    reader = fmt.reader(fmt.facts("a.log", data)) if fmt.reader else None
    found: list[tuple[int, str, Any]] = []
    for number, raw in enumerate(data.split(b"\n")[:-1], 1):
        kept = raw.removesuffix(b"\r").decode("utf-8", "surrogateescape")
        whole = re.sub(r"[\udc80-\udcff]", " ", kept)
        text = re.sub(ANSI, "", whole)
        if fmt.prefixed:
            text = re.sub(PREFIX, "", re.sub(TAG, "", _taken_out(text)), count=1)
        for place, kind in enumerate(fmt.lines):
            if match := re.compile(kind.pattern, re.ASCII).fullmatch(text):
                if whole != kept and (isinstance(kind, Record) or columns_of(kind.pattern)):
                    found.append((number, "reject", "not_utf8"))
                elif isinstance(kind, Record):
                    found += [(number, *one) for one in _rows(reader, text)]
                else:
                    found.append((number, *_read(kind, place, match, held)))
                break
        else:
            found.append((number, "reject", "not_utf8" if whole != kept else "unknown_line"))
    return found


def _rows(reader: Any, text: str) -> list[tuple[str, Any]]:
    """What the reader makes of a line, a value for each row; golden cases have its faults."""
    try:
        made = reader.read(text)
    except BadValueError:
        return [("reject", "bad_value")]
    if isinstance(made, str):
        return [("reject", made)]
    made = [(table, row) for table, row in made if isinstance(table, str)]
    names = {table: [column.name for column in tables()[table].stored] for table, _ in made}
    rows: list[tuple[str, Any]] = [
        (table, {c: row[c] for c in names[table] if row.get(c) is not None}) for table, row in made
    ]
    return rows or [("context", None)]


def _read(
    kind: Any, place: int, match: re.Match[str], held: dict[int, dict[str, Any]]
) -> tuple[str, Any]:
    if isinstance(kind, Irrelevant):
        return "irrelevant", kind.kind
    if not isinstance(kind, Row | Context):
        return "reject", kind.reason
    values: dict[str, Any] = {}
    for group, (column, digits) in columns_of(kind.pattern).items():
        values[column] = None if not match[group] else _value(column, match[group], digits)
    if isinstance(kind, Context):
        bad = ValueError in values.values()
        held[place] = dict.fromkeys(values) if bad else values
        return ("reject", "bad_value") if bad else ("context", None)
    table = tables()[kind.table]
    stored = {column.name for column in table.stored}
    for said in held.values():
        values = {**{c: v for c, v in said.items() if c in stored}, **values}
    needed = table.required - {"source_id", "line"}
    if ValueError in values.values() or any(values.get(column) is None for column in needed):
        return "reject", "bad_value"
    return kind.table, {column: v for column, v in values.items() if v is not None}


def _value(column: str, text: str, digits: int | None) -> Any:
    """The value of a text, or ValueError where the column cannot hold it."""
    kind = columns()[column].type
    if kind == "VARCHAR":
        return text
    form = r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?" if digits is not None else _FORMS[kind]
    if not re.fullmatch(form, text):
        return ValueError
    if digits is not None:
        text = format(Decimal(text), "f") if "e" in text.lower() else text
        if len(text.partition(".")[2]) > digits:
            return ValueError
    if kind == "DOUBLE":
        return ValueError if math.isinf(float(text)) and "n" not in text else float(text)
    value = int(Decimal(text).scaleb(digits or 0, _EXACT))
    bits = _BITS[kind]
    fits = abs(value) < 2**bits if digits is not None else -(2**bits) <= value < 2**bits
    return value if fits else ValueError
