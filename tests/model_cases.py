"""Hand-worked model cases: base rows in, rows of one model out; see tests/models/."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from tests.tiny_lakes import with_meanings
from tracelake.models.base import create_empty_tables
from tracelake.models.catalog import Catalog
from tracelake.models.compute import compute, connect
from tracelake.schema.tables import Column, columns, tables

ROOT = Path(__file__).parent / "models"
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class PipeTable:
    """A table as it is written in a case: a header and rows of cells, separated by bars."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def parse(cls, text: str) -> PipeTable:
        lines = [line for line in text.splitlines() if line.strip()]
        cells = [tuple(cell.strip() for cell in line.split("|")) for line in lines]
        header, *rows = cells
        for line, row in zip(lines[1:], rows, strict=True):
            if len(row) != len(header):
                raise ValueError(f"{len(row)} cells under {len(header)} columns: {line}")
        return cls(header, tuple(rows))

    def of(self, prefix: str) -> PipeTable:
        """The table with a prefix before every run's name."""
        at = self.header.index("run_id")
        rows = ((*row[:at], f"{prefix}{row[at]}", *row[at + 1 :]) for row in self.rows)
        return PipeTable(self.header, tuple(rows))


@dataclass(frozen=True)
class Case:
    """One file of `tests/models/<model>/`."""

    path: Path
    doc: str
    inputs: Mapping[str, PipeTable]
    expected: PipeTable

    @property
    def model(self) -> str:
        return self.path.parent.name

    @property
    def prefix(self) -> str:
        """What tells its runs from those of other cases."""
        return f"{self.model}/{self.path.stem}/"

    @classmethod
    def read(cls, path: Path) -> Case:
        entry = tomllib.loads(path.read_text(encoding="utf-8"))
        if set(entry) != {"doc", "input", "expect"} or set(entry["expect"]) != {"rows"}:
            raise ValueError(f"{path}: a case has doc, [input] and [expect] rows")
        inputs = {name: PipeTable.parse(text) for name, text in entry["input"].items()}
        return cls(path, entry["doc"], inputs, PipeTable.parse(entry["expect"]["rows"]))


def cases() -> Iterator[Case]:
    for path in sorted(ROOT.glob("*/*.toml")):
        yield Case.read(path)


@contextmanager
def computed(cases: Sequence[Case], catalog: Catalog) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the models per run of all cases, whose runs have the case in their names.

    DuckDB plans a model in milliseconds whatever its rows, and no run sees another.
    """
    with connect() as con:
        con.execute(catalog.macros)
        create_empty_tables(con)
        for case in cases:
            for name, given in case.inputs.items():
                insert(con, name, given.of(case.prefix))
        for model in catalog.per_run:
            compute(con, model)
        yield con


def rows_of(case: Case, catalog: Catalog, con: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    """Rows of the case's model, in the columns the case names, by the model's grain."""
    fleet = [model for model in catalog.upstream([case.model]) if model.fleet]
    read = {case.model}.union(*(catalog.inputs[model.name] for model in fleet))
    con.execute("BEGIN")
    try:
        for name in read - {model.name for model in fleet}:
            con.execute(
                f"CREATE OR REPLACE TABLE {name} AS SELECT * REPLACE (substr(run_id, $2) AS run_id)"
                f" FROM {name} WHERE starts_with(run_id, $1)",
                [case.prefix, len(case.prefix) + 1],
            )
        for model in fleet:
            compute(con, model)
        shown = ", ".join(f'"{name}"' for name in case.expected.header)
        keys = ", ".join(f'"{name}"' for name in catalog.models[case.model].grain)
        return con.execute(f"SELECT {shown} FROM {case.model} ORDER BY {keys}").fetchall()
    finally:
        con.execute("ROLLBACK")


def expected_rows(
    case: Case, catalog: Catalog, con: duckdb.DuckDBPyConnection
) -> list[tuple[Any, ...]]:
    """The rows a case expects, as values of the model's types."""
    by_name = {column.name: column for column in catalog.columns[case.model]}
    shown = [by_name[name] for name in case.expected.header]
    rows = case.expected.rows
    return con.execute(f"FROM ({_values(shown, rows)})").fetchall() if rows else []


def insert(con: duckdb.DuckDBPyConnection, table: str, given: PipeTable) -> None:
    """Inserts rows into a base table; columns that are not named are NULL."""
    known = {column.name for column in tables()[table].columns}
    if unknown := set(given.header) - known:
        raise ValueError(f"{table} has no column {', '.join(sorted(unknown))}")
    given = _with_meanings(table, given)
    shown = [columns()[name] for name in given.header]
    names = ", ".join(f'"{name}"' for name in given.header)
    if given.rows:
        con.execute(f"INSERT INTO {table} ({names}) {_values(shown, given.rows)}")


def _with_meanings(table: str, given: PipeTable) -> PipeTable:
    """The table with what `tests.tiny_lakes` adds to rows; a column that is written stays."""
    if not given.rows:
        return given
    told = [
        {
            name: None if cell == "NULL" else cell
            for name, cell in zip(given.header, row, strict=True)
        }
        for row in given.rows
    ]
    rows = [with_meanings(table, row) for row in told]
    header = (*given.header, *(name for name in rows[0] if name not in given.header))
    cells = (
        tuple("NULL" if row[name] is None else str(row[name]) for name in header) for row in rows
    )
    return PipeTable(header, tuple(cells))


def differences(actual: Sequence[tuple[Any, ...]], expected: Sequence[tuple[Any, ...]]) -> str:
    """What differs, one line per row; empty where nothing does."""
    lines = []
    for number in range(max(len(actual), len(expected))):
        got = actual[number] if number < len(actual) else None
        want = expected[number] if number < len(expected) else None
        if got is None or want is None or not all(map(_same, got, want)):
            lines.append(f"row {number}: got {got}, want {want}")
    return "\n".join(lines)


def _same(got: object, want: object) -> bool:
    if isinstance(got, float) and isinstance(want, float):
        return abs(got - want) <= _TOLERANCE * max(abs(got), abs(want))
    return got == want


def _values(shown: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """Rows as they stand, in that order."""
    return "VALUES " + ", ".join(f"({', '.join(map(_literal, shown, row))})" for row in rows)


def _literal(column: Column, cell: str) -> str:
    """A cell as SQL: text and lists are taken as they stand, all else is a constant expression."""
    if cell == "NULL":
        return f"NULL::{column.type}"
    if column.type in {"VARCHAR", "TIMESTAMP"} or column.type.endswith("[]"):
        cell = "'" + cell.replace("'", "''") + "'"
    return f"CAST({cell} AS {column.type})"
