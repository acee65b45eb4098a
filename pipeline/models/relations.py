"""Create files with relations without rows, which are stored: each takes hundreds of statements.

A warehouse starts as one, with a description of each column. Models are computed beside another,
whose tables stand for the relations that have no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import duckdb

from tracelake.base.disk_cache import cache_of
from tracelake.lake.losses import lost_table
from tracelake.models.base import copy_of, ddl, described, literal, quoted, select_parts
from tracelake.models.catalog import Catalog
from tracelake.models.compute import connect
from tracelake.models.state import CATALOG
from tracelake.schema.tables import Column, tables

# Layout of the file. DuckDB 1.3 (2025) and later read it; that of 2.0 saves 1 % and is read by 2.0
# alone. With blocks of the usual 256 kB, most relations would take one that is nearly empty.
_STORAGE = "STORAGE_VERSION 'v1.3.0', BLOCK_SIZE 16384"


def target(name: str) -> str:
    """Return a relation of the warehouse that is being filled, as an SQL identifier."""
    return f"{CATALOG}.main.{quoted(name)}"


def write_warehouse(path: Path, models: Catalog) -> None:
    """Write a warehouse file without runs."""
    _write(path, "warehouse", _relations(models))


def write_blank(folder: Path, models: Catalog) -> Path:
    """Write a file with the macros, and every relation that models read as an empty table."""
    path = folder / "blank.duckdb"
    path.unlink(missing_ok=True)
    shown = {table.name: table.columns for table in (*tables().values(), lost_table())}
    shown |= models.columns
    made = (f"CREATE TABLE {target(name)} ({ddl(columns)})" for name, columns in shown.items())
    macros = models.macros.replace("CREATE TEMP ", "CREATE ")  # for all connections to the file
    _write(path, "blank", (macros, *made))
    return path


def _write(path: Path, kind: str, statements: Iterable[str]) -> None:
    """Write a file that these statements make, or copy the stored one."""
    script = ";".join(("BEGIN", f"USE {CATALOG}", *statements, "COMMIT"))

    def made() -> bytes:
        with connect() as con:
            con.execute(f"ATTACH {literal(str(path))} AS {CATALOG} ({_STORAGE})")
            con.execute(script)
            con.execute("USE memory")
            con.execute(f"DETACH {CATALOG}")
        return path.read_bytes()

    kept = cache_of(kind, script, _STORAGE, duckdb.__version__)
    path.write_bytes(kept.made("empty.duckdb", made))


def view(name: str, select: str, doc: str, shown: Sequence[Column]) -> str:
    """Return the statements that make a view of a SELECT, in place of one of that name."""
    made = f"CREATE OR REPLACE VIEW {target(name)} AS {select}"
    return ";".join((made, *described("VIEW", target(name), doc, shown)))


def _relations(models: Catalog) -> Iterator[str]:
    for name, model in models.in_warehouse.items():
        yield from _table(name, model.doc, models.columns[name])
    lost = lost_table()
    yield from _table(lost.name, lost.doc, lost.columns)
    for name, table in tables().items():
        select = select_parts(table, "", ())
        if name in models.copied:
            yield f"CREATE TABLE {target(copy_of(name))} ({ddl(table.columns)})"
            select = f"FROM {quoted(copy_of(name))}"
        yield view(name, select, table.doc, table.columns)
    for name in sorted(models.in_parts):
        table = models.table(name)
        yield view(name, select_parts(table, "", ()), table.doc, table.columns)


def _table(name: str, doc: str, shown: Sequence[Column]) -> Iterator[str]:
    yield f"CREATE TABLE {target(name)} ({ddl(shown)})"
    yield from described("TABLE", target(name), doc, shown)
