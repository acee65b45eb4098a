"""Computes models into a warehouse file: per run for what changed, fleet models over everything."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pipeline.errors import LakeError
from pipeline.lake import Snapshot
from pipeline.models.base import comment, ddl, engine_errors, quoted, select_parts
from pipeline.models.catalog import Catalog, compute, connect
from pipeline.models.header import Model
from pipeline.models.state import State, attach, write_state
from pipeline.schema import Column, tables

# Parquet bytes of the runs that are computed together.
_BATCH_BYTES = 32 << 20


@dataclass(frozen=True)
class Filler:
    """Writes warehouse files of one lake.

    Attributes:
        root: Of the lake.
        memory_limit: In DuckDB's spelling.
        threads: DuckDB's choice if None.
    """

    root: Path
    models: Catalog
    memory_limit: str
    threads: int | None
    progress: Callable[[str], None]

    def fill(self, path: Path, snapshot: Snapshot, old: State | None, new: State) -> None:
        """Brings a warehouse file to a snapshot.

        The file is not published yet: nobody reads it, and one that is left half done is thrown
        away. So no transaction spans the models, and the memory of a relation is free again when
        the last model that reads it has been computed.

        Args:
            path: The file; made if `old` is None.
            old: What the file was built from, by the same models and schemas.
            new: What it is to be built from.

        Raises:
            LakeError: See `engine_errors`.
            ContractError: See `compute`.
        """
        before = old.runs if old else {}
        changed = {run for run, generation in new.runs.items() if before.get(run) != generation}
        dropped = before.keys() - new.runs.keys()
        config = {} if self.threads is None else {"threads": self.threads}
        with (
            engine_errors("the warehouse"),
            connect(
                temp_directory=str(path.parent / "spill"),
                memory_limit=self.memory_limit,
                preserve_insertion_order=False,
                **config,
            ) as con,
        ):
            attach(con, path, read_only=False)
            con.execute(self.models.macros)
            if old is None:
                con.execute("BEGIN")
                self._create_tables(con)
                con.execute("COMMIT")
            self._fill_runs(con, snapshot, sorted(changed), touched=sorted(changed | dropped))
            self._fill_fleet(con, snapshot)
            con.execute("BEGIN")
            for table in tables().values():
                parts = snapshot.parts(table.name)
                select = select_parts(table, self.root, parts, snapshot.older)
                target = f"warehouse.main.{quoted(table.name)}"
                con.execute(f"CREATE OR REPLACE VIEW {target} AS {select}")
                _describe(con, "VIEW", target, table.doc, table.columns)
            write_state(con, new)
            con.execute("COMMIT")
            con.execute("CHECKPOINT warehouse")
            con.execute("DETACH warehouse")

    def _create_tables(self, con: duckdb.DuckDBPyConnection) -> None:
        for name, model in self.models.stored.items():
            shown = self.models.columns[name]
            target = f"warehouse.main.{quoted(name)}"
            con.execute(f"CREATE TABLE {target} ({ddl(shown)})")
            _describe(con, "TABLE", target, model.doc, shown)

    def _fill_runs(
        self,
        con: duckdb.DuckDBPyConnection,
        snapshot: Snapshot,
        changed: Sequence[str],
        *,
        touched: Sequence[str],
    ) -> None:
        """Replaces the rows of touched runs by those of the changed ones."""
        for name, model in self.models.stored.items():
            if touched and not model.fleet:
                con.execute(
                    f"DELETE FROM warehouse.main.{quoted(name)}"
                    " WHERE run_id IN (SELECT unnest($1::VARCHAR[]))",
                    [list(touched)],
                )
        done = 0
        for batch in _batches(self.root, snapshot, changed):
            done += len(batch)
            self.progress(f"computing {done} of {len(changed)} runs")
            self._compute(
                con,
                [model for model in self.models.models.values() if not model.fleet],
                {t.name: snapshot.parts(t.name, batch) for t in tables().values()},
                snapshot.older,
            )

    def _fill_fleet(self, con: duckdb.DuckDBPyConnection, snapshot: Snapshot) -> None:
        fleet = [model for model in self.models.models.values() if model.fleet]
        if not fleet:
            return
        self.progress(f"computing {len(fleet)} models over all runs")
        below = [name for name, model in self.models.stored.items() if not model.fleet]
        for name in below:
            target = quoted(name)
            con.execute(f"CREATE TEMP VIEW {target} AS FROM warehouse.main.{target}")
        for model in fleet:
            if not model.internal:
                con.execute(f"DELETE FROM warehouse.main.{quoted(model.name)}")
        self._compute(con, fleet, {t: snapshot.parts(t) for t in tables()}, snapshot.older)
        for name in below:
            con.execute(f"DROP VIEW temp.{quoted(name)}")

    def _compute(
        self,
        con: duckdb.DuckDBPyConnection,
        models: Sequence[Model],
        parts: dict[str, list[str]],
        older: Collection[str],
    ) -> None:
        """Computes models over some part files and appends their rows, ordered by grain."""
        for table in tables().values():
            select = select_parts(table, self.root, parts[table.name], older)
            con.execute(f"CREATE TEMP VIEW {quoted(table.name)} AS {select}")
        for model, read_last in zip(models, self._read_last(models), strict=True):
            compute(con, model)
            if model.name in self.models.stored:
                name, keys = quoted(model.name), ", ".join(map(quoted, model.grain))
                con.execute(
                    f"INSERT INTO warehouse.main.{name} SELECT * FROM temp.{name} ORDER BY {keys}"
                )
            for name in read_last:
                con.execute(f"DROP TABLE temp.{quoted(name)}")
        for name in tables():
            con.execute(f"DROP VIEW temp.{quoted(name)}")

    def _read_last(self, models: Sequence[Model]) -> list[list[str]]:
        """For each of these models, in their order, those that no later one reads."""
        last: dict[str, int] = {}
        for number, model in enumerate(models):
            last |= dict.fromkeys((model.name, *self.models.inputs[model.name]), number)
        return [
            [model.name for model in models if last[model.name] == number]
            for number in range(len(models))
        ]


def _describe(
    con: duckdb.DuckDBPyConnection, kind: str, target: str, doc: str, shown: Sequence[Column]
) -> None:
    comment(con, kind, target, doc)
    for column in shown:
        comment(con, "COLUMN", f"{target}.{quoted(column.name)}", column.comment)


def _batches(root: Path, snapshot: Snapshot, run_ids: Sequence[str]) -> Iterator[list[str]]:
    """Runs in groups of bounded size on disk."""
    batch: list[str] = []
    size = 0
    for run_id in run_ids:
        parts = [part for parts in snapshot.runs[run_id].parts.values() for part in parts]
        try:
            run_size = sum((root / part).stat().st_size for part in parts)
        except OSError as error:
            raise LakeError(
                f"a part of run {run_id} cannot be read: {error.strerror}",
                path=error.filename,
                hint="ingest its inputs again; tracelake check lists what is missing",
            ) from error
        if batch and size + run_size > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(run_id)
        size += run_size
    if batch:
        yield batch
