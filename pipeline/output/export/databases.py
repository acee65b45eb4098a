"""Write relations into a DuckDB or SQLite file that needs no other file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from tracelake.models.base import ddl, described, literal, quoted
from tracelake.models.compute import connect
from tracelake.schema.tables import Column
from tracelake.warehouse.values import jsonable, rows_of

# DuckDB type -> SQLite type; lists and maps become JSON text, times text.
_SQLITE = {"BOOLEAN": "INTEGER", "INTEGER": "INTEGER", "BIGINT": "INTEGER", "DOUBLE": "REAL"}
# Tables and columns with their meaning, because SQLite has no comments.
_DOCS = "_columns"


class DuckFile:
    """A DuckDB file with the declared types, and with the meaning of every column."""

    def __init__(self, path: Path) -> None:
        self._con = connect()
        # DuckDB 1.3 and later read this layout.
        self._con.execute(f"ATTACH {literal(str(path))} AS target (STORAGE_VERSION 'v1.3.0')")

    def add(
        self, name: str, doc: str, columns: Sequence[Column], rows: pa.RecordBatchReader
    ) -> None:
        """Write a relation as a table."""
        target = f"target.main.{quoted(name)}"
        self._con.execute(f"CREATE TABLE {target} ({ddl(columns)})")
        self._con.register("_rows", rows)
        self._con.execute(f"INSERT INTO {target} BY NAME FROM _rows")
        self._con.unregister("_rows")
        self._con.execute(";".join(described("TABLE", target, doc, columns)))

    def close(self) -> None:
        """Write all of it to the file."""
        self._con.execute("DETACH target")
        self._con.close()


class SqliteFile:
    """An SQLite file; `_columns` has the meaning of every table and column."""

    def __init__(self, path: Path) -> None:
        self._con = sqlite3.connect(path, isolation_level=None)
        self._con.execute("PRAGMA journal_mode = OFF")
        self._con.execute("BEGIN")
        self._con.execute(f"CREATE TABLE {_DOCS} (name, column, type, unit, doc)")

    def add(
        self, name: str, doc: str, columns: Sequence[Column], rows: pa.RecordBatchReader
    ) -> None:
        """Write a relation as a table."""
        typed = ", ".join(f"{quoted(c.name)} {_SQLITE.get(c.type, 'TEXT')}" for c in columns)
        self._con.execute(f"CREATE TABLE {quoted(name)} ({typed})")
        docs = [(name, None, None, None, doc)]
        docs += [(name, c.name, c.type, c.unit, c.doc) for c in columns]  # type: ignore[misc]
        self._con.executemany(f"INSERT INTO {_DOCS} VALUES (?, ?, ?, ?, ?)", docs)
        places = ", ".join("?" * len(columns))
        insert = f"INSERT INTO {quoted(name)} VALUES ({places})"
        for batch in rows:
            self._con.executemany(insert, (tuple(map(_value, row)) for row in rows_of(batch)))

    def close(self) -> None:
        """Write all of it to the file."""
        self._con.execute("COMMIT")
        self._con.close()


def _value(value: object) -> object:
    """Return a value that SQLite can hold."""
    plain = jsonable(value)
    if isinstance(plain, list | dict):
        return json.dumps(plain, ensure_ascii=False)
    return float(plain) if isinstance(plain, Decimal) else plain
