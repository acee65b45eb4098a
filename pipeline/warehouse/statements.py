"""Check the statements of a query, and find the parameters of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import duckdb

from tracelake.base.errors import UsageError
from tracelake.models.graph import select_tree, walk
from tracelake.warehouse.parameters import Parameters, bound

_OPTION = r"\s*(?:ANALYZE|FORMAT\s+\w+)\s*"
_EXPLAIN = re.compile(
    rf"\s*EXPLAIN\s+(?:ANALYZE\s+)?(?:\({_OPTION}(?:,{_OPTION})*\)\s*)?", re.IGNORECASE
)

# Allowed parts of a SELECT. DuckDB also calls it a SELECT when a CTE writes.
_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
# Table functions that read tables, the catalog or Parquet files. Functions that read other files,
# change DuckDB's state, take memory addresses or run SQL text are not allowed.
_TABLE_FUNCTIONS = re.compile(
    r"range|generate_series|repeat|repeat_row|unnest|histogram|histogram_values|json_(each|tree)"
    r"|duckdb_(columns|constraints|databases|dependencies|functions|indexes|keywords|memory"
    r"|schemas|settings|tables|temporary_files|types|views)|icu_calendar_names|pg_timezone_names"
    r"|pragma_(database_size|show|storage_info|table_info|version)"
    r"|glob|read_parquet|parquet_(scan|schema|metadata|kv_metadata|file_metadata|full_metadata"
    r"|bloom_probe)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that only reads, and its parameters by name."""

    sql: str
    parameters: Parameters


def read_statements(
    con: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters
) -> list[Statement]:
    """Return the statements of a text; each may only read.

    Raises:
        UsageError: Not SQL, nothing, or a statement that is not a SELECT, EXPLAIN, DESCRIBE or
            SHOW, or has a part that writes or a function that does more than read the lake; a
            parameter that is missing, or that no statement takes.
    """
    found = _extract(con, sql)
    if not found:
        raise UsageError("the query is empty")
    for statement in found:
        _refuse_writing(con, statement)
    statements = [Statement(s.query, bound(s.named_parameters, parameters)) for s in found]
    taken = {name for statement in statements for name in statement.parameters}
    if unknown := sorted(parameters.keys() - taken):
        known = ", ".join(f"${name}" for name in sorted(taken))
        raise UsageError(
            f"the query has no parameter ${unknown[0]}",
            hint=f"it takes {known}" if taken else "it takes none",
        )
    return statements


def _refuse_writing(con: duckdb.DuckDBPyConnection, statement: duckdb.Statement) -> None:
    kind, sql = _kind(statement), statement.query
    explain = _EXPLAIN.match(sql)
    if kind == "EXPLAIN" and explain:
        # The same parser reads the rest: the statement that would be explained.
        sql = sql[explain.end() :]
        explained = _extract(con, sql)
        kind = _kind(explained[0]) if len(explained) == 1 else "EXPLAIN"
    if kind == "MULTI":
        raise UsageError("PIVOT must name its values", hint="PIVOT ... ON column IN (...)")
    if kind != "SELECT":
        raise _refusal(kind.replace("_", " "))
    for node in walk(_parsed(con, sql)):
        type_ = str(node.get("type"))
        if type_.endswith("_NODE") and type_ not in _NODES:
            raise _refusal(type_.removesuffix("_NODE").removesuffix("_QUERY").replace("_", " "))
        if type_ == "TABLE_FUNCTION":
            called = str(node["function"].get("function_name"))
            if not _TABLE_FUNCTIONS.fullmatch(called):
                raise _refusal(f"{called}()")


def _kind(statement: duckdb.Statement) -> str:
    try:
        return statement.type.name
    except ValueError:  # DuckDB knows more types than its Python package
        return "this statement"


def _refusal(what: str) -> UsageError:
    return UsageError(
        f"{what} is not allowed in queries: the lake is read-only",
        hint="SELECT, EXPLAIN, DESCRIBE or SHOW;"
        " for more, ATTACH the warehouse READ_ONLY in a database of your own",
    )


def nested_too_deeply() -> UsageError:
    """Return the error for a query that is too deep for Python's reader of JSON, or for DuckDB.

    Which of them refuses first depends on the version of Python.
    """
    return UsageError(
        "the query is nested too deeply", hint="use WITH, or fewer subqueries in subqueries"
    )


def _parsed(con: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any]:
    """Return the syntax tree of a SELECT."""
    try:
        tree = select_tree(con, sql)
    except RecursionError:
        raise nested_too_deeply() from None
    if tree["error"]:
        raise UsageError(tree["error_message"])
    return tree


def _extract(con: duckdb.DuckDBPyConnection, sql: str) -> list[duckdb.Statement]:
    try:
        sql.encode()
    except UnicodeEncodeError:
        raise UsageError("the query is not UTF-8", hint="write it in UTF-8") from None
    try:
        return con.extract_statements(sql)
    except duckdb.Error as error:
        raise UsageError(str(error)) from error
