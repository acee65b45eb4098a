"""Holds what candidates wrote against the reference of a prepared input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import duckdb

from tests.bench.inputs import Fingerprint, Prepared, input_of
from tests.bench.measure import WrongAnswerError
from tracelake.formats import formats


def check_peer(prepared: Prepared, folder: Path) -> None:
    """A peer's Parquet, a folder per relation.

    Raises:
        WrongAnswerError: It says something else than the input.
    """
    connection = duckdb.connect()
    for relation in input_of(prepared.format).relations:
        files = f"read_parquet('{folder / relation.name}/*.parquet')"
        wrong = relation.differing(connection, files, prepared.expected[relation.name])
        if wrong:
            raise WrongAnswerError(f"{folder}: {relation.name} differs in {', '.join(wrong)}")


def check_lake(lake: Path, name: str, expected: Fingerprint) -> None:
    """All runs of a format in a lake.

    Raises:
        WrongAnswerError: They say something else than the inputs.
    """
    connection = open_tables(lake, formats()[name].tables)
    for relation in input_of(name).relations:
        wrong = relation.differing(connection, f"({relation.ours})", expected[relation.name])
        if wrong:
            raise WrongAnswerError(f"{lake}: {relation.name} differs in {', '.join(wrong)}")


def open_tables(lake: Path, tables: Iterable[str]) -> duckdb.DuckDBPyConnection:
    """A connection with a view of each table's files."""
    connection = duckdb.connect()
    for table in tables:
        connection.execute(
            f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{lake}/{table}/*/*/*.parquet',"
            " hive_partitioning = false, union_by_name = true)"
        )
    return connection


def check_count(lake: Path, counts: Mapping[str, int]) -> None:
    """Rows of some tables.

    Raises:
        WrongAnswerError: A table has another number of rows.
    """
    connection = open_tables(lake, counts)
    for table, expected in counts.items():
        ((found,),) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
        if found != expected:
            raise WrongAnswerError(f"{lake}: {table} has {found} rows, not {expected}")


def check_text(expected: str, output: str) -> None:
    """What a limit printed.

    Raises:
        WrongAnswerError: It begins with something else.
    """
    if output.split()[:1] != [expected]:
        raise WrongAnswerError(f"{output!r} is not {expected}")


def parquet_bytes(folder: Path) -> int:
    """Size of all Parquet files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))
