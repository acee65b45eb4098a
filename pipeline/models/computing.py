"""Compute models in order on one connection, and pass on the relations that are stored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import duckdb

from pipeline.measures import phase
from pipeline.models.base import copy_of, quoted, select_parts
from pipeline.models.batches import Batch
from pipeline.models.catalog import Catalog
from pipeline.models.compute import compute
from pipeline.models.header import Model
from pipeline.schema import tables

Keep = Callable[[str, str, Sequence[str]], None]
"""Takes the name in the warehouse, the relation with its rows, and its key columns."""


@dataclass(frozen=True)
class Computing:
    """Computes models on a connection that has the macros.

    Attributes:
        base: Directory or URI of the lake.
        keep: Called with every relation that the warehouse stores, while it exists.
    """

    con: duckdb.DuckDBPyConnection
    base: str
    models: Catalog
    keep: Keep

    def batch(self, batch: Batch, older: Collection[str]) -> None:
        """Compute all models per run of a batch, and read what the warehouse copies.

        Args:
            older: Parts of an earlier version of the schemas; see `select_parts`.
        """
        models = [model for model in self.models.models.values() if not model.fleet]
        read = {*self.models.copied, *(i for m in models for i in self.models.inputs[m.name])}
        kinds = {}
        for name in read & tables().keys():
            select = select_parts(
                tables()[name], self.base, batch.parts[name], older, only=batch.run_ids
            )
            kinds[name] = "TABLE" if name in batch.small else "VIEW"
            self.con.execute(f"CREATE TEMP {kinds[name]} {quoted(name)} AS {select}")
        for name in self.models.copied:
            self.keep(copy_of(name), f"temp.{quoted(name)}", ())
        self.all(models, kinds)

    def all(self, models: Sequence[Model], given: Mapping[str, str]) -> None:
        """Compute models one after the other.

        Args:
            given: Temporary relations that they read -> TABLE or VIEW; like the models' own they
                are dropped when no later model reads them.
        """
        kinds = dict(given)
        for model, read_last in zip(models, self._read_last(models), strict=True):
            with phase(f"build:{model.path.parent.name}"):
                compute(self.con, model)
                if model.name in self.models.stored:
                    self.keep(model.name, f"temp.{quoted(model.name)}", model.grain)
            kinds[model.name] = "TABLE"
            for name in read_last:
                self.con.execute(f"DROP {kinds.pop(name)} temp.{quoted(name)}")
        for name, kind in kinds.items():
            self.con.execute(f"DROP {kind} temp.{quoted(name)}")

    def _read_last(self, models: Sequence[Model]) -> list[list[str]]:
        """Return, for each model, the relations that no later model reads."""
        last: dict[str, int] = {}
        for number, model in enumerate(models):
            last |= dict.fromkeys((model.name, *self.models.inputs[model.name]), number)
        return [
            [name for name, reader in last.items() if reader == number]
            for number in range(len(models))
        ]
