"""Prove models on empty tables, and store the result between processes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import duckdb

from tracelake.base.disk_cache import cache_of
from tracelake.base.errors import ContractError
from tracelake.lake.losses import lost_table
from tracelake.models.base import create_empty_tables, engine_errors, own
from tracelake.models.compute import compute, connect
from tracelake.models.graph import build_order, check_macros, inputs_of, unstable_functions
from tracelake.models.header import Model, documented
from tracelake.models.kernel_models import check_kernel
from tracelake.models.needs import Needs, NeedsFinder
from tracelake.schema.tables import Column, columns, schema_hash, tables

_FILE = "proof.json"


@dataclass(frozen=True)
class Proof:
    """The facts about models that satisfy their contract.

    Attributes:
        inputs: Per model, in build order, the base tables and models it reads.
        columns: Per model, the names of its columns in order.
        needs: Per model, the relations without whose rows it has none; see `Needs`.
    """

    inputs: Mapping[str, frozenset[str]]
    columns: Mapping[str, tuple[str, ...]]
    needs: Mapping[str, Needs]

    @classmethod
    def of(cls, models: Mapping[str, Model], macros: str, macros_path: Path) -> Self:
        """Prove models on empty base tables.

        Raises:
            ContractError: A SELECT or the graph breaks a rule, or a header is not what the SELECT
                gives; it says where.
        """
        with connect() as con:
            with engine_errors("macros", macros_path):
                con.execute(macros)
            check_macros(con, macros_path)
            relations = {*tables(), lost_table().name, *models}
            unstable = unstable_functions(con)
            inputs = {
                name: inputs_of(con, model.path, model.sql, relations, unstable)
                for name, model in models.items()
            }
            order = build_order(models, inputs)
            _check_scopes(models, inputs)
            create_empty_tables(con)
            shown: dict[str, tuple[Column, ...]] = {}
            for name in order:
                known = documented(models[name], inputs[name], shown)
                shown[name] = _columns(con, models[name], known)
            finder = NeedsFinder(con)
            needs = {name: finder.of(models[name].sql) for name in order}
        names = {name: tuple(c.name for c in found) for name, found in shown.items()}
        return cls({name: inputs[name] for name in order}, names, needs)

    @classmethod
    def kept(cls, models: Mapping[str, Model], macros: str, macros_path: Path) -> Self:
        """Return the stored proof of these models; without one, prove them now.

        Raises:
            ContractError: See `of`.
        """

        def prove() -> bytes:
            proof = cls.of(models, macros, macros_path)
            inputs = {name: sorted(read) for name, read in proof.inputs.items()}
            needs = {name: [sorted(a) for a in found] for name, found in proof.needs.items()}
            kept = {"inputs": inputs, "columns": proof.columns, "needs": needs}
            return json.dumps(kept).encode()

        kept = cache_of("models", *_depends_on(models, macros))
        content = json.loads(kept.made(_FILE, prove))
        return cls(
            {name: frozenset(read) for name, read in content["inputs"].items()},
            {name: tuple(shown) for name, shown in content["columns"].items()},
            {name: frozenset(map(frozenset, found)) for name, found in content["needs"].items()},
        )


def _depends_on(models: Mapping[str, Model], macros: str) -> Iterator[str]:
    """Yield all that a proof depends on: models, schemas, DuckDB, these rules."""
    yield from (macros, schema_hash(), duckdb.__version__)
    for model in models.values():
        yield from (model.name, model.sql)
    yield from map(repr, (*columns().values(), *lost_table().columns))
    for source in sorted(Path(__file__).parent.glob("*.py")):
        yield source.read_text(encoding="utf-8")


def _check_scopes(models: Mapping[str, Model], inputs: Mapping[str, frozenset[str]]) -> None:
    for name, model in models.items():
        fleet = sorted(i for i in inputs[name] if i in models and models[i].fleet)
        if fleet and not model.fleet:
            raise ContractError(
                f"a model per run reads the fleet model {fleet[0]}",
                path=model.path,
                hint="add -- @scope fleet",
            )


def _columns(
    con: duckdb.DuckDBPyConnection, model: Model, known: Mapping[str, Column]
) -> tuple[Column, ...]:
    """Compute a model on empty inputs; return its columns, documented and of declared type."""
    if model.kernel is not None:
        check_kernel(con, model)
    compute(con, model)
    found = {}
    for name, type_, *_ in con.execute(f"DESCRIBE {own(model.name)}").fetchall():
        column = known.get(name)
        if column is None:
            raise ContractError(
                f"column {name} is not documented",
                path=model.path,
                hint=f"add -- @column {name} {type_} | doc",
            )
        if column.type != ("VARCHAR" if type_.startswith("ENUM(") else type_):
            raise ContractError(
                f"column {name} is {type_}, declared {column.type}",
                path=model.path,
                hint=f"cast it: ...::{column.type} AS {name}",
            )
        found[name] = column
    if missing := [
        name for name in (*model.grain, *model.order, *model.declared) if name not in found
    ]:
        raise ContractError(
            f"the SELECT does not give {', '.join(missing)}",
            path=model.path,
            hint="select it, or remove it from the header",
        )
    return tuple(found.values())
