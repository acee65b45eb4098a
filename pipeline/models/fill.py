"""Compute models into a warehouse file: per run for changed runs, fleet models over everything."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from tracelake.base.errors import RowsError
from tracelake.base.memory_limit import parse_size
from tracelake.execution.cluster import Workers
from tracelake.lake.layout import table_of_part
from tracelake.lake.losses import Losses, lost_table
from tracelake.lake.manifest import Snapshot
from tracelake.lake.part_files import PartFiles
from tracelake.models.base import (
    copy_of,
    engine_errors,
    literal,
    of_runs,
    own,
    quoted,
    select_parts,
)
from tracelake.models.batches import Batch, batch_of, batches, halves
from tracelake.models.catalog import Catalog
from tracelake.models.compute import Database, connect_several
from tracelake.models.computing import Computing
from tracelake.models.failures import FAILURES, Failure, read_failures
from tracelake.models.header import Model
from tracelake.models.jobs import JobSettings, compute_sent, computed, threads
from tracelake.models.parts import ModelParts, ModelPartWriter
from tracelake.models.profile import Profile
from tracelake.models.relations import target, view, write_blank, write_warehouse
from tracelake.models.state import CATALOG, State, attach, write_state
from tracelake.models.sums import write_sums
from tracelake.schema.tables import tables

# Most of the machine's memory for DuckDB without --memory, all workers together.
_MEMORY_PERCENT = 60
# A batch that is computed beside others gets at least as many bytes of --memory.
_BATCH_MEMORY = 1_000_000_000


@dataclass(frozen=True)
class WarehouseWriter:
    """Writes warehouse files of one lake.

    Attributes:
        files: The lake's part files.
        memory_limit: Limit of each process as DuckDB spells it; None for what `MemoryLimit` gives.
        threads: Those of DuckDB, in all batches together.
        workers: Workers that compute models per run; None for this process.
        profile: Gets the times of models.
    """

    files: PartFiles
    models: Catalog
    memory_limit: str | None
    threads: int
    progress: Callable[[str], None]
    workers: Workers | None = None
    profile: Profile = field(default_factory=Profile)

    def fill(
        self,
        path: Path,
        snapshot: Snapshot,
        old: State | None,
        new: State,
        losses: Losses,
        parts: ModelParts,
    ) -> tuple[Failure, ...]:
        """Bring a warehouse file to a snapshot.

        A run that a model fails on is left out: see `model_failures`. It is tried again when its
        rows, the models or the schemas change.

        The file is not published yet: nothing reads it, and an incomplete one is deleted. So no
        transaction spans the models, and the memory of a relation is freed after the last model
        that reads it.

        Args:
            path: The file; made if `old` is None.
            old: The snapshot that the file was built from, by the same models and schemas.
            new: The snapshot to build.
            losses: What the snapshot lacks.
            parts: The parts of models that belong to the file: afterwards those of the new one.

        Returns:
            The runs that are left out, also those of earlier builds.

        Raises:
            LakeError: See `engine_errors`.
            ContractError: A model fails whatever the runs hold, or there is no `model_failures`.
        """
        before = old.runs if old else {}
        parts_before = frozenset(parts.runs)
        changed = {run for run, generation in new.runs.items() if before.get(run) != generation}
        pending = list(batches(self.files, snapshot, changed, self._width))
        with (
            engine_errors("the warehouse"),
            connect_several(
                self.threads,
                write_blank(path.parent, self.models),
                self.memory_limit or f"{_MEMORY_PERCENT}%",
                None if self.memory_limit else 1,
                in_file=self._alone(pending) and any(batch.in_file for batch in pending),
            ) as database,
        ):
            con = database.con
            self.files.mount(con)
            if old is None:
                write_warehouse(path, self.models)
            attach(con, path, read_only=False)
            gone = sorted(before.keys() - (new.runs.keys() - changed))
            parts.leave_out(con, gone)
            self._drop_runs(con, gone)
            failed = self._fill_runs(database, snapshot, pending, parts)
            self._leave_out(database, snapshot, failed)
            _write_lost(con, losses)
            parts.leave_out(con, self._fill_fleet(database, snapshot, changed))
            con.execute("BEGIN")
            self._point_views(con, old, new, parts, parts_before)
            write_state(con, new, parts.runs, {**losses.marks, **parts.marks})
            con.execute("COMMIT")
            write_sums(con)
            con.execute("CHECKPOINT warehouse")
            left_out = read_failures(con)
            con.execute("DETACH warehouse")
        return left_out

    def _point_views(
        self,
        con: duckdb.DuckDBPyConnection,
        old: State | None,
        new: State,
        parts: ModelParts,
        before: Collection[str],
    ) -> None:
        """Update the views of part files whose parts are others.

        Args:
            before: The parts of models that the warehouse names so far.
        """
        changed = set(map(table_of_part, parts.runs.keys() ^ before))
        if old and old.root != self.files.base:
            changed = {*self.models.in_parts}
        for name in sorted(changed):
            con.execute(view(self.models.table(name), parts.view(name)))
        for name, table in tables().items():
            select = new.select(table, self.files.base)
            seen = old.select(table, old.root) if old else select_parts(table, "", ())
            if name not in self.models.copied and seen != select:
                con.execute(view(table, select))

    def _drop_runs(self, con: duckdb.DuckDBPyConnection, run_ids: Sequence[str]) -> None:
        """Remove the rows of runs from tables of the warehouse."""
        if not run_ids:
            return
        # A lake of one format has rows in half of them; to plan a DELETE takes a millisecond.
        found = con.execute(
            "SELECT table_name FROM duckdb_tables()"
            " WHERE database_name = $1 AND estimated_size > 0",
            [CATALOG],
        ).fetchall()
        with_rows = {name for (name,) in found}
        per_run = [name for name, model in self.models.in_warehouse.items() if not model.fleet]
        for name in (*per_run, *map(copy_of, self.models.copied)):
            if name in with_rows:
                con.execute(f"DELETE FROM {target(name)}{of_runs(run_ids)}")

    def _fill_runs(
        self, database: Database, snapshot: Snapshot, pending: Sequence[Batch], parts: ModelParts
    ) -> list[Failure]:
        """Add the rows of runs, batch by batch in the same order whatever computes them.

        Returns:
            The runs that a model fails on; they have no rows.
        """
        failed = []
        done = 0
        runs = sum(len(batch.run_ids) for batch in pending)
        if self._alone(pending):
            for batch in pending:
                done += len(batch.run_ids)
                self.progress(f"computing {done} of {runs} runs")
                failed += self._fill_batch(database, snapshot, batch, parts)
            return failed
        with (
            self._executor(parts.folder, min(self._width, len(pending))) as submit,
            closing(computed(submit, snapshot, pending)) as ended,
        ):
            for batch, found in ended:
                done += len(batch.run_ids)
                if isinstance(found, RowsError):
                    failed.append(self._failure(snapshot, batch.run_ids[0], found))
                    continue
                self.profile.add(found.spent)
                for name, file in found.rows.items():
                    self._keep(database.con, name, f"read_parquet({literal(file)})")
                    if not found.uploaded:
                        Path(file).unlink()
                self.files.remove(found.uploaded)
                parts.add(found.parts, found.staged, batch.run_ids)
                self.progress(f"computing {done} of {runs} runs")
        return failed

    @property
    def _width(self) -> int:
        """Batches that workers, or threads of this process, compute at once."""
        if self.workers:
            return self.workers.width
        if self.memory_limit is None:
            return self.threads
        return max(1, min(self.threads, parse_size(self.memory_limit) // _BATCH_MEMORY))

    def _alone(self, pending: Sequence[Batch]) -> bool:
        """Return whether this process computes batches one after the other."""
        return self.workers is None and (self._width == 1 or len(pending) < 2)

    @contextmanager
    def _executor(self, folder: Path, width: int) -> Iterator[Callable[[Batch], Future[Any]]]:
        """Yield a function that submits a batch: to the workers, or to threads of this process."""
        base, models = self.files.base, self.models.hash
        if self.workers:
            limit = self.memory_limit or f"{_MEMORY_PERCENT // self.workers.together}%"
            share = None if self.memory_limit else self.workers.per_process
            settings = JobSettings(base, models, limit, share, 1, folder, here=False)
            yield partial(self.workers.submit, compute_sent, settings)
            return
        limit, share = f"{max(1, _MEMORY_PERCENT // width)}%", width
        if self.memory_limit is not None:
            limit, share = f"{parse_size(self.memory_limit) // width}B", None
        each = max(1, self.threads // width)
        settings = JobSettings(base, models, limit, share, each, folder, here=True)
        with threads(self.models, settings, width) as submit:
            yield submit

    def _fill_batch(
        self, database: Database, snapshot: Snapshot, batch: Batch, parts: ModelParts
    ) -> list[Failure]:
        """Add the rows of a batch; by halves where a model fails, until a run fails alone."""
        writer = ModelPartWriter(self.models, parts.folder)
        computing = self._computing(database, writer)
        try:
            computing.batch(batch)
        except RowsError as error:
            computing.clear()
            self._drop_runs(database.con, batch.run_ids)
            if len(batch.run_ids) == 1:
                return [self._failure(snapshot, batch.run_ids[0], error)]
            both = halves(snapshot, batch)
            return [
                run for half in both for run in self._fill_batch(database, snapshot, half, parts)
            ]
        parts.add(writer.staged.keys(), writer.staged, batch.run_ids)
        return []

    def _failure(self, snapshot: Snapshot, run_id: str, error: RowsError) -> Failure:
        """Return why a run is left out.

        Raises:
            RowsError: The models have no place to say it.
        """
        if FAILURES not in self.models.models:
            raise error
        sources = snapshot.runs[run_id].sources
        inputs = ["/".join(filter(None, (s["path"], s["member"]))) for s in sources]
        first, *others = inputs or ["-"]
        message = error.message.removeprefix(f"{error.subject}: ").partition("\n")[0].rstrip(".!")
        return Failure(run_id, error.subject, message, first, len(others))

    def _leave_out(self, database: Database, snapshot: Snapshot, failed: Sequence[Failure]) -> None:
        """Replace the rows of runs by those that say why they are left out.

        They have none in parts, which `ModelParts.leave_out` sees to.
        """
        if failed:
            run_ids = [failure.run_id for failure in failed]
            self._drop_runs(database.con, run_ids)
            batch = batch_of(snapshot, run_ids)
            self._computing(database).left_out(batch, failed)

    def _fill_fleet(
        self, database: Database, snapshot: Snapshot, changed: Collection[str]
    ) -> Collection[str]:
        """Compute the fleet models from the warehouse's rows of every run that is not left out.

        Args:
            changed: Runs that were computed by this build: the first to be suspected of a failure.

        Returns:
            The runs that are left out.
        """
        fleet = [model for model in self.models.models.values() if model.fleet]
        out = {failure.run_id for failure in read_failures(database.con)}
        compute = partial(self._compute_fleet, database, snapshot, fleet, out)
        if fleet:
            self.progress(f"computing {len(fleet)} models over all runs")
        while fleet:
            try:
                compute(())
            except RowsError as error:
                there = sorted(snapshot.runs.keys() - out, key=lambda run: (run in changed, run))
                run_id, narrowed = _culprit(compute, there, error)
                self._leave_out(database, snapshot, [self._failure(snapshot, run_id, narrowed)])
                out.add(run_id)
            else:
                break
        return out

    def _compute_fleet(
        self,
        database: Database,
        snapshot: Snapshot,
        fleet: Sequence[Model],
        out: Collection[str],
        without: Collection[str],
    ) -> None:
        """Compute the fleet models.

        Args:
            out: Runs that are left out: of the base tables only their names are read.
            without: Runs of which nothing is read.
        """
        selects = {
            "skipped": select_parts(tables()["skipped"], self.files.base, snapshot.skipped),
            lost_table().name: f"FROM {target(lost_table().name)}",
            **{
                name: f"FROM {target(copy_of(name))}{of_runs(None, {*out, *without})}"
                for name in self.models.copied
            },
            **{
                name: f"FROM {target(name)}{of_runs(None, without)}"
                for name in self.models.in_warehouse
            },
        }
        if out and "runs" in selects:
            selects["runs"] += (
                " UNION ALL BY NAME SELECT run_id, format, name, label"
                f" FROM {target(copy_of('runs'))}{of_runs(out)}"
            )
        con = database.con
        read = {i for model in fleet for i in self.models.inputs[model.name]}
        below = read - {model.name for model in fleet}
        first = (f"(SELECT {literal(name)} FROM ({selects[name]}) LIMIT 1)" for name in below)
        there = {name for (name,) in con.execute(" UNION ALL ".join(first)).fetchall()}
        for name in there:
            con.execute(f"CREATE VIEW {own(name)} AS {selects[name]}")
        for model in fleet:
            if not model.internal:
                con.execute(f"DELETE FROM {target(model.name)}")
        computing = self._computing(database)
        try:
            computing.all(fleet, dict.fromkeys(there, "VIEW"), below - there)
        except RowsError:
            computing.clear()
            raise

    def _computing(self, database: Database, writer: ModelPartWriter | None = None) -> Computing:
        """Return what computes models.

        Args:
            writer: Takes rows that are kept in parts; without one there are none.
        """

        def keep(con: duckdb.DuckDBPyConnection, name: str, relation: str) -> str | None:
            if name in self.models.in_parts:
                return writer.write(con, name, relation) if writer else None
            self._keep(con, name, relation)
            return None

        return Computing(database, self.files.base, self.models, keep, self.threads, self.profile)

    def _keep(self, con: duckdb.DuckDBPyConnection, name: str, relation: str) -> None:
        """Append the rows of a relation to a table of the warehouse, ordered as its model says."""
        model = self.models.stored.get(name)
        order = f" ORDER BY {', '.join(map(quoted, model.order))}" if model else ""
        con.execute(f"INSERT INTO {target(name)} FROM {relation}{order}")


def _culprit(
    compute: Callable[[Collection[str]], None], run_ids: Sequence[str], error: RowsError
) -> tuple[str, RowsError]:
    """Return a run that the fleet models fail with, where they do not with those before it.

    Args:
        compute: Computes the fleet models without some runs.
        run_ids: Runs with which they fail.
        error: How they fail.

    Raises:
        RowsError: They fail without any run.
    """
    compute(run_ids)
    passed, failed = 0, len(run_ids)
    while failed - passed > 1:
        middle = (passed + failed) // 2
        try:
            compute(run_ids[middle:])
            passed = middle
        except RowsError as narrowed:
            failed, error = middle, narrowed
    return run_ids[passed], error


def _write_lost(con: duckdb.DuckDBPyConnection, losses: Losses) -> None:
    con.execute(f"DELETE FROM {target(lost_table().name)}")
    if rows := losses.rows():
        con.executemany(f"INSERT INTO {target(lost_table().name)} VALUES (?, ?, ?)", rows)
