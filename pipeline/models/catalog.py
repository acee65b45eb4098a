"""Load all models of `sql/`, check their headers, and order them for the build."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tracelake.base.errors import ContractError
from tracelake.base.resources import resource_dir
from tracelake.models.graph import frugal_order
from tracelake.models.header import Model, documented, read_model
from tracelake.models.needs import Needs
from tracelake.models.validate import Proof
from tracelake.schema.tables import Column, Table, tables

CHECKS = "checks"
EXAMPLES = "examples"
# Key columns with as many values as a job is long.
_GROWING = frozenset({"step", "call"})


@dataclass(frozen=True)
class Catalog:
    """The models and what was derived from their SQL.

    Attributes:
        models: By name, in build order.
        inputs: Per model, the base tables and models it reads.
        columns: Per model, its columns in order, with type, unit and doc.
        needs: Per model, the relations without whose rows it has none.
        macros: SQL that defines the shared macros on a connection.
        hash: Changes whenever a model or a macro does.
    """

    models: Mapping[str, Model]
    inputs: Mapping[str, frozenset[str]]
    columns: Mapping[str, tuple[Column, ...]]
    needs: Mapping[str, Needs]
    macros: str
    hash: str

    @functools.cached_property
    def public(self) -> tuple[str, ...]:
        """Names of the models that are for users, in build order."""
        return tuple(name for name, model in self.models.items() if not model.internal)

    @functools.cached_property
    def stored(self) -> Mapping[str, Model]:
        """Models whose rows are kept: the public ones, and inputs of fleet models."""
        return {
            name: model
            for name, model in self.models.items()
            if not model.internal or (name in self._fleet_inputs and not model.fleet)
        }

    @functools.cached_property
    def in_parts(self) -> frozenset[str]:
        """Return stored models with a row per step or call: see `tracelake.models.parts`.

        They grow with the length of a job. The rows of all others are in the warehouse.
        """
        return frozenset(
            name
            for name, model in self.stored.items()
            if not (model.fleet or name in self._fleet_inputs)
            and not _GROWING.isdisjoint(model.grain)
        )

    @functools.cached_property
    def in_warehouse(self) -> Mapping[str, Model]:
        """Stored models that are tables of the warehouse."""
        return {name: model for name, model in self.stored.items() if name not in self.in_parts}

    @functools.cached_property
    def copied(self) -> tuple[str, ...]:
        """Return base tables of runs that a fleet model reads.

        The warehouse has a copy of their rows, so that no file per run must be opened.
        """
        return tuple(name for name in tables() if name in self._fleet_inputs - {"skipped"})

    @functools.cached_property
    def per_run(self) -> tuple[Model, ...]:
        """Return the models per run, in the order in which a batch of runs takes little memory."""
        names = [name for name, model in self.models.items() if not model.fleet]
        return tuple(self.models[n] for n in frugal_order(names, self.inputs, self.columns))

    @functools.cached_property
    def _fleet_inputs(self) -> frozenset[str]:
        return frozenset(i for name, m in self.models.items() if m.fleet for i in self.inputs[name])

    def table(self, name: str) -> Table:
        """Return a model as a table."""
        return Table(name, self.models[name].doc, self.columns[name])

    def upstream(self, names: Iterable[str]) -> list[Model]:
        """Return the named models and all they are computed from, in build order."""
        wanted: set[str] = set()
        pending = [name for name in names if name in self.models]
        while pending:
            name = pending.pop()
            if name not in wanted:
                wanted.add(name)
                pending.extend(self.inputs[name] & self.models.keys())
        return [model for name, model in self.models.items() if name in wanted]


def load(directory: Path) -> Catalog:
    """Read every model of a folder and prove it on empty base tables.

    Raises:
        ContractError: A header, a SELECT or the graph breaks a rule; it says where.
    """
    return _load(directory, Proof.of)


@functools.cache
def catalog() -> Catalog:
    """Return the models shipped with tracelake; a proof by another process is reused.

    Raises:
        ContractError: See `load`.
    """
    return _load(resource_dir("sql"), Proof.kept)


def _load(directory: Path, prove: Callable[[Mapping[str, Model], str, Path], Proof]) -> Catalog:
    models = _read_all(directory)
    macros_path = directory / "macros.sql"
    macros = macros_path.read_text(encoding="utf-8") if macros_path.is_file() else ""
    proof = prove(models, macros, macros_path)
    digest = hashlib.sha256(macros.encode())
    for name in sorted(models):
        digest.update(f"{name}\0{models[name].sql}\0".encode())
    shown: dict[str, tuple[Column, ...]] = {}
    for name, names in proof.columns.items():
        known = documented(models[name], proof.inputs[name], shown)
        shown[name] = tuple(known[column] for column in names)
    return Catalog(
        {name: models[name] for name in proof.inputs},
        proof.inputs,
        shown,
        proof.needs,
        macros,
        digest.hexdigest()[:16],
    )


def _read_all(directory: Path) -> dict[str, Model]:
    models: dict[str, Model] = {}
    for path in sorted(directory.glob("*/*.sql")):
        if path.parent.name in (CHECKS, EXAMPLES):
            continue
        model = read_model(path)
        if model.name in models or model.name in tables():
            other = models[model.name].path if model.name in models else "schemas/"
            raise ContractError(
                f"the name {model.name} is taken by {other}", path=path, hint="rename the file"
            )
        models[model.name] = model
    return models
