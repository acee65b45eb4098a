"""Define the parts that a build could not read as a relation beside tables and models."""

from __future__ import annotations

import functools

from tracelake.schema.tables import PARTITION_KEY, Column, Table, columns


@functools.cache
def lost_table() -> Table:
    """Return the relation that queries and models see: a row per run and part that is lost."""
    return Table(
        "lost",
        "Part files that are missing or damaged. Their runs are in no other table.",
        (
            columns()[PARTITION_KEY],
            Column("part", "VARCHAR", "Part file, relative to the lake."),
            Column("damage", "VARCHAR", "missing or damaged."),
        ),
    )
