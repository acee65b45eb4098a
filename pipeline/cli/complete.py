"""Complete words in a shell: runs of a lake, tables, formats. Fast, and without errors."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from tracelake.base.errors import ContractError
from tracelake.base.resources import resource_dir
from tracelake.schema import NO_TABLES
from tracelake.schema.format_names import format_names

_LATEST = "latest"
_SHOWN = 1000


def complete_run(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return labels, then hashes, then ids of the runs in the warehouse with this beginning."""
    lake = ctx.params.get("lake") or os.environ.get("TRACELAKE_LAKE")
    try:
        if lake is None or not Path(lake, "warehouse.duckdb").is_file():
            return []
    except OSError:
        return []
    names = dict.fromkeys([_LATEST, *_run_names(Path(lake, "warehouse.duckdb"))])
    return [name for name in names if name.startswith(incomplete)][:_SHOWN]


def _run_names(warehouse: Path) -> list[str]:
    import duckdb

    try:
        with duckdb.connect(warehouse, read_only=True) as con:
            rows = con.execute("SELECT label, hash, run_id FROM run_list ORDER BY urgency")
            return [str(name) for column in zip(*rows.fetchall(), strict=True) for name in column]
    except duckdb.Error:  # another version's, or being replaced
        return []


def complete_table(incomplete: str) -> list[str]:
    """Return base tables and public models with this beginning, by file names."""
    tables = {path.stem for path in _files("schemas", "*.toml")} - NO_TABLES
    files = [p for p in _files("sql", "*/*.sql") if p.parent.name not in ("checks", "examples")]
    public = {path.stem for path in files if not path.name.startswith("_")}
    return sorted(name for name in tables | public if name.startswith(incomplete))


def complete_example(incomplete: str) -> list[str]:
    """Return saved questions with this beginning, by file names."""
    names = (path.stem for path in _files("sql", "examples/*.sql"))
    return sorted(name for name in names if name.startswith(incomplete))


def _files(folder: str, pattern: str) -> list[Path]:
    try:
        return [*resource_dir(folder).glob(pattern)]
    except (ContractError, OSError):
        return []


def complete_format(incomplete: str) -> list[str]:
    """Return input formats with this beginning."""
    return sorted(name for name in format_names() if name.startswith(incomplete))
