"""What the peers of several formats share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

Columns = dict[str, Any]
Parse = Callable[[str], dict[str, Columns]]

_PIECE_BYTES = 16 << 20


def in_processes(source: Path, target: Path, parse: Parse, starts_with: bytes = b"") -> None:
    """Parses pieces of a file, a process per processor, each of which writes Parquet of its own.

    Args:
        parse: Gives the columns of every relation for the text of whole lines; `line` counts from
            1 in each piece.
        starts_with: How a line begins before which the file may be cut.
    """
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = [
            pool.submit(_work, source, target, parse, number, *piece)
            for number, piece in enumerate(_pieces(source, starts_with))
        ]
        for job in jobs:
            job.result()


def in_one_process(source: Path, target: Path, parse: Parse, starts_with: bytes = b"") -> None:
    """The same without other processes, one piece after the other."""
    for number, piece in enumerate(_pieces(source, starts_with)):
        _work(source, target, parse, number, *piece)


def _pieces(source: Path, starts_with: bytes) -> Iterator[tuple[int, int, int]]:
    """Start, size and lines before it of every piece."""
    start = lines = 0
    left = b""
    with source.open("rb") as file:
        while read := file.read(_PIECE_BYTES):
            piece = left + read + file.readline()
            left = b""
            while (line := file.readline()) and not (left := line).startswith(starts_with):
                piece += line
                left = b""
            yield start, len(piece), lines
            start += len(piece)
            lines += piece.count(b"\n")
    if left:
        yield start, len(left), lines


def _work(
    source: Path, target: Path, parse: Parse, number: int, start: int, size: int, lines: int
) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with source.open("rb") as file:
        file.seek(start)
        text = file.read(size).decode()
    for relation, columns in parse(text).items():
        columns["line"] = pc.add(columns["line"], lines)
        (target / relation).mkdir(parents=True, exist_ok=True)
        path = target / relation / f"part-{number:05}.parquet"
        pq.write_table(pa.table(columns), path, compression="zstd")


def names_of(expression: str) -> list[str]:
    """Names of an expression's groups, in their order."""
    return list(re.compile(expression).groupindex)


def lines_of(source: Path) -> str:
    """DuckDB query for the numbered lines of a file."""
    return f"""
        SELECT row_number() OVER () AS line, text
        FROM read_csv('{source}', columns = {{'text': 'VARCHAR'}}, delim = '\x01', quote = '',
            escape = '', header = false, auto_detect = false)
    """


def extract(column: str, expression: str) -> str:
    """DuckDB call that gives an expression's groups as a struct, of empty texts without a match."""
    plain = re.sub(r"\?P<\w+>", "", expression)
    return f"regexp_extract({column}, '{plain}', {names_of(expression)})"


def write(connection: duckdb.DuckDBPyConnection, query: str, folder: Path) -> None:
    """Writes DuckDB's rows into a new folder."""
    folder.mkdir(parents=True)
    path = folder / "part.parquet"
    connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)")
