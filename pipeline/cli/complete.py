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
    """Return ids of the lake's runs with this beginning, by folder names and packs."""
    lake = ctx.params.get("lake") or os.environ.get("TRACELAKE_LAKE")
    if lake is None:
        return []
    try:
        folders = os.listdir(Path(lake) / "runs")  # a store would take too long
        packs = Path(lake) / "_manifest" / "_packs.json"
        packed = json.loads(packs.read_bytes())["runs"] if packs.is_file() else ()
    except (OSError, ValueError, KeyError):
        return []
    own = {name.removeprefix(_PREFIX) for name in folders if name.startswith(_PREFIX)}
    names = [_LATEST, *sorted(own.union(packed))]
    return [name for name in names if name.startswith(incomplete)][:_SHOWN]


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
