"""Describe tables, models and columns as a table: meaning and unit."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tracelake.base.errors import unknown
from tracelake.lake.losses import lost_table
from tracelake.lake.run_records import records_table
from tracelake.models.catalog import catalog
from tracelake.schema.tables import Column, tables


def describe(name: str | None = None) -> pa.Table:
    """Return all relations, or the columns of one.

    Args:
        name: A base table, a public model, or the record of commands.

    Raises:
        UsageError: There is no such relation.
    """
    if name is None:
        base = (*tables().values(), lost_table())
        rows: list[tuple[str | None, ...]] = [(t.name, "table", None, t.doc) for t in base]
        rows.append((records_table().name, "record", None, records_table().doc))
        for public in sorted(catalog().public):
            model = catalog().models[public]
            kind = "fleet model" if model.fleet else "model"
            rows.append((public, kind, ", ".join(model.grain), model.doc))
        return text_table(("name", "kind", "grain", "doc"), rows)
    columns = [(c.name, c.type, c.unit, c.doc) for c in relation_columns(name)]
    return text_table(("column", "type", "unit", "doc"), columns)


def relation_columns(name: str) -> tuple[Column, ...]:
    """Return columns of a base table, a public model or the record of commands, in order.

    Raises:
        UsageError: There is no such relation.
    """
    named = {table.name: table for table in (*tables().values(), records_table(), lost_table())}
    if name in named:
        return named[name].columns
    if name in catalog().public:
        return catalog().columns[name]
    known = [*named, *catalog().public]
    raise unknown("no table or model", name, known, "list tables with: tracelake describe")


def text_table(names: Sequence[str], rows: Sequence[tuple[str | None, ...]]) -> pa.Table:
    """Return rows of texts as a table."""
    return pa.table(
        {name: pa.array([row[n] for row in rows], pa.string()) for n, name in enumerate(names)}
    )
