"""Check the statements of a query, and find the parameters of each.

Parameters are named values that are bound, not pasted into the SQL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import duckdb

from tracelake.base.errors import UsageError
from tracelake.models.graph import select_tree, walk

Value: TypeAlias = "str | int | float | bool | datetime | list[Value] | None"
Parameters: TypeAlias = Mapping[str, Value]

_NAME = re.compile(r"[A-Za-z_]\w*")
_INT128 = 1 << 127


def split_parameters(texts: Iterable[str]) -> dict[str, str]:
    """Return texts `name=value` as a dictionary; names are lower case, as SQL ignores case.

    Raises:
        UsageError: One is not `name=value`, or a name is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        given, equals, value = text.partition("=")
        name = given.strip().lower()
        if not equals or not _NAME.fullmatch(name):
            raise UsageError(
                f"{text!r} is not a parameter",
                hint="give name=value; the SQL refers to it as $name",
            )
        if name in found:
            raise UsageError(
                f"parameter {name!r} is given twice",
                hint=f"give several values as a list: {name}='[1, 2]'",
            )
        found[name] = value
    return found


def read_value(text: str) -> Value:
    """Return a JSON value (number, true, false, null, list, quoted text), else the text.

    So `7` is a number, `"7"` and `007` are text, and `[1, 2]` is a list.
    """
    try:
        value: Value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text
    return value if _has_type(value) else text


def _refuse(word: str) -> None:
    """Reject NaN and infinities, which are not JSON."""
    raise ValueError(word)


def _has_type(value: object) -> bool:
    """Return whether SQL has a type for it; an object stays the text as given."""
    if isinstance(value, list):
        return all(map(_has_type, value))
    if isinstance(value, int):
        return -_INT128 <= value < _INT128
    return not isinstance(value, dict)


def bound(names: Iterable[str], parameters: Parameters) -> dict[str, Value]:
    """Return the parameters of one statement.

    Raises:
        UsageError: One is missing, or the statement has a `?` or `$1`.
    """
    wanted = sorted({name.lower() for name in names})
    if positional := [name for name in wanted if name.isdigit()]:
        raise UsageError(
            f"the parameter ${positional[0]} has no name",
            hint="write $name, and give --param name=VALUE",
        )
    if missing := [name for name in wanted if name not in parameters]:
        raise UsageError(
            f"the query takes a parameter ${missing[0]}",
            hint="give " + " ".join(f"--param {name}=VALUE" for name in missing),
        )
    return {name: parameters[name] for name in wanted}


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
