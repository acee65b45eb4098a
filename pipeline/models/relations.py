"""Create files with relations without rows, which are stored: each takes hundreds of statements.

A warehouse starts as one, with a description of each column. Models are computed beside another,
whose tables stand for the relations that have no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb

from tracelake.base.disk_cache import cache_of
from tracelake.lake.losses import lost_table
from tracelake.models.base import copy_of, ddl, described, literal, quoted, select_parts
from tracelake.models.catalog import Catalog
from tracelake.models.compute import connect
from tracelake.models.state import CATALOG
from tracelake.schema.tables import Table, tables

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


def view(table: Table, select: str) -> str:
    """Return the statements that make a relation a view of a SELECT, in place of one there is."""
    name = target(table.name)
    made = f"CREATE OR REPLACE VIEW {name} AS {select}"
    return ";".join((made, *described("VIEW", name, table.doc, table.columns)))


def _relations(models: Catalog) -> Iterator[str]:
    for table in (*map(models.table, models.in_warehouse), lost_table()):
        yield f"CREATE TABLE {target(table.name)} ({ddl(table.columns)})"
        yield from described("TABLE", target(table.name), table.doc, table.columns)
    for name, table in tables().items():
        select = select_parts(table, "", ())
        if name in models.copied:
            yield f"CREATE TABLE {target(copy_of(name))} ({ddl(table.columns)})"
            select = f"FROM {quoted(copy_of(name))}"
        yield view(table, select)
    for table in map(models.table, sorted(models.in_parts)):
        yield view(table, select_parts(table, "", ()))
