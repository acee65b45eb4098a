"""Record inside a warehouse what it was built from."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path

import duckdb

from tracelake.base.errors import LakeError, too_new
from tracelake.lake.layout import table_of_part
from tracelake.lake.manifest import RunsOf
from tracelake.lake.part_files import Mark
from tracelake.models.base import literal, select_parts
from tracelake.models.compute import connect
from tracelake.models.failures import Failure, read_failures
from tracelake.models.parts import PartRuns
from tracelake.models.sums import changed_relations, missing_relations
from tracelake.schema.tables import SCHEMA_VERSION, Table, tables

# Raise this when an older warehouse cannot be updated.
WAREHOUSE_VERSION = 9
CATALOG = "warehouse"

_DDL = """
CREATE OR REPLACE TABLE warehouse.main._build
    (version INTEGER, schema_version INTEGER, stamp VARCHAR, root VARCHAR, models VARCHAR,
     schema VARCHAR);
CREATE OR REPLACE TABLE warehouse.main._build_runs (run_id VARCHAR, generation VARCHAR);
CREATE OR REPLACE TABLE warehouse.main._build_parts
    (part VARCHAR, run_ids VARCHAR[], of_model BOOLEAN, older BOOLEAN, dead VARCHAR[]);
CREATE OR REPLACE TABLE warehouse.main._build_marks
    (part VARCHAR, bytes BIGINT, mtime_ns BIGINT);
"""


@dataclass(frozen=True, slots=True)
class State:
    """The inputs of a build.

    Attributes:
        stamp: Stamp of the snapshot.
        root: Directory or URI of the lake, where the views read unless they are pointed elsewhere.
        models: Hash of the models.
        schema: Hash of the schemas.
        runs: Generation by run.
        parts: Part files by base table, relative to the root.
        older: Those of an earlier version of the schemas.
        dead: Parts with outdated rows, each with their runs, which are left out.
        lost: Parts that are missing, damaged or without a manifest; their runs are left out.
        runs_of: The runs of each part; not read again, because it follows from the others.
    """

    stamp: str
    root: str
    models: str
    schema: str
    runs: Mapping[str, str]
    parts: Mapping[str, tuple[str, ...]]
    older: frozenset[str]
    dead: Mapping[str, frozenset[str]]
    lost: frozenset[str]
    runs_of: RunsOf = field(default_factory=dict, compare=False)

    def select(self, table: Table, base: str) -> str:
        """Return SELECT of a base table's rows for a view, which `point_views` can point elsewhere.

        Args:
            base: Directory or URI of the lake, where the view reads otherwise.
        """
        parts = self.parts[table.name]
        return select_parts(table, base, parts, self.older, dead=self.dead, movable=True)

    @property
    def known_parts(self) -> set[str]:
        """Return the parts of base tables, and those that are lost."""
        return {*chain(*self.parts.values()), *self.lost}


@dataclass(frozen=True, slots=True)
class Record:
    """Hold what a warehouse file says of its build.

    Attributes:
        state: None if there is no file, or this tracelake cannot update it.
        trouble: What is wrong with the file; nothing if there is none.
        marks: The parts that the build has verified.
        model_parts: The parts of models that it names.
        failures: The runs that it has no figures of.
        running: Runs whose jobs may have been running when it was built, and until when they may.
    """

    state: State | None = None
    trouble: str | None = None
    marks: Mapping[str, Mark] = field(default_factory=dict)
    model_parts: PartRuns = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    running: Mapping[str, datetime] = field(default_factory=dict)

    @property
    def expired(self) -> bool:
        """Return whether a job that may have been running has had its time."""
        now = datetime.now()  # without a zone, as dates of logs are
        return any(until < now for until in self.running.values())


def attach(con: duckdb.DuckDBPyConnection, path: Path, *, read_only: bool) -> None:
    """Attach a warehouse file under its catalog name.

    What is written is safe after a checkpoint, not before: there is no log.
    """
    mode = "READ_ONLY" if read_only else "RECOVERY_MODE NO_WAL_WRITES"
    con.execute(f"ATTACH {literal(str(path))} AS {CATALOG} ({mode})")


def write_state(
    con: duckdb.DuckDBPyConnection, state: State, model_parts: PartRuns, marks: Mapping[str, Mark]
) -> None:
    """Record the state in the attached warehouse, and the marks of the parts that it reads."""
    con.execute(_DDL)
    con.execute(
        "INSERT INTO warehouse.main._build VALUES (?, ?, ?, ?, ?, ?)",
        [WAREHOUSE_VERSION, SCHEMA_VERSION, state.stamp, state.root, state.models, state.schema],
    )
    of_tables = {part: state.runs_of.get(part, ()) for part in chain(*state.parts.values())}
    parts = dict(sorted({**of_tables, **model_parts}.items()))
    _insert(con, "_build_runs", list(state.runs), list(state.runs.values()))
    _insert(
        con,
        "_build_parts",
        list(parts),
        [list(run_ids) for run_ids in parts.values()],
        [part in model_parts for part in parts],
        [part in state.older for part in parts],
        [sorted(state.dead.get(part, ())) for part in parts],
    )
    _insert(
        con,
        "_build_marks",
        list(marks),
        [mark.bytes for mark in marks.values()],
        [mark.mtime_ns for mark in marks.values()],
    )


def read_state(con: duckdb.DuckDBPyConnection) -> State | None:
    """Return the state recorded in the warehouse; None if this tracelake cannot update it.

    Raises:
        LakeError: It was built by a newer tracelake.
    """
    if not is_current(con):
        return None
    found = con.execute("SELECT stamp, root, models, schema FROM warehouse.main._build").fetchall()
    runs = con.execute("SELECT run_id, generation FROM warehouse.main._build_runs").fetchall()
    parts, older, dead = _read_parts(con, "NOT of_model")
    lost = con.execute("SELECT part FROM warehouse.main.lost").fetchall()
    by_table = {name: tuple(parts.get(name, ())) for name in tables()}
    ((stamp, root, models, schema),) = found
    harmed = frozenset(part for (part,) in lost)
    return State(stamp, root, models, schema, dict(runs), by_table, older, dead, harmed)


def select_parts_of_runs(
    con: duckdb.DuckDBPyConnection, relations: Iterable[Table], run_ids: Sequence[str], base: str
) -> dict[str, str]:
    """Return SELECTs of tables and models, by name, from the parts that have rows of runs.

    Rows of other runs are in some of these parts, too.

    Args:
        base: Directory or URI of the lake.
    """
    parts, older, dead = _read_parts(con, "list_has_any(run_ids, $1::VARCHAR[])", run_ids)
    return {
        table.name: select_parts(table, base, parts.get(table.name, ()), older, dead=dead)
        for table in relations
    }


def _read_parts(
    con: duckdb.DuckDBPyConnection, where: str, *values: Sequence[str]
) -> tuple[dict[str, list[str]], frozenset[str], dict[str, frozenset[str]]]:
    """Return parts by relation, which of them are older, and those with outdated rows."""
    rows = con.execute(
        f"SELECT part, older, dead FROM {CATALOG}.main._build_parts WHERE {where} ORDER BY part",
        list(values),
    ).fetchall()
    parts: dict[str, list[str]] = {}
    for part, _, _ in rows:
        parts.setdefault(table_of_part(part), []).append(part)
    older = frozenset(part for part, lacking, _ in rows if lacking)
    return parts, older, {part: frozenset(dead) for part, _, dead in rows if dead}


def _read_running(con: duckdb.DuckDBPyConnection) -> dict[str, datetime]:
    try:
        rows = con.execute(
            f"SELECT run_id, running_until FROM {CATALOG}.main.run_list"
            " WHERE running_until IS NOT NULL"
        ).fetchall()
    except (duckdb.BinderException, duckdb.CatalogException):  # of models without this column
        return {}
    return dict(rows)


def runs_of_parts(path: Path, parts: Collection[str]) -> dict[str, set[str]]:
    """Return the runs of parts that a warehouse names, or says that are lost."""
    with connect() as con:
        attach(con, path, read_only=True)
        rows = con.execute(
            "SELECT part, unnest(run_ids) FROM warehouse.main._build_parts"
            " WHERE list_contains($1::VARCHAR[], part) UNION ALL"
            " SELECT part, run_id FROM warehouse.main.lost"
            " WHERE list_contains($1::VARCHAR[], part) AND run_id IS NOT NULL",
            [list(parts)],
        ).fetchall()
    found: dict[str, set[str]] = {part: set() for part in parts}
    for part, run_id in rows:
        found[part].add(run_id)
    return found


def named_parts(path: Path) -> set[str]:
    """Return every part that a warehouse file names."""
    record = recorded(path)
    of_tables = record.state.parts.values() if record.state else ()
    return {*chain(*of_tables), *record.model_parts}


def wal_of(warehouse: Path) -> Path:
    """Return the write-ahead log that a program which writes to a warehouse makes."""
    return warehouse.with_name(f"{warehouse.name}.wal")


def recorded(path: Path, *, in_full: bool = False) -> Record:
    """Return what a warehouse file says of its build.

    Args:
        in_full: Read every row before, and look for a log beside the file.

    Raises:
        LakeError: It was built by a newer tracelake; in full, or a program has opened it for
            writing.
    """
    if in_full and _has_wal(path):
        return Record(trouble=f"another program has left {wal_of(path).name} beside it")
    if not path.is_file():
        return Record(trouble="it is not a file" if os.path.lexists(path) else None)
    with connect() as con:
        try:
            attach(con, path, read_only=True)
            state = read_state(con)
            if state is None:
                return Record(trouble="another version of tracelake built it")
            trouble = None
            if in_full:
                if missing := missing_relations(con):
                    return Record(trouble=f"it lacks {', '.join(missing)}")
                if changed := changed_relations(con):
                    trouble = f"it was changed since the build: {', '.join(changed)}"
            marks = con.execute("FROM warehouse.main._build_marks").fetchall()
            parts = con.execute(
                "SELECT part, run_ids FROM warehouse.main._build_parts WHERE of_model"
            ).fetchall()
            return Record(
                state,
                trouble,
                {part: Mark(size, mtime_ns) for part, size, mtime_ns in marks},
                {part: tuple(run_ids) for part, run_ids in parts},
                read_failures(con),
                _read_running(con),
            )
        except duckdb.OutOfMemoryException:
            raise
        except duckdb.Error as error:
            return Record(trouble=f"it is damaged: {error}")


def in_use(warehouse: Path) -> LakeError:
    """Return the error for a warehouse that another program has opened for writing."""
    return LakeError(
        "another program has opened the warehouse for writing",
        path=warehouse,
        hint="close that program, and open the warehouse read-only",
    )


def _has_wal(warehouse: Path) -> bool:
    """Return whether a write-ahead log that no program uses is beside the warehouse.

    Raises:
        LakeError: A program has opened the warehouse for writing.
    """
    wal = wal_of(warehouse)
    if not os.path.lexists(wal):
        return False
    if warehouse.is_file():
        with warehouse.open("rb") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise in_use(warehouse) from error
    return True


def is_current(con: duckdb.DuckDBPyConnection) -> bool:
    """Return whether the attached warehouse has this version of the layout.

    Raises:
        LakeError: It was built by a newer tracelake.
    """
    try:
        found = con.execute("SELECT * FROM warehouse.main._build").fetchone() or ()
    except duckdb.CatalogException:
        return False
    recorded = dict(zip((column[0] for column in con.description or ()), found, strict=False))
    for name, known in (("version", WAREHOUSE_VERSION), ("schema_version", SCHEMA_VERSION)):
        value = recorded.get(name)
        if isinstance(value, int) and value > known:
            path = con.execute(
                "SELECT path FROM duckdb_databases() WHERE database_name = $1", [CATALOG]
            ).fetchall()[0][0]
            versioned = f"its {name.replace('_', ' ')} is"
            raise too_new("built the warehouse", versioned, value, known, path)
    return bool(recorded.get("version") == WAREHOUSE_VERSION)


def _insert(
    con: duckdb.DuckDBPyConnection, table: str, *values: Sequence[str | int | list[str]]
) -> None:
    """Append rows that are given column by column."""
    shown = ", ".join(f"unnest(${number})" for number in range(1, len(values) + 1))
    con.execute(f"INSERT INTO warehouse.main.{table} SELECT {shown}", list(values))
