"""Find what a SELECT reads from its syntax tree, and order the models."""

from __future__ import annotations

import graphlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from tracelake.base.errors import ContractError
from tracelake.models.header import Model

# Table functions that make rows from their arguments alone.
TABLE_FUNCTIONS = frozenset({"unnest", "range", "generate_series"})


def inputs_of(
    con: duckdb.DuckDBPyConnection,
    path: Path,
    sql: str,
    relations: Collection[str],
    unstable: Collection[str],
) -> frozenset[str]:
    """Return relations that a SELECT reads.

    Args:
        path: File of the SQL, for messages.
        relations: All relations by name.
        unstable: Functions that no model may call; see `unstable_functions`.

    Raises:
        ContractError: Not one plain SELECT over known relations; says where and what to do.
    """
    select = _checked_tree(con, path, sql)
    maps = (node["cte_map"] for node in walk(select) if isinstance(node.get("cte_map"), dict))
    ctes = {entry["key"] for named in maps for entry in named["map"]}
    if shadowed := sorted(ctes & set(relations)):
        raise ContractError(
            f"CTE {shadowed[0]} has the name of a relation",
            path=path,
            line=_line(sql, sql.encode().find(shadowed[0].encode())),
            hint="give the CTE another name",
        )
    found = set()
    for node in walk(select):
        wrong, hint = None, None
        match node.get("type"):
            case "BASE_TABLE":
                name = _cte_of(node["qualified_name"]["path"], ctes)
                found.add(name)
                if name not in relations and name not in ctes:
                    wrong = f"unknown relation {name}"
                    hint = "a base table or a model, by its plain name"
            case "TABLE_FUNCTION" if node["function"]["function_name"] not in TABLE_FUNCTIONS:
                wrong = f"table function {node['function']['function_name']}"
                hint = (
                    f"only {', '.join(sorted(TABLE_FUNCTIONS))}: a file or a table macro would hide"
                    " what the model reads"
                )
            case "FUNCTION" if node.get("function_name") in unstable:
                wrong = f"{node['function_name']}() differs from call to call"
                hint = "a model depends on its inputs alone"
            case "SHOW_REF":
                wrong = "DESCRIBE, SHOW and SUMMARIZE are not for models"
        if wrong:
            line = _line(sql, node["query_location"])
            raise ContractError(wrong, path=path, line=line, hint=hint)
    return frozenset(found - ctes)


def build_order(models: Mapping[str, Model], inputs: Mapping[str, frozenset[str]]) -> list[str]:
    """Return names of the models, each after what it reads; alphabetical among equals.

    Raises:
        ContractError: Models read each other in a circle.
    """
    sorter = graphlib.TopologicalSorter(
        {name: sorted(inputs[name] & models.keys()) for name in sorted(models)}
    )
    try:
        return list(sorter.static_order())
    except graphlib.CycleError as error:
        circle = error.args[1]
        raise ContractError(
            f"models read each other in a circle: {' <- '.join(circle)}",
            path=models[circle[0]].path,
            hint="take one of these references out",
        ) from error


def frugal_order(
    models: Collection[str],
    inputs: Mapping[str, frozenset[str]],
    columns: Mapping[str, Sequence[object]],
) -> list[str]:
    """Return names of some models, each after what it reads, so that few columns are held at once.

    A relation is held until its last reader is computed. The next model is the one that adds the
    fewest columns, less those that are no longer read; alphabetical among equals.
    """
    unread = {name: set[str]() for name in models}
    missing = {name: inputs[name] & unread.keys() for name in sorted(models)}
    for name, read in missing.items():
        for other in read:
            unread[other].add(name)

    def added(name: str) -> int:
        freed = sum(len(columns[i]) for i in inputs[name] if unread.get(i) == {name})
        return (len(columns[name]) if unread[name] else 0) - freed

    order: list[str] = []
    while missing:
        name = min((name for name, read in missing.items() if not read), key=added)
        order.append(name)
        del missing[name]
        for reader in unread[name]:
            missing[reader] -= {name}
        for readers in unread.values():
            readers.discard(name)
    return order


def check_macros(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Check that macros are scalar: a table macro would hide what a model reads.

    A scalar one cannot: macros are defined before any relation exists, and DuckDB binds them then.

    Raises:
        ContractError: One is not scalar.
    """
    rows = con.execute(
        "SELECT function_name, function_type FROM duckdb_functions()"
        " WHERE database_name = 'temp' AND NOT internal AND function_type <> 'macro'"
    ).fetchall()
    for name, kind in rows:
        raise ContractError(
            f"{name} is a {kind.replace('_', ' ')}", path=path, hint="only scalar macros"
        )


def unstable_functions(con: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """Return functions whose value may differ between calls, such as now() and random()."""
    rows = con.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions()"
        " WHERE stability <> 'CONSISTENT' AND function_name <> 'error'"
    ).fetchall()
    return frozenset(name for (name,) in rows)


def select_tree(con: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any]:
    """Return the syntax tree of SELECT statements, as DuckDB's `json_serialize_sql` gives it."""
    ((text,),) = con.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    tree: dict[str, Any] = json.loads(text)
    return tree


def walk(tree: object) -> Iterator[dict[str, Any]]:
    """Yield every object of a syntax tree, parents first."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending.extend(node.values())
        elif isinstance(node, list | tuple):
            pending.extend(node)


def _checked_tree(con: duckdb.DuckDBPyConnection, path: Path, sql: str) -> dict[str, Any]:
    """Return syntax tree of a file that holds one SELECT."""
    tree = select_tree(con, sql)
    if tree["error"]:
        position = tree.get("position")
        if position is None:
            raise ContractError(
                "not a plain SELECT",
                path=path,
                hint="one SELECT per file, WITH allowed, PIVOT not: use count(*) FILTER (...)",
            )
        raise ContractError(tree["error_message"], path=path, line=_line(sql, int(position)))
    if len(tree["statements"]) != 1:
        raise ContractError(
            f"{len(tree['statements'])} statements", path=path, hint="one SELECT per file"
        )
    return tree


def _cte_of(path: list[str], ctes: set[str]) -> str:
    """Return a dotted name; `recurring.paths` is what the recursive CTE `paths` has so far."""
    if len(path) == 2 and path[0] == "recurring" and path[1] in ctes:
        return path[1]
    return ".".join(path)


def _line(sql: str, position: int) -> int | None:
    """Return the line of a position, in bytes as DuckDB counts; None outside the text."""
    raw = sql.encode()
    return raw.count(b"\n", 0, position) + 1 if 0 <= position <= len(raw) else None
