"""Compute models in order on one connection, and pass on the relations that are stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import duckdb

from tracelake.base.metrics import phase
from tracelake.models.base import copy_of, create_empty, literal, quoted
from tracelake.models.batches import Batch
from tracelake.models.catalog import Catalog
from tracelake.models.compute import compute
from tracelake.models.failures import FAILURES, IDENTITY, Failure, add_failures
from tracelake.models.header import Model
from tracelake.models.needs import can_have_rows
from tracelake.models.profile import Profile
from tracelake.schema.tables import tables

Keep = Callable[[str, str], None]
"""Takes the name in the warehouse, and the relation with its rows."""


@dataclass(frozen=True)
class Computing:
    """Computes models on a connection that has the macros.

    Attributes:
        base: Directory or URI of the lake.
        keep: Called with every relation whose rows are kept, while it exists, if it has rows.
        profile: Gets the times of relations.
    """

    con: duckdb.DuckDBPyConnection
    base: str
    models: Catalog
    keep: Keep
    profile: Profile = field(default_factory=Profile)

    def batch(self, batch: Batch) -> None:
        """Compute all models per run of a batch, and read what the warehouse copies."""
        models, read = self._per_run()
        kinds = {}
        empty = {name for name in read if not batch.parts[name]}
        enums = self._enums(batch, read - batch.small)
        for name in read:
            select = batch.select(name, self.base, enums)
            kinds[name] = "TABLE" if name in batch.small else "VIEW"
            with self.profile.computing(name):
                made = self.con.execute(f"CREATE TEMP {kinds[name]} {quoted(name)} AS {select}")
                if name in batch.small and made.fetchall() == [(0,)]:
                    empty.add(name)
        for name in self.models.copied:
            with self.profile.writing(name):
                self.keep(copy_of(name), f"temp.{quoted(name)}")
        self.all(models, kinds, empty)

    def left_out(self, batch: Batch, failures: Sequence[Failure]) -> None:
        """Compute all models of runs without their data: of a run they get its identity alone.

        Args:
            failures: Why the runs of the batch are left out.
        """
        models, read = self._per_run()
        for name in self.models.copied:
            self.keep(copy_of(name), f"({batch.select(name, self.base)})")
        for name in read:
            create_empty(self.con, name, tables()[name].columns)
        known = batch.select("runs", self.base)
        shown = ", ".join(IDENTITY)
        self.con.execute(f"INSERT INTO temp.runs ({shown}) SELECT {shown} FROM ({known})")
        self.all(models, dict.fromkeys(read, "TABLE"), read - {"runs"}, failures)

    def clear(self) -> None:
        """Drop the relations of a computation that failed."""
        for kind, names in (("VIEW", "view"), ("TABLE", "table")):
            found = self.con.execute(
                f"SELECT {names}_name FROM duckdb_{names}s() WHERE temporary AND NOT internal"
            ).fetchall()
            for (name,) in found:
                self.con.execute(f"DROP {kind} temp.{quoted(name)}")

    def all(
        self,
        models: Sequence[Model],
        given: Mapping[str, str],
        without_rows: Collection[str],
        failures: Sequence[Failure] = (),
    ) -> None:
        """Compute models one after the other.

        DuckDB plans a model in milliseconds whatever its rows, so those are left empty that cannot
        have any, because a relation that they need has none.

        Args:
            failures: Rows of `model_failures`.
            given: Temporary relations that they read -> TABLE or VIEW; like the models' own they
                are dropped when no later model reads them.
            without_rows: Those of them that are known to have no rows.
        """
        kinds = dict(given)
        empty = set(without_rows)
        for model, read_last in zip(models, self._read_last(models), strict=True):
            with phase(f"build:{model.path.parent.name}"):
                with self.profile.computing(model.name) as spent:
                    if can_have_rows(self.models.needs[model.name], empty):
                        rows = compute(self.con, model)
                    else:
                        create_empty(self.con, model.name, self.models.columns[model.name])
                        rows = 0
                    spent.rows += rows
                if failures and model.name == FAILURES:
                    add_failures(self.con, failures)
                    rows += len(failures)
                if not rows:
                    empty.add(model.name)
                elif model.name in self.models.stored:
                    with self.profile.writing(model.name):
                        self.keep(model.name, f"temp.{quoted(model.name)}")
            kinds[model.name] = "TABLE"
            for name in read_last:
                self.con.execute(f"DROP {kinds.pop(name)} temp.{quoted(name)}")
        for name, kind in kinds.items():
            self.con.execute(f"DROP {kind} temp.{quoted(name)}")

    def _enums(self, batch: Batch, large: Collection[str]) -> dict[str, str]:
        """Create ENUM types for columns of large tables with few distinct texts.

        DuckDB hashes, sorts and stores a number per row then instead of a text.

        Returns:
            Column -> its type; none for a batch of small tables.
        """
        selects: dict[str, list[str]] = defaultdict(list)
        for name in sorted(large):
            for column in tables()[name].columns:
                if column.dictionary:
                    rows = batch.select(name, self.base)
                    selects[column.name].append(f"SELECT {quoted(column.name)} FROM ({rows})")
        if not selects:
            return {}
        texts = {"run_id": sorted(batch.run_ids)}
        for name, several in selects.items():
            ((found,),) = self.con.execute(
                f"SELECT list(DISTINCT {quoted(name)}) FROM ({' UNION ALL '.join(several)})"
            ).fetchall()
            texts[name] = sorted(text for text in found or () if text is not None)
        enums = {}
        for name, values in texts.items():
            if values:
                enums[name] = quoted(f"_{name}")
                self.con.execute(
                    f"CREATE OR REPLACE TEMP TYPE {enums[name]} AS ENUM"
                    f" ({', '.join(map(literal, values))})"
                )
        return enums

    def _per_run(self) -> tuple[Sequence[Model], set[str]]:
        """Return the models per run, and the base tables that they or the warehouse need."""
        models = self.models.per_run
        read = {*self.models.copied, *(i for m in models for i in self.models.inputs[m.name])}
        return models, read & tables().keys()

    def _read_last(self, models: Sequence[Model]) -> list[list[str]]:
        """Return, for each model, the relations that no later model reads."""
        last: dict[str, int] = {}
        for number, model in enumerate(models):
            last |= dict.fromkeys((model.name, *self.models.inputs[model.name]), number)
        return [
            [name for name, reader in last.items() if reader == number]
            for number in range(len(models))
        ]
