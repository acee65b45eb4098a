"""Describe runs that are left out of a build, because a model failed on their data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import duckdb

from tracelake.models.base import own, quoted

FAILURES = "model_failures"
"""The model whose rows the build adds; without it in a catalog, a failure ends the build."""

# Of a run that is left out, the columns of `runs` that the models get; the others are NULL.
IDENTITY = ("run_id", "format", "name", "config", "run_date", "date_source")


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that is left out; the fields are the columns of `model_failures`.

    Attributes:
        failed_model: The model that failed.
        message: What DuckDB said of it, without the place in the SQL.
        input: First file of the run.
        more_inputs: How many further files it has.
    """

    run_id: str
    failed_model: str
    message: str
    input: str
    more_inputs: int


def add_failures(con: duckdb.DuckDBPyConnection, failures: Sequence[Failure]) -> None:
    """Add rows to the model, which has just been computed."""
    con.executemany(
        f"INSERT INTO {own(FAILURES)} VALUES (?, ?, ?, ?, ?)",
        [list(astuple(failure)) for failure in failures],
    )


def read_failures(con: duckdb.DuckDBPyConnection) -> tuple[Failure, ...]:
    """Return the failures recorded in the attached warehouse, by run."""
    try:
        rows = con.execute(
            "SELECT run_id, failed_model, message, input, more_inputs"
            f" FROM warehouse.main.{quoted(FAILURES)} ORDER BY run_id"
        ).fetchall()
    except duckdb.CatalogException:  # the models have no such relation
        return ()
    return tuple(Failure(*row) for row in rows)
