"""Drop runs from a lake: choose them, and store that ingest must skip them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa

from tracelake.ingest.duplicates import settle_duplicates
from tracelake.lake import Lake, RunEntry, Snapshot, drop_runs, dropped_runs, is_pack
from tracelake.warehouse import ask, meant_run
from tracelake.warehouse.names import NAMES_SQL, NamedRun

_DATES = "the dates of the runs"


@dataclass(frozen=True, slots=True)
class DropCandidate:
    """A run to drop.

    Attributes:
        status: `run`, or `dropped` for a run that was dropped before.
        run_date: None if the run has none, or is not in the warehouse yet.
        files: Part files that are removed with it.
        bytes: Their bytes, and the run's share of packs, which are rewritten without it.
    """

    entry: RunEntry
    status: str
    run_date: datetime | None
    files: int
    bytes: int


def choose_runs(lake: Lake, names: Sequence[str], *, forget: bool = False) -> list[DropCandidate]:
    """Return the runs with these names, as `meant_run` takes them.

    Args:
        forget: Also search the runs that were dropped before.

    Raises:
        UsageError: A name matches no run or several.
        LakeError: The lake cannot be read.
    """
    snapshot = lake.snapshot()
    known = {**(dropped_runs(lake) if forget else {}), **snapshot.runs}
    found = _named(lake)
    runs = {run_id: found.get(run_id, NamedRun(run_id, None, None)) for run_id in known}
    chosen = sorted({meant_run(name, runs.values()) for name in names})
    return [_doomed(lake, snapshot, known[run_id], runs[run_id].date) for run_id in chosen]


def choose_old(lake: Lake, age: timedelta, now: datetime) -> list[DropCandidate]:
    """Return the runs of the warehouse with an older date; a run without a date is never old.

    Args:
        now: Local time without a zone, as run dates are.

    Raises:
        LakeError: The lake has no warehouse, or cannot be read.
    """
    snapshot = lake.snapshot()
    known = snapshot.runs
    sql = "SELECT run_id, run_date FROM runs WHERE run_date < $1 ORDER BY run_id"
    rows = ask(lake, _DATES, lambda con: con.execute(sql, [now - age]).fetchall())
    return [
        _doomed(lake, snapshot, known[run_id], date) for run_id, date in rows if run_id in known
    ]


def drop(lake: Lake, doomed: Collection[DropCandidate], *, forget: bool = False) -> None:
    """Takes runs out of the lake; a copy of one of them may become an original.

    The next build takes them out of the warehouse, and their files out of the lake.

    Args:
        forget: Do not store that they were dropped: the next ingest of their input adds them again.

    Raises:
        LakeError: The lake cannot be read or written.
    """
    drop_runs(lake, [run.entry for run in doomed], remember=not forget)
    lake.agree(lambda: settle_duplicates(lake))


def doomed_table(doomed: Sequence[DropCandidate]) -> pa.Table:
    """Return runs as a table: run_id, status, run_date, files, bytes."""
    schema = pa.schema(
        [
            ("run_id", pa.string()),
            ("status", pa.string()),
            ("run_date", pa.timestamp("us")),
            ("files", pa.int64()),
            ("bytes", pa.int64()),
        ]
    )
    rows = [
        {
            "run_id": run.entry.run_id,
            "status": run.status,
            "run_date": run.run_date,
            "files": run.files,
            "bytes": run.bytes,
        }
        for run in doomed
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def _doomed(
    lake: Lake, snapshot: Snapshot, entry: RunEntry, date: datetime | None
) -> DropCandidate:
    parts = snapshot.parts_of(entry.run_id) if entry.group else {}
    there = lake.part_files.sizes([part for named in parts.values() for part in named])
    size = sum(size // snapshot.sharers(part) for part, size in there.items())
    status = "run" if entry.group else "dropped"
    return DropCandidate(entry, status, date, sum(not is_pack(part) for part in there), size)


def _named(lake: Lake) -> dict[str, NamedRun]:
    """Return names and dates of the runs that the warehouse has; none without a warehouse."""
    if not lake.warehouse.is_file():
        return {}
    rows = ask(lake, _DATES, lambda con: con.execute(NAMES_SQL).fetchall())
    return {row[0]: NamedRun(*row) for row in rows}
