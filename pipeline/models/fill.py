"""Compute models into a warehouse file: per run for changed runs, fleet models over everything."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pipeline.engine import Workers
from pipeline.lake import Losses, PartFiles, Snapshot
from pipeline.models.base import comment, copy_of, ddl, engine_errors, literal, quoted, select_parts
from pipeline.models.batches import batches
from pipeline.models.catalog import Catalog
from pipeline.models.compute import connect
from pipeline.models.computing import Computing
from pipeline.models.elsewhere import Job, computed_elsewhere
from pipeline.models.lost import lost_table
from pipeline.models.state import CATALOG, State, attach, write_state
from pipeline.schema import Column, tables

# Share of the machine's memory for DuckDB without --memory, all workers together.
_MEMORY_PERCENT = 60


@dataclass(frozen=True)
class Filler:
    """Writes warehouse files of one lake.

    Attributes:
        files: The lake's part files.
        memory_limit: Limit of each process as DuckDB spells it; None for a share of the machine's.
        threads: DuckDB's choice if None.
        workers: Workers that compute models per run; None for this process.
    """

    files: PartFiles
    models: Catalog
    memory_limit: str | None
    threads: int | None
    progress: Callable[[str], None]
    workers: Workers | None = None

    def fill(
        self, path: Path, snapshot: Snapshot, old: State | None, new: State, losses: Losses
    ) -> None:
        """Bring a warehouse file to a snapshot.

        The file is not published yet: nothing reads it, and an incomplete one is deleted. So no
        transaction spans the models, and the memory of a relation is freed after the last model
        that reads it.

        Args:
            path: The file; made if `old` is None.
            old: The snapshot that the file was built from, by the same models and schemas.
            new: The snapshot to build.
            losses: What the snapshot lacks.

        Raises:
            LakeError: See `engine_errors`.
            ContractError: See `compute`.
        """
        before = old.runs if old else {}
        changed = {run for run, generation in new.runs.items() if before.get(run) != generation}
        config = {} if self.threads is None else {"threads": self.threads}
        with (
            engine_errors("the warehouse"),
            connect(
                temp_directory=str(path.parent / "spill"),
                memory_limit=self.memory_limit or f"{_MEMORY_PERCENT}%",
                preserve_insertion_order=False,
                **config,
            ) as con,
        ):
            self.files.mount(con)
            attach(con, path, read_only=False)
            con.execute(self.models.macros)
            if old is None:
                con.execute("BEGIN")
                self._create_tables(con)
                con.execute("COMMIT")
            self._drop_runs(con, sorted(before.keys() - (new.runs.keys() - changed)))
            self._fill_runs(con, snapshot, sorted(changed), path.parent)
            _write_lost(con, losses)
            self._fill_fleet(con, snapshot)
            con.execute("BEGIN")
            self._point_views(con, old, new)
            write_state(con, new, losses.marks)
            con.execute("COMMIT")
            con.execute("CHECKPOINT warehouse")
            con.execute("DETACH warehouse")

    def _create_tables(self, con: duckdb.DuckDBPyConnection) -> None:
        for name, model in self.models.stored.items():
            shown = self.models.columns[name]
            target = _target(name)
            con.execute(f"CREATE TABLE {target} ({ddl(shown)})")
            _describe(con, "TABLE", target, model.doc, shown)
        for name in self.models.copied:
            table, copy = tables()[name], copy_of(name)
            con.execute(f"CREATE TABLE {_target(copy)} ({ddl(table.columns)})")
            con.execute(f"CREATE VIEW {_target(name)} AS FROM {quoted(copy)}")
            _describe(con, "VIEW", _target(name), table.doc, table.columns)

    def _point_views(self, con: duckdb.DuckDBPyConnection, old: State | None, new: State) -> None:
        """Update the views of part files."""
        for name, table in tables().items():
            select = new.select(table, self.files.base)
            seen = old.select(table, old.root) if old else None
            if name in self.models.copied or seen == select:
                continue
            con.execute(f"CREATE OR REPLACE VIEW {_target(name)} AS {select}")
            _describe(con, "VIEW", _target(name), table.doc, table.columns)

    def _drop_runs(self, con: duckdb.DuckDBPyConnection, run_ids: Sequence[str]) -> None:
        """Remove the rows of runs."""
        per_run = [name for name, model in self.models.stored.items() if not model.fleet]
        for name in (*per_run, *map(copy_of, self.models.copied)) if run_ids else ():
            con.execute(
                f"DELETE FROM {_target(name)} WHERE run_id IN (SELECT unnest($1::VARCHAR[]))",
                [list(run_ids)],
            )

    def _fill_runs(
        self,
        con: duckdb.DuckDBPyConnection,
        snapshot: Snapshot,
        run_ids: Sequence[str],
        folder: Path,
    ) -> None:
        """Add the rows of runs, batch by batch in the same order whatever computes them."""
        pending = batches(self.files, snapshot, run_ids)
        done = 0
        if self.workers is None:
            for batch in pending:
                done += len(batch.run_ids)
                self.progress(f"computing {done} of {len(run_ids)} runs")
                self._computing(con).batch(batch, snapshot.older)
            return
        share = _MEMORY_PERCENT // self.workers.together
        limit = self.memory_limit or f"{share}%"
        job = Job(self.files.base, snapshot.older, self.models.hash, limit, folder)
        with closing(computed_elsewhere(self.workers, job, pending)) as computed:
            for batch, rows in computed:
                for name, part in rows.items():
                    grain = self.models.stored[name].grain if name in self.models.stored else ()
                    stored = literal(f"{self.files.base}/{part}")
                    _keep(con, name, f"read_parquet({stored})", grain)
                self.files.remove(list(rows.values()))
                done += len(batch.run_ids)
                self.progress(f"computing {done} of {len(run_ids)} runs")

    def _fill_fleet(self, con: duckdb.DuckDBPyConnection, snapshot: Snapshot) -> None:
        """Compute the fleet models from the warehouse's rows of every run."""
        fleet = [model for model in self.models.models.values() if model.fleet]
        if not fleet:
            return
        self.progress(f"computing {len(fleet)} models over all runs")
        selects = {
            "skipped": select_parts(tables()["skipped"], self.files.base, snapshot.skipped),
            lost_table().name: f"FROM {_target(lost_table().name)}",
            **{name: f"FROM {_target(copy_of(name))}" for name in self.models.copied},
            **{name: f"FROM {_target(name)}" for name in self.models.stored},
        }
        read = {i for model in fleet for i in self.models.inputs[model.name]}
        below = read - {model.name for model in fleet}
        for name in below:
            con.execute(f"CREATE TEMP VIEW {quoted(name)} AS {selects[name]}")
        for model in fleet:
            if not model.internal:
                con.execute(f"DELETE FROM {_target(model.name)}")
        self._computing(con).all(fleet, dict.fromkeys(below, "VIEW"))

    def _computing(self, con: duckdb.DuckDBPyConnection) -> Computing:
        return Computing(con, self.files.base, self.models, functools.partial(_keep, con))


def _keep(con: duckdb.DuckDBPyConnection, name: str, relation: str, grain: Sequence[str]) -> None:
    """Append the rows of a relation, ordered by key."""
    order = f" ORDER BY {', '.join(map(quoted, grain))}" if grain else ""
    con.execute(f"INSERT INTO {_target(name)} FROM {relation}{order}")


def _write_lost(con: duckdb.DuckDBPyConnection, losses: Losses) -> None:
    table = lost_table()
    target = _target(table.name)
    con.execute(f"CREATE OR REPLACE TABLE {target} ({ddl(table.columns)})")
    _describe(con, "TABLE", target, table.doc, table.columns)
    if rows := losses.rows():
        con.executemany(f"INSERT INTO {target} VALUES (?, ?, ?)", rows)


def _target(name: str) -> str:
    """Return a relation of the warehouse that is being filled."""
    return f"{CATALOG}.main.{quoted(name)}"


def _describe(
    con: duckdb.DuckDBPyConnection, kind: str, target: str, doc: str, shown: Sequence[Column]
) -> None:
    comment(con, kind, target, doc)
    for column in shown:
        comment(con, "COLUMN", f"{target}.{quoted(column.name)}", column.comment)
