"""Store a sum over the rows of every table in the warehouse, and compare it later.

DuckDB finds damaged blocks when it reads them. It does not find rows that another program has
changed or removed; the sums do.
"""

from __future__ import annotations

import duckdb

from tracelake.models.base import literal, quoted

_TABLE = "_build_sums"


def write_sums(con: duckdb.DuckDBPyConnection) -> None:
    """Record the sums of all tables of the attached warehouse.

    Call it after all other changes are committed: DuckDB does not count rows before that.
    """
    con.execute(f"DROP TABLE IF EXISTS warehouse.main.{_TABLE}")
    con.execute(
        f"CREATE TABLE warehouse.main.{_TABLE} AS"
        f" SELECT *, {literal(duckdb.__version__)} AS engine FROM ({_select(con)})"
    )


def changed_relations(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return tables of the attached warehouse that are not as the build wrote them.

    This reads every row. Another version of DuckDB may hash in another way: then only the numbers
    of rows are compared.

    Raises:
        duckdb.Error: A table cannot be read, or there are no sums.
    """
    rows = con.execute(
        f"""
        SELECT coalesce(now.relation, built.relation)
        FROM ({_select(con)}) AS now
        FULL JOIN warehouse.main.{_TABLE} AS built ON now.relation = built.relation
        WHERE now.relation IS DISTINCT FROM built.relation
            OR now.rows IS DISTINCT FROM built.rows
            OR (engine = $1 AND now.sum IS DISTINCT FROM built.sum)
        ORDER BY ALL
        """,
        [duckdb.__version__],
    ).fetchall()
    return [name for (name,) in rows]


def missing_relations(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return tables and views that the build wrote and that the attached warehouse lacks."""
    rows = con.execute(
        f"""
        SELECT relation FROM warehouse.main.{_TABLE}
        EXCEPT SELECT table_name FROM duckdb_tables() WHERE database_name = 'warehouse'
        EXCEPT SELECT view_name FROM duckdb_views() WHERE database_name = 'warehouse'
        ORDER BY ALL
        """
    ).fetchall()
    return [name for (name,) in rows]


def _select(con: duckdb.DuckDBPyConnection) -> str:
    """Return a SELECT of every table's number of rows and sum of their hashes; views have none."""
    found = con.execute(
        "SELECT table_name, estimated_size > 0 FROM duckdb_tables()"
        " WHERE database_name = 'warehouse' AND schema_name = 'main' AND table_name != $1"
        " ORDER BY ALL",
        [_TABLE],
    ).fetchall()
    sums = [
        f"SELECT {literal(name)} AS relation, count(*) AS rows, sum(hash(t)) AS sum"
        f" FROM warehouse.main.{quoted(name)} AS t"
        for name, has_rows in found
        if has_rows
    ]
    empty = ", ".join(literal(name) for name, has_rows in found if not has_rows)
    views = (
        "SELECT view_name, NULL, NULL FROM duckdb_views()"
        " WHERE database_name = 'warehouse' AND NOT internal"
    )
    return " UNION ALL ".join([*sums, f"SELECT unnest([{empty}]::VARCHAR[]), 0, NULL", views])
