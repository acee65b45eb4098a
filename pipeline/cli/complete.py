"""Complete words in a shell: runs of a lake, tables, formats. Fast, and without errors."""

from __future__ import annotations

import json
import os
from pathlib import Path

import typer

from tracelake.base.errors import ContractError
from tracelake.base.resources import resource_dir
from tracelake.schema.format_names import format_names

_PREFIX = "run_id="
_LATEST = "latest"
_SHOWN = 1000


def complete_run(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return labels, hashes and ids of the lake's runs with this beginning.

    They are read from the warehouse, else from the names of folders and packs.
    """
    lake = ctx.params.get("lake") or os.environ.get("TRACELAKE_LAKE")
    if lake is None:
        return []
    try:
        names = [_LATEST, *(_warehouse_names(Path(lake)) or _file_names(Path(lake)))]
    except (OSError, ValueError, KeyError):
        return []
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)][:_SHOWN]


def _warehouse_names(lake: Path) -> list[str]:
    """Return labels, then hashes, then ids; nothing where the warehouse cannot be read."""
    import duckdb

    if not (lake / "warehouse.duckdb").is_file():
        return []
    try:
        with duckdb.connect(lake / "warehouse.duckdb", read_only=True) as con:
            rows = con.execute("SELECT label, hash, run_id FROM run_list ORDER BY urgency")
            return [str(name) for column in zip(*rows.fetchall(), strict=True) for name in column]
    except duckdb.Error:  # another version's, or being replaced
        return []


def _file_names(lake: Path) -> list[str]:
    folders = os.listdir(lake / "runs")  # a store would take too long
    packs = lake / "_manifest" / "_packs.json"
    packed = json.loads(packs.read_bytes())["runs"] if packs.is_file() else ()
    own = {name.removeprefix(_PREFIX) for name in folders if name.startswith(_PREFIX)}
    return sorted(own.union(packed))


def complete_table(incomplete: str) -> list[str]:
    """Return base tables and public models with this beginning, by file names."""
    try:
        tables = {path.stem for path in resource_dir("schemas").glob("*.toml")}
        models = {path.stem for path in resource_dir("sql").glob("*/*.sql") if _is_public(path)}
    except (ContractError, OSError):
        return []
    names = (tables - {"columns", "reasons"}) | models
    return sorted(name for name in names if name.startswith(incomplete))


def _is_public(path: Path) -> bool:
    other = path.parent.name in ("checks", "examples")
    return not other and not path.name.startswith("_")


def complete_example(incomplete: str) -> list[str]:
    """Return saved queries with this beginning, by file names."""
    try:
        names = [path.stem for path in resource_dir("sql").glob("examples/*.sql")]
    except (ContractError, OSError):
        return []
    return sorted(name for name in names if name.startswith(incomplete))


def complete_format(incomplete: str) -> list[str]:
    """Return input formats with this beginning."""
    return sorted(name for name in format_names() if name.startswith(incomplete))
