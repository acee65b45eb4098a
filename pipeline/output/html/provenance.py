"""Trace a figure to its SQL, and to the rows of base tables behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import duckdb

from tracelake.base.text import counted
from tracelake.models.catalog import catalog
from tracelake.output.html.reading import PAGE_RUNS, page_rows
from tracelake.schema.tables import tables


@dataclass(frozen=True, slots=True)
class Source:
    """The way a relation is computed.

    Attributes:
        file: The model's file; NULL for a base table.
        sql: Its text without the header.
        tables: Base tables it is computed from, directly or not; a base table itself.
    """

    file: str | None
    sql: str | None
    tables: tuple[str, ...]


def source_of(relation: str) -> Source:
    """Return the source of a base table or model.

    Raises:
        KeyError: There is no such relation.
    """
    if relation in tables():
        return Source(None, None, (relation,))
    known = catalog()
    model = known.models[relation]
    upstream = known.upstream([relation])
    read = {name for each in upstream for name in known.inputs[each.name]}
    lines = model.sql.splitlines()
    body = next(n for n, line in enumerate(lines) if not line.startswith("--"))
    return Source(
        PurePosixPath("sql", model.path.parent.name, model.path.name).as_posix(),
        "\n".join(lines[body:]),
        tuple(name for name in tables() if name in read and name not in {"runs", "skipped"}),
    )


def count_rows(con: duckdb.DuckDBPyConnection, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return rows of base tables by run, for the runs of the page."""
    found: dict[str, dict[str, int]] = {}
    for name in names:
        rows = page_rows(
            con,
            f'SELECT run_id, count(*) AS n FROM "{name}" SEMI JOIN {PAGE_RUNS} USING (run_id)'
            " GROUP BY run_id",
        )
        for row in rows:
            found.setdefault(row["run_id"], {})[name] = row["n"]
    return found


def told(source: Source, counts: Mapping[str, int]) -> str:
    """Return the rows of a run behind a relation, as text."""
    read = [f"{counted(counts[name], 'row')} of {name}" for name in source.tables if name in counts]
    return ", ".join(read) or "no rows"
