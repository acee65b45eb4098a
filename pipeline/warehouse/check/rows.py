"""Check rows of the warehouse: `sql/checks/`, unique keys, reasons and counts."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from tracelake.base.errors import ContractError, LakeError
from tracelake.base.resources import resource_dir
from tracelake.lake.losses import lost_table
from tracelake.lake.manifest import Snapshot
from tracelake.models.base import engine_errors, quoted
from tracelake.models.catalog import CHECKS, Catalog, catalog
from tracelake.models.compute import connect
from tracelake.models.failures import read_failures
from tracelake.models.graph import inputs_of, unstable_functions
from tracelake.models.header import read_header
from tracelake.schema.tables import reasons, tables
from tracelake.warehouse.check.findings import BUILD_FULL, SHOWN, Finding, error, some


@dataclass(frozen=True, slots=True)
class Check:
    """A SELECT of `sql/checks/` that returns offending rows."""

    name: str
    doc: str
    severity: str
    sql: str
    path: Path


@functools.cache
def checks(directory: Path | None = None) -> Sequence[Check]:
    """Return every check of a folder, read once in a process.

    Raises:
        ContractError: A file breaks its form, or reads what is not in the warehouse.
    """
    folder = directory or resource_dir("sql") / CHECKS
    relations = {*tables(), lost_table().name, *catalog().public}
    found = []
    with connect() as con:
        unstable = unstable_functions(con)
        for path in sorted(folder.glob("*.sql")):
            sql = path.read_text(encoding="utf-8")
            doc, tags, _ = read_header(path, sql, ("severity",))
            severity = tags["severity"][0][1] if tags["severity"] else ""
            if severity not in {"error", "warning"}:
                raise ContractError(
                    f"severity {severity!r}", path=path, hint="-- @severity error or warning"
                )
            inputs_of(con, path, sql, relations, unstable)
            found.append(Check(path.stem, doc, severity, sql, path))
    return found


def check_rows(con: duckdb.DuckDBPyConnection) -> Iterator[Finding]:
    """Run the SQL checks."""
    for check in checks():
        try:
            with engine_errors(check.name, check.path):
                yield from _violations(con, check)
        except (LakeError, duckdb.Error) as problem:  # DuckDB has no class for some damage
            message = f"cannot run, because rows cannot be read: {problem}"
            yield error(check.name, message, 1, "tracelake check, without --quick")


def _violations(con: duckdb.DuckDBPyConnection, check: Check) -> Iterator[Finding]:
    (count,) = con.execute(f"SELECT count(*) FROM ({check.sql})").fetchone() or (0,)
    if count:
        rows = con.execute(f"FROM ({check.sql}) ORDER BY ALL LIMIT {SHOWN}")
        names = [column[0] for column in rows.description or []]
        shown = [
            ", ".join(f"{n}={v}" for n, v in zip(names, row, strict=True))
            for row in rows.fetchall()
        ]
        message = f"Violated: {check.doc} E.g. {'; '.join(shown)}"
        repair = BUILD_FULL if check.severity == "error" else "none: the input is like this"
        yield Finding(check.name, check.severity, message, count, repair)


def check_reasons(con: duckdb.DuckDBPyConnection, models: Catalog) -> Iterator[Finding]:
    """Check that every reason a model gives is documented."""
    for name in models.public:
        for column in models.columns[name]:
            if not column.name.endswith("reason"):
                continue
            rows = con.execute(
                f"SELECT {column.name}, count(*) FROM {quoted(name)}"
                f" WHERE {column.name} IS NOT NULL GROUP BY 1 ORDER BY 1"
            ).fetchall()
            for reason, count in rows:
                if reason not in reasons():
                    message = f"{name}.{column.name} gives {reason!r}: not in schemas/reasons.toml"
                    yield error("reasons_known", message, count, BUILD_FULL)


def check_failures(con: duckdb.DuckDBPyConnection) -> Iterator[Finding]:
    """Name the runs without figures, because a model failed on their data."""
    failed = read_failures(con)
    if failed:
        said = [f"{run.run_id} ({run.input}): {run.failed_model}: {run.message}" for run in failed]
        message = f"runs without figures: {some(said)}"
        repair = "mend their input and ingest it again, or tracelake drop RUN"
        yield Finding("models_computed", "warning", message, len(failed), repair)


def check_grains(con: duckdb.DuckDBPyConnection, models: Catalog) -> Iterator[Finding]:
    """Check that no two rows of a model have the same key."""
    for name in models.public:
        grain = models.models[name].grain
        keys = ", ".join(map(quoted, grain))
        (count,) = con.execute(
            f"SELECT count(*) FROM (FROM {quoted(name)} SELECT {keys}"
            f" GROUP BY {keys} HAVING count(*) > 1)"
        ).fetchone() or (0,)
        if count:
            message = f"{name} has several rows per {', '.join(grain)}"
            yield error("grains_unique", message, count, BUILD_FULL)


def check_counts(con: duckdb.DuckDBPyConnection, snapshot: Snapshot) -> Iterator[Finding]:
    """Check that the warehouse has as many lines of each input as the manifest says were read."""
    stored = dict(
        con.execute("SELECT run_id, sum(lines)::BIGINT FROM sources GROUP BY 1").fetchall()
    )
    differ = [
        run_id
        for run_id, entry in snapshot.runs.items()
        if entry.sources and stored.get(run_id) != sum(source["lines"] for source in entry.sources)
    ]
    if differ:
        message = f"manifest and sources have different line counts: {some(differ)}"
        yield error("lines_recorded", message, len(differ), BUILD_FULL)
