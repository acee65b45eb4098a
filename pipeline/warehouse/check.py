"""Check a lake: part files against manifests; `sql/checks/`, keys, reasons and counts of rows."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from tracelake.base import text
from tracelake.base.errors import ContractError, LakeError
from tracelake.base.resources import resource_dir
from tracelake.lake.dropped import dropped_runs
from tracelake.lake.layout import names_runs
from tracelake.lake.losses import DAMAGED, MISSING, UNNAMED, Losses, lost_table, verify
from tracelake.lake.manifest import Snapshot
from tracelake.lake.part_files import PartFiles
from tracelake.lake.store import Lake
from tracelake.models.base import engine_errors, point_views, quoted
from tracelake.models.build import all_losses, same_code, wanted_state
from tracelake.models.catalog import CHECKS, Catalog, catalog
from tracelake.models.compute import connect
from tracelake.models.failures import read_failures
from tracelake.models.graph import inputs_of, unstable_functions
from tracelake.models.header import read_header
from tracelake.models.state import State, named_parts, recorded
from tracelake.schema.tables import PARTITION_KEY, reasons, tables
from tracelake.warehouse.values import COUNT, TEXT, table_from
from tracelake.warehouse.warehouse import ATTEMPTS, built_anew, edition, open_warehouse

SHOWN = 3
BUILD = "tracelake build"
BUILD_FULL = "tracelake build --full"
COLLECT = "tracelake gc"
some = partial(text.some, most=SHOWN)


@dataclass(frozen=True, slots=True)
class Finding:
    """Describes one thing that a check found.

    Attributes:
        check: Name of the check.
        severity: error or warning.
        message: What is wrong, with an example.
        rows: How many rows, files or runs it concerns.
        repair: The command that repairs it, or why there is none.
    """

    check: str
    severity: str
    message: str
    rows: int
    repair: str


def findings_table(findings: Iterable[Finding]) -> pa.Table:
    """Return findings as a table: severity, check, rows, message, repair."""
    return table_from(findings, severity=TEXT, check=TEXT, rows=COUNT, message=TEXT, repair=TEXT)


def error(check: str, message: str, rows: int, repair: str) -> Finding:
    """Return a finding of severity error."""
    return Finding(check, "error", message, rows, repair)


def drop(run_ids: Iterable[str]) -> str:
    """Return the command that removes runs so that their input can add them again."""
    return f"tracelake drop --forget {' '.join(sorted(run_ids))}"


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
        without = [
            f"{run.run_id} ({run.input}): {run.failed_model}: {run.message}" for run in failed
        ]
        message = f"runs without figures: {some(without)}"
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


def check_lake(lake: Lake, *, quick: bool = False) -> list[Finding]:
    """Run every check of a lake; an empty list means that all passed.

    If a build replaces the warehouse meanwhile, it may have removed what is found missing, so
    everything is checked again.

    Args:
        quick: Do not read part files in full to check that they are intact.

    Raises:
        LakeError: The manifests cannot be read.
        ContractError: A check or a model is broken.
    """
    for _ in range(ATTEMPTS):
        opened = edition(lake)
        try:
            findings = _check(lake, quick=quick)
        except (duckdb.Error, OSError):
            if edition(lake) == opened:
                raise
        else:
            if not findings or edition(lake) == opened:
                return findings
    raise built_anew(lake)


def _check(lake: Lake, *, quick: bool) -> list[Finding]:
    snapshot = lake.snapshot()
    dropped_runs(lake)
    lake.skipped_inputs()
    record = recorded(lake.warehouse, in_full=True)
    state, trouble = record.state, record.trouble
    before = state.lost if state else frozenset()
    # A quick check does not read those parts that the build could read.
    there = lake.part_files.marks(snapshot.all_parts) if quick else {}
    trusted = {part: mark for part, mark in there.items() if part not in before}
    losses = all_losses(lake, state, snapshot, trusted)
    findings = list(check_parts(lake, snapshot, losses, quick=quick))
    all_read = not findings
    findings += check_strays(lake, snapshot, {*named_parts(lake.warehouse), *losses.parts})
    unreadable = list(check_model_parts(lake, quick=quick))
    findings += unreadable
    if trouble:
        findings.append(error("warehouse", f"the warehouse cannot be used: {trouble}", 1, BUILD))
        if state is None:
            return findings
    if not lake.warehouse.is_file():
        return [*findings, error("warehouse", "there is no warehouse", 1, BUILD)]
    wanted = wanted_state(lake, snapshot, catalog(), losses.among(before))
    findings += _check_current(state, wanted)
    if unreadable:
        return findings
    try:
        con = open_warehouse(lake)
    except LakeError as problem:
        return [*findings, error("warehouse", problem.message, 1, BUILD_FULL)]
    with con:
        con.execute(catalog().macros)
        findings += check_failures(con)
        findings += check_reasons(con, catalog())
        findings += check_grains(con, catalog())
        if all_read:
            findings += check_rows(con)
            if state and state.stamp == wanted.stamp:
                findings += check_counts(con, snapshot)
    return findings


def _check_current(state: State | None, wanted: State) -> Iterator[Finding]:
    """Check that the warehouse was built from the present lake, here, by this tracelake."""
    if state is None or state == wanted:
        return
    if state.root != wanted.root:
        message = (
            f"the lake was moved from {state.root}; other programs find its files after"
            f" {point_views(wanted.root)}"
        )
        yield Finding("views_found", "warning", message, len(tables()), BUILD)
    if not same_code(state, wanted):
        yield error("warehouse_current", "models or schemas have changed since the build", 1, BUILD)
    elif state.stamp != wanted.stamp:
        stale = sorted({run for run, _ in state.runs.items() ^ wanted.runs.items()})
        changed = some(stale) if stale else "rows are in other files"
        message = f"the lake changed since the build ({changed})"
        yield error("warehouse_current", message, max(1, len(stale)), BUILD)


def check_parts(
    lake: Lake, snapshot: Snapshot, losses: Losses, *, quick: bool
) -> Iterator[Finding]:
    """Check that every part of a manifest exists, is intact, and has its table's schema.

    Args:
        losses: What is lost of the snapshot.
        quick: Do not read which runs a part has.
    """
    other, unlisted = [], []
    files = lake.part_files
    for name, parts in snapshot.parts_by_table().items():
        table = tables()[name]
        for part in parts:
            schema = table.part_schema if names_runs(part) else table.storage_schema
            if part in losses.parts:
                continue
            if not _schema_fits(files, part, schema, lacking=part in snapshot.older):
                other.append(part)
            elif (
                not quick
                and names_runs(part)
                and _runs_in(files, part) != set(snapshot.runs_of.get(part, ()))
            ):
                unlisted.append(part)
    for check, damage in (
        ("parts_exist", MISSING),
        ("parts_intact", DAMAGED),
        ("parts_of_runs", UNNAMED),
    ):
        if parts := [part for part, found in losses.parts.items() if found == damage]:
            there = frozenset(parts)
            runs = [run for run, lost in losses.runs.items() if not there.isdisjoint(lost)]
            of_runs = f" (of {some(runs)})" if runs else ""
            message = f"part files are {damage}: {some(parts)}{of_runs}"
            lack = f"{BUILD}, then {COLLECT}" if damage == UNNAMED else drop(runs)
            without = f"; without it: {lack}" if runs else ""
            repair = f"give their input to tracelake run again{without}"
            yield error(check, message, len(parts), repair)
    for check, parts, what in (
        ("parts_schema", other, "part files have another schema"),
        ("parts_listed", unlisted, "part files have other runs than their manifest says"),
    ):
        if parts:
            yield error(check, f"{what}: {some(parts)}", len(parts), _read_again(snapshot, parts))


def check_model_parts(lake: Lake, *, quick: bool) -> Iterator[Finding]:
    """Check that the parts of models that the warehouse names exist, and are intact.

    Args:
        quick: Do not read those that have not changed since the build.
    """
    record = recorded(lake.warehouse)
    named = record.model_parts
    lost, _ = verify(lake.part_files, named.keys(), record.marks if quick else {})
    if lost:
        runs = sorted({run_id for part in lost for run_id in named[part]})
        message = f"part files of models are missing or damaged: {some(sorted(lost))}"
        yield error("model_parts", f"{message} (of {some(runs)})", len(lost), BUILD)


def check_strays(lake: Lake, snapshot: Snapshot, published: Collection[str]) -> Iterator[Finding]:
    """Check that a manifest or the warehouse names every part, or that the next build removes it.

    Args:
        published: Part files that the warehouse names, or that are lost.
    """
    there = {found.part for found in lake.part_files.stored() if found.settled}
    extra = sorted(there - snapshot.all_parts.union(published) - {*(lake.unlisted.listed() or ())})
    if extra:
        message = f"part files that no manifest names: {some(extra)}"
        yield Finding("parts_named", "warning", message, len(extra), COLLECT)


def _read_again(snapshot: Snapshot, parts: Collection[str]) -> str:
    harmed = set(parts)
    runs = [run_id for run_id, run in snapshot.runs.items() if harmed.intersection(run.all_parts)]
    if not runs:  # the list of skipped inputs
        return "delete LAKE/_manifest/_skipped.json, then ingest again"
    return f"{drop(runs)}, then ingest their input again"


def _runs_in(files: PartFiles, part: str) -> set[str]:
    found: set[str] = set()
    with files.open(part) as opened:
        for batch in pq.ParquetFile(opened).iter_batches(columns=[PARTITION_KEY]):
            found.update(batch.column(0).unique().to_pylist())
    return found


def _schema_fits(files: PartFiles, part: str, schema: pa.Schema, *, lacking: bool) -> bool:
    """Return whether a part has its table's schema, or that of an earlier version."""
    try:
        with files.open(part) as opened:
            found: pa.Schema = pq.read_schema(opened)
    except (pa.ArrowException, OSError):
        return False
    if not lacking and found.names != schema.names:
        return False
    return all(f.name in schema.names and f.type == schema.field(f.name).type for f in found)
