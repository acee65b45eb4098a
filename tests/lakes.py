"""Drives ingest and reads lakes the way a user's own tools would: Parquet through DuckDB."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from unittest.mock import patch

import duckdb

from tracelake.base.memory_limit import processors
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest
from tracelake.ingest.report import IngestReport
from tracelake.lake.losses import find_losses
from tracelake.lake.part_files import PartFiles
from tracelake.lake.store import Lake
from tracelake.models.base import copy_of
from tracelake.models.build import build, wanted_state
from tracelake.models.catalog import Catalog, catalog
from tracelake.models.compute import connect
from tracelake.models.fill import WarehouseWriter
from tracelake.models.parts import ModelParts
from tracelake.models.state import attach, recorded
from tracelake.warehouse.check import Check, checks

if TYPE_CHECKING:
    from tests.conftest import Command


def run_ingest(folder: Path | str, lake: Path, *, jobs: int = 1, **options: Any) -> IngestReport:
    return ingest([str(folder)], Lake.create(lake), Options(**options), jobs=jobs)


def ingest_and_build(archive: Path, lake: Path) -> Lake:
    """What `run` makes of an archive, without the page."""
    run_ingest(archive, lake)
    opened = Lake.open(lake)
    build(opened)
    return opened


def full_build_differences(lake: Lake) -> list[str]:
    """Builds everything again; returns the models whose rows in the warehouse are others."""
    snapshot, models = lake.snapshot(), catalog()
    losses = find_losses(lake.part_files, snapshot, recorded(lake.warehouse).marks)
    state = wanted_state(lake, snapshot, models, losses)
    assert recorded(lake.warehouse).state == state, "the warehouse is not current"
    with lake.staging("check") as folder, connect() as con:
        anew, apart = folder / "warehouse.duckdb", PartFiles(str(folder))
        parts = ModelParts(models, apart, apart.take, folder)
        writer = WarehouseWriter(lake.part_files, models, None, processors(), lambda _: None)
        writer.fill(anew, losses.left(snapshot), None, state, losses, parts)
        return differences(con, lake.warehouse, anew)


def differences(con: duckdb.DuckDBPyConnection, one: Path, other: Path) -> list[str]:
    """The models whose rows in two warehouses are others."""
    attach(con, one, read_only=True)
    con.execute(f"ATTACH '{other}' AS other (READ_ONLY)")

    def differ(name: str) -> bool:
        old, new = f"FROM warehouse.main.{name}", f"FROM other.main.{name}"
        either = f"({old} EXCEPT ALL {new}) UNION ALL ({new} EXCEPT ALL {old})"
        return bool(con.execute(either).fetchone())

    models = catalog()
    return [name for name in (*models.stored, *map(copy_of, models.copied)) if differ(name)]


def merge_groups(lake: Lake) -> None:
    """Builds a lake as if it had many small groups, which then become one."""
    with patch("tracelake.lake.rewriting._SMALL_GROUPS", 1):
        build(lake)


# Rows by run, rows by step in parts, and rows over all runs.
_OF_EACH_KIND = ("layer_stats", "layer_steps", "straggler_history")


@contextmanager
def few_models(*names: str) -> Iterator[None]:
    """Lets tracelake know these models, how runs are named, and the checks that read no others.

    Without names a few of each kind, for what becomes of parts and of runs, which is the same
    whatever the models say of them: a build takes a third of the time.
    """
    whole, (few, known) = catalog(), _few_models(names or _OF_EACH_KIND)
    try:
        _know(few)
        with patch("tracelake.warehouse.check.checks", lambda: known):
            yield
    finally:
        _know(whole)


@functools.cache
def _few_models(names: tuple[str, ...]) -> tuple[Catalog, list[Check]]:
    whole = catalog()
    models = {model.name: model for model in whole.upstream((*names, "_run_names"))}
    others = whole.models.keys() - models
    known = [check for check in checks() if others.isdisjoint(re.findall(r"\w+", check.sql))]
    return replace(whole, models=models, hash=" ".join(names)), known


def _know(models: Catalog) -> None:
    """Lets every module get these models."""
    catalog.cache_clear()
    with patch.object(sys.modules["tracelake.models.catalog"], "_load", lambda *_: models):
        catalog()


def statuses(report: IngestReport) -> list[str]:
    return sorted(str(run.status) for run in report.runs)


def asked(tracelake: Command, lake: Path, sql: str) -> list[dict[str, Any]]:
    """Rows of a query of the warehouse, as the command prints them."""
    answer = tracelake("query", sql, "--lake", lake, "--format", "json")
    assert answer.code == 0, answer.err
    found: list[dict[str, Any]] = json.loads(answer.out)
    return found


def rows(lake: Path, table: str, columns: str = "*", tail: str = "") -> list[tuple[Any, ...]]:
    """Rows of a base table, read from the committed parts with plain DuckDB."""
    snapshot = Lake.open(lake).snapshot()
    found = [
        f"SELECT * FROM read_parquet('{lake / part}', hive_partitioning = {table == 'skipped'})"
        f" WHERE NOT coalesce(list_contains({list(snapshot.dead.get(part, ()))}, run_id), false)"
        for part in snapshot.parts_by_table()[table]
    ]
    if not found:
        return []
    return duckdb.execute(
        f"SELECT {columns} FROM ({' UNION ALL BY NAME '.join(found)}) {tail}"
    ).fetchall()


def files(lake: Path) -> dict[str, tuple[int, int]]:
    """Every part and manifest with what changes when it is rewritten."""
    return {
        path.relative_to(lake).as_posix(): _stamp(path)
        for folder, _, names in os.walk(lake)  # a query that ends meanwhile takes its own away
        for path in (Path(folder, name) for name in sorted(names))
        if path.suffix in (".parquet", ".json")
    }


@dataclass(frozen=True)
class Template:
    """A lake that is made once and given to each test as new.

    It is always in the same place: a warehouse has the paths of its parts.
    """

    root: Path
    kept: Path

    @classmethod
    def of(cls, lake: Lake) -> Self:
        """Keeps a lake as it is now."""
        kept = lake.root.with_name(f"{lake.root.name} as it was made")
        return cls(lake.root, shutil.copytree(lake.root, kept, symlinks=True))

    def again(self) -> Lake:
        """The lake as it was, whatever the last test has done with it."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.kept, self.root, symlinks=True)
        return Lake.open(self.root)


@contextmanager
def unchanged(lake: Path) -> Iterator[None]:
    """For a lake that tests share: none has changed what it holds."""
    before = files(lake), _stamp(lake / "warehouse.duckdb")
    yield
    assert (files(lake), _stamp(lake / "warehouse.duckdb")) == before


def _stamp(path: Path) -> tuple[int, int]:
    return path.stat().st_ino, path.stat().st_mtime_ns
