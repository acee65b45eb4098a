"""All models of `sql/`, checked against their headers, in the order in which they are built."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pipeline.errors import ContractError
from pipeline.models.base import create_empty_tables, engine_errors, quoted
from pipeline.models.graph import build_order, check_macros, inputs_of
from pipeline.models.header import Model, read_model
from pipeline.resources import resource_dir
from pipeline.schema import Column, columns, tables

CHECKS = "checks"


@dataclass(frozen=True)
class Catalog:
    """The models and what was derived from their SQL.

    Attributes:
        models: By name, in build order.
        inputs: Per model, the base tables and models it reads.
        columns: Per model, its columns in order, with type, unit and doc.
        macros: SQL that defines the shared macros on a connection.
        hash: Changes whenever a model or a macro does.
    """

    models: Mapping[str, Model]
    inputs: Mapping[str, frozenset[str]]
    columns: Mapping[str, tuple[Column, ...]]
    macros: str
    hash: str

    @property
    def public(self) -> tuple[str, ...]:
        """Names of the models that are for users, in build order."""
        return tuple(name for name, model in self.models.items() if not model.internal)

    @functools.cached_property
    def stored(self) -> Mapping[str, Model]:
        """Models the warehouse keeps: the public ones, and what a fleet model reads."""
        fleet_inputs = {i for name, m in self.models.items() if m.fleet for i in self.inputs[name]}
        return {
            name: model
            for name, model in self.models.items()
            if not model.internal or (name in fleet_inputs and not model.fleet)
        }

    def upstream(self, names: Iterable[str]) -> list[Model]:
        """The named models and all they are computed from, in build order."""
        wanted: set[str] = set()
        pending = [name for name in names if name in self.models]
        while pending:
            name = pending.pop()
            if name not in wanted:
                wanted.add(name)
                pending.extend(self.inputs[name] & self.models.keys())
        return [model for name, model in self.models.items() if name in wanted]


def load(directory: Path) -> Catalog:
    """Reads every model of a folder and proves it on empty base tables.

    Raises:
        ContractError: A header, a SELECT or the graph breaks a rule; it says where.
    """
    models = _read_all(directory)
    macros_path = directory / "macros.sql"
    macros = macros_path.read_text(encoding="utf-8") if macros_path.is_file() else ""
    with connect() as con:
        with engine_errors("macros", macros_path):
            con.execute(macros)
        check_macros(con, macros_path)
        relations = {*tables(), *models}
        inputs = {n: inputs_of(con, m.path, m.sql, relations) for n, m in models.items()}
        ordered = {name: models[name] for name in build_order(models, inputs)}
        _check_scopes(ordered, inputs)
        create_empty_tables(con)
        shown = {name: _prove(con, model) for name, model in ordered.items()}
    digest = hashlib.sha256(macros.encode())
    for name in sorted(models):
        digest.update(f"{name}\0{models[name].sql}\0".encode())
    return Catalog(ordered, inputs, shown, macros, digest.hexdigest()[:16])


@functools.cache
def catalog() -> Catalog:
    """The models shipped with tracelake.

    Raises:
        ContractError: See `load`.
    """
    return load(resource_dir("sql"))


def connect(**config: str | int | bool) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB that never fetches an extension."""
    offline = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    return duckdb.connect(":memory:", config={**offline, **config})


def compute(con: duckdb.DuckDBPyConnection, model: Model) -> int:
    """Computes a model as a temporary table of its name and checks its grain.

    Its inputs must be there under their plain names, and the macros defined.

    Returns:
        Number of rows.

    Raises:
        ContractError: The SQL fails, or the grain is not unique or has NULL.
        LakeError: A part file cannot be read, or memory does not suffice.
    """
    name = quoted(model.name)
    with engine_errors(model.name, model.path):
        con.execute(f"CREATE TEMP TABLE {name} AS {model.sql}")
    keys = ", ".join(quoted(key) for key in model.grain)
    required = [key for key in model.grain if key not in model.nullable]
    has_null = " OR ".join(f"{quoted(key)} IS NULL" for key in required)
    rows, nulls = con.execute(
        f"SELECT count(*), count(*) FILTER ({has_null}) FROM temp.{name}"
    ).fetchall()[0]
    if nulls:
        raise ContractError(
            f"{nulls} rows have NULL in the grain ({', '.join(model.grain)})", path=model.path
        )
    twice = con.execute(
        f"SELECT {keys}, count(*) FROM temp.{name} GROUP BY ALL HAVING count(*) > 1"
        f" ORDER BY ALL LIMIT 1"
    ).fetchone()
    if twice:
        shown = ", ".join(f"{k}={v}" for k, v in zip(model.grain, twice, strict=False))
        raise ContractError(f"{twice[-1]} rows have the grain {shown}", path=model.path)
    return int(rows)


def _read_all(directory: Path) -> dict[str, Model]:
    models: dict[str, Model] = {}
    for path in sorted(directory.glob("*/*.sql")):
        if path.parent.name == CHECKS:
            continue
        model = read_model(path)
        if model.name in models or model.name in tables():
            other = models[model.name].path if model.name in models else "schemas/"
            raise ContractError(
                f"the name {model.name} is taken by {other}", path=path, hint="rename the file"
            )
        models[model.name] = model
    return models


def _check_scopes(models: Mapping[str, Model], inputs: Mapping[str, frozenset[str]]) -> None:
    for name, model in models.items():
        fleet = sorted(i for i in inputs[name] if i in models and models[i].fleet)
        if fleet and not model.fleet:
            raise ContractError(
                f"a model per run reads the fleet model {fleet[0]}",
                path=model.path,
                hint="add -- @scope fleet",
            )


def _prove(con: duckdb.DuckDBPyConnection, model: Model) -> tuple[Column, ...]:
    """Computes a model on empty inputs; its columns as documented."""
    compute(con, model)
    known = columns()
    shown = []
    for name, type_, *_ in con.execute(f"DESCRIBE temp.{quoted(model.name)}").fetchall():
        column = model.declared.get(name) or known.get(name)
        if column is None:
            raise ContractError(
                f"column {name} is not documented",
                path=model.path,
                hint=f"add -- @column {name} {type_} | doc",
            )
        if column.type != type_:
            raise ContractError(
                f"column {name} is {type_}, declared {column.type}",
                path=model.path,
                hint=f"cast it: ...::{column.type} AS {name}",
            )
        shown.append(column)
    names = [column.name for column in shown]
    if missing := [name for name in (*model.grain, *model.declared) if name not in names]:
        raise ContractError(
            f"the SELECT does not give {', '.join(missing)}",
            path=model.path,
            hint="select it, or take it out of the header",
        )
    return tuple(shown)
