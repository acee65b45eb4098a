"""Which statements a query may have, and the parameters that each takes."""

from __future__ import annotations

import re
from dataclasses import dataclass

import duckdb

from pipeline.errors import UsageError
from pipeline.query.parameters import Parameters, bound

_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(ANALYZE\s+)?(\([^)]*\)\s*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that only reads, and its parameters by name."""

    sql: str
    parameters: Parameters


def read_statements(
    con: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters
) -> list[Statement]:
    """Statements of a text, each of which only reads.

    Raises:
        UsageError: Not SQL, nothing, or a statement that is not a SELECT, EXPLAIN, DESCRIBE or
            SHOW; a parameter that is missing, or that no statement takes.
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
    inner = statement
    if statement.type == duckdb.StatementType.EXPLAIN:
        explained = _extract(con, _EXPLAIN.sub("", statement.query, count=1))
        inner = explained[0] if len(explained) == 1 else statement
    if inner.type == duckdb.StatementType.MULTI:
        raise UsageError("PIVOT must name its values", hint="PIVOT ... ON column IN (...)")
    if inner.type != duckdb.StatementType.SELECT:
        raise UsageError(
            f"{inner.type.name.replace('_', ' ')} is not for queries: the lake is read-only",
            hint="SELECT, EXPLAIN, DESCRIBE or SHOW;"
            " for more, ATTACH the warehouse READ_ONLY in a database of your own",
        )


def _extract(con: duckdb.DuckDBPyConnection, sql: str) -> list[duckdb.Statement]:
    try:
        return con.extract_statements(sql)
    except duckdb.Error as error:
        raise UsageError(str(error)) from error
