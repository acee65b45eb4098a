"""Verifies a lake: files against manifests, rows against accounts, figures against each other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import ContractError, LakeError
from pipeline.lake import Lake, Snapshot
from pipeline.models.base import copy_of, engine_errors, literal, quoted
from pipeline.models.build import same_code, wanted_state
from pipeline.models.catalog import CHECKS, Catalog, catalog
from pipeline.models.compute import connect
from pipeline.models.fill import Filler
from pipeline.models.graph import inputs_of, unstable_functions
from pipeline.models.header import read_header
from pipeline.models.state import attach, read_state, recorded_state
from pipeline.query import open_warehouse
from pipeline.resources import resource_dir
from pipeline.schema import reasons, tables

_SHOWN_ROWS = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        check: Name of the check.
        severity: error or warning.
        message: What is wrong, with an example.
        rows: How many rows, files or runs it concerns.
    """

    check: str
    severity: str
    message: str
    rows: int


@dataclass(frozen=True, slots=True)
class Check:
    """A SELECT of `sql/checks/` that returns offending rows."""

    name: str
    doc: str
    severity: str
    sql: str
    path: Path


def checks(directory: Path | None = None) -> list[Check]:
    """Every check of a folder.

    Raises:
        ContractError: A file breaks its form, or reads what is not in the warehouse.
    """
    folder = directory or resource_dir("sql") / CHECKS
    relations = {*tables(), *catalog().public}
    found = []
    with connect() as con:
        unstable = unstable_functions(con)
        for path in sorted(folder.glob("*.sql")):
            sql = path.read_text(encoding="utf-8")
            doc, tags = read_header(path, sql, ("severity",))
            severity = tags["severity"][0][1] if tags["severity"] else ""
            if severity not in {"error", "warning"}:
                raise ContractError(
                    f"severity {severity!r}", path=path, hint="-- @severity error or warning"
                )
            inputs_of(con, path, sql, relations, unstable)
            found.append(Check(path.stem, doc, severity, sql, path))
    return found


def check_lake(lake: Lake) -> list[Finding]:
    """Runs every check that a lake can fail; an empty list is a good lake.

    Raises:
        LakeError: The manifests cannot be read.
        ContractError: A check or a model is broken.
    """
    snapshot = lake.snapshot()
    findings = list(_check_parts(lake, snapshot))
    all_read = not findings
    if not lake.warehouse.is_file():
        return [*findings, _error("warehouse", "there is none: tracelake build", 1)]
    findings += _check_current(lake, snapshot)
    try:
        con = open_warehouse(lake)
    except LakeError as error:
        return [*findings, _error("warehouse", str(error), 1)]
    with con:
        con.execute(catalog().macros)
        findings += _check_reasons(con, catalog())
        if all_read:
            findings += _check_rows(con)
    return findings


def check_incremental(lake: Lake, *, memory_limit: str = "60%") -> list[Finding]:
    """Builds everything anew beside the warehouse and compares: a build per run equals a full one.

    Raises:
        LakeError: The lake has no current warehouse to compare with.
    """
    snapshot, models = lake.snapshot(), catalog()
    state = wanted_state(lake, snapshot, models)
    if recorded_state(lake.warehouse) != state:
        raise LakeError(
            "the warehouse is not current", path=lake.warehouse, hint="first: tracelake build"
        )
    with lake.staging("check") as folder, engine_errors("the comparison"):
        anew = folder / "warehouse.duckdb"
        Filler(lake.root, models, memory_limit, None, lambda _: None).fill(
            anew, snapshot, None, state
        )
        with connect() as con:
            attach(con, lake.warehouse, read_only=True)
            con.execute(f"ATTACH {literal(str(anew))} AS anew (READ_ONLY)")
            names = [*models.stored, *map(copy_of, models.copied)]
            return [finding for name in names for finding in _compare(con, name)]


def findings_table(findings: list[Finding]) -> pa.Table:
    """Findings as a table: severity, check, rows, message."""
    schema = pa.schema(
        [
            ("check", pa.string()),
            ("severity", pa.string()),
            ("message", pa.string()),
            ("rows", pa.int64()),
        ]
    )
    columns = zip(*map(astuple, findings), strict=True) if findings else [()] * len(schema)
    arrays = [pa.array(values, f.type) for values, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema).select(
        ["severity", "check", "rows", "message"]
    )


def _check_parts(lake: Lake, snapshot: Snapshot) -> Iterator[Finding]:
    """Every part of a manifest is there, is what was written, and has its table's schema."""
    missing, damaged, other = [], [], []
    for table in tables().values():
        for part in snapshot.parts(table.name):
            path = lake.root / part
            if not path.is_file():
                missing.append(part)
                continue
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if not digest.startswith(path.stem.removeprefix("part-")):
                damaged.append(part)
            elif not _schema_fits(path, table.storage_schema, lacking=part in snapshot.older):
                other.append(part)
    for check, parts, what in (
        ("parts_exist", missing, "part files are gone; ingest their inputs again"),
        ("parts_intact", damaged, "part files differ from what was written; ingest them again"),
        ("parts_schema", other, "part files have another schema; ingest them again"),
    ):
        if parts:
            yield _error(check, f"{what}: {_some(parts)}", len(parts))


def _schema_fits(path: Path, schema: pa.Schema, *, lacking: bool) -> bool:
    """Whether a part has its table's schema, or what there was of it in an earlier version."""
    try:
        found: pa.Schema = pq.read_schema(path)
    except (pa.ArrowException, OSError):
        return False
    if lacking:
        return all(f.name in schema.names and f.type == schema.field(f.name).type for f in found)
    return bool(found.equals(schema))


def _check_current(lake: Lake, snapshot: Snapshot) -> Iterator[Finding]:
    """The warehouse was built from what the lake has now, here, by this tracelake."""
    with connect() as con:
        try:
            attach(con, lake.warehouse, read_only=True)
            state = read_state(con)
        except duckdb.Error:
            return
    wanted = wanted_state(lake, snapshot, catalog())
    if state is None or state == wanted:
        return
    if state.root != wanted.root:
        yield Finding(
            "views_found",
            "warning",
            f"the lake was moved from {state.root}; tracelake build re-points the views",
            len(tables()),
        )
    if not same_code(state, wanted):
        yield _error("warehouse_current", "models or schemas changed: tracelake build", 1)
    elif state.stamp != wanted.stamp:
        stale = {run for run, _ in state.runs.items() ^ wanted.runs.items()}
        yield _error(
            "warehouse_current",
            f"the lake changed since the build: tracelake build ({_some(sorted(stale))})",
            len(stale),
        )


def _check_rows(con: duckdb.DuckDBPyConnection) -> Iterator[Finding]:
    """Runs the SQL checks."""
    for check in checks():
        with engine_errors(check.name, check.path):
            (count,) = con.execute(f"SELECT count(*) FROM ({check.sql})").fetchone() or (0,)
            if count:
                rows = con.execute(f"FROM ({check.sql}) ORDER BY ALL LIMIT {_SHOWN_ROWS}")
                names = [column[0] for column in rows.description or []]
                shown = [
                    ", ".join(f"{n}={v}" for n, v in zip(names, row, strict=True))
                    for row in rows.fetchall()
                ]
                message = f"Violated: {check.doc} E.g. {'; '.join(shown)}"
                yield Finding(check.name, check.severity, message, count)


def _check_reasons(con: duckdb.DuckDBPyConnection, models: Catalog) -> Iterator[Finding]:
    """Every reason a model gives is documented."""
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
                    yield _error("reasons_known", message, count)


def _compare(con: duckdb.DuckDBPyConnection, name: str) -> Iterator[Finding]:
    table = quoted(name)
    (count,) = con.execute(
        f"""
        SELECT count(*) FROM (
            (FROM warehouse.main.{table} EXCEPT ALL FROM anew.main.{table})
            UNION ALL
            (FROM anew.main.{table} EXCEPT ALL FROM warehouse.main.{table})
        )
        """
    ).fetchone() or (0,)
    if count:
        yield _error("incremental", f"{name} differs from a full build", count)


def _error(check: str, message: str, rows: int) -> Finding:
    return Finding(check, "error", message, rows)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN_ROWS} more" if len(names) > _SHOWN_ROWS else ""
    return ", ".join(names[:_SHOWN_ROWS]) + more
