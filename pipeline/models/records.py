"""Define the lake's record of commands as a relation beside tables and models."""

from __future__ import annotations

from pathlib import Path

from tracelake.lake.run_records import records_file, records_table
from tracelake.models.base import literal, nothing, quoted


def records_view(root: Path) -> str:
    """Return SQL of a temporary view of a lake's record; empty if there is none yet.

    Each connection to the warehouse creates it again: entries appear without a build, and a lake
    that was moved has them in its new place.
    """
    table, path = records_table(), records_file(root)
    if path.is_file():
        types = ", ".join(f"{literal(c.name)}: {literal(c.type)}" for c in table.columns)
        select = (
            f"FROM read_json({literal(str(path))}, format = 'newline_delimited',"
            f" columns = {{{types}}})"
        )
    else:
        select = nothing({c.name: c.type for c in table.columns})
    return f"CREATE TEMP VIEW {quoted(table.name)} AS {select}"
