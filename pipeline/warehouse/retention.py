"""Remove data of a lake: dropped runs, and unused files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa

from tracelake.base.errors import UsageError
from tracelake.base.text import counted
from tracelake.ingest.duplicates import settle_duplicates
from tracelake.lake.dropped import drop_runs, dropped_runs
from tracelake.lake.leftovers import Leftover, leftovers
from tracelake.lake.manifest import RunEntry, Snapshot
from tracelake.lake.store import Lake
from tracelake.models.state import named_parts
from tracelake.warehouse.names import NamedRun, meant_run, named_runs
from tracelake.warehouse.values import COUNT, TEXT, table_from
from tracelake.warehouse.warehouse import ask

_DATES = "the dates of the runs"


@dataclass(frozen=True, slots=True)
class DropCandidate:
    """A run to drop.

    Attributes:
        status: `run`, or `dropped` for a run that was dropped before.
        run_date: None if the run has none, or is not in the warehouse yet.
        files: Part files that are removed with it.
        bytes: Their bytes, and the run's share of other parts, which are written anew without it.
    """

    entry: RunEntry
    status: str
    run_date: datetime | None
    files: int
    bytes: int

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self.entry.run_id


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
    built = lake.warehouse.is_file()
    found = {run.run_id: run for run in ask(lake, _DATES, named_runs)} if built else {}
    runs = {run_id: found.get(run_id, NamedRun(run_id, run_id, run_id, None)) for run_id in known}
    try:
        chosen = sorted({meant_run(name, runs.values()) for name in names})
    except UsageError as error:
        if new := len(snapshot.runs.keys() - found.keys()):
            error.hint = (
                f"{counted(new, 'run')} came in after the last build, which gives them labels:"
                " bring them in with tracelake build"
            )
        elif forget:  # a name like it is of a run that is in the lake
            error.hint = (
                "a run that was dropped before goes by its id, which"
                " tracelake ingest INPUT --dry-run lists"
            )
        raise
    return [_candidate(lake, snapshot, known[run_id], runs[run_id].date) for run_id in chosen]


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
        _candidate(lake, snapshot, known[run_id], date) for run_id, date in rows if run_id in known
    ]


def drop(lake: Lake, chosen: Collection[DropCandidate], *, forget: bool = False) -> None:
    """Take runs out of the lake; a copy of one of them may become an original.

    The next build takes them out of the warehouse, and their files out of the lake.

    Args:
        forget: Do not store that they were dropped: the next ingest of their input adds them again.

    Raises:
        LakeError: The lake cannot be read or written.
    """
    drop_runs(lake, [run.entry for run in chosen], remember=not forget)
    lake.agree(lambda: settle_duplicates(lake))


def candidates_table(candidates: Iterable[DropCandidate]) -> pa.Table:
    """Return runs as a table: run_id, status, run_date, files, bytes."""
    return table_from(
        candidates, run_id=TEXT, status=TEXT, run_date=pa.timestamp("us"), files=COUNT, bytes=COUNT
    )


def collect(lake: Lake, *, dry_run: bool = False) -> list[Leftover]:
    """Remove part files that nothing names, staging of dead writers, and temporary files.

    It does not remove files that a manifest or the current warehouse names, or that a live writer
    locks; of a store, none of the last day.

    Args:
        dry_run: Remove nothing.

    Returns:
        The files that were removed, or would be.

    Raises:
        LakeError: The manifests cannot be read.
    """
    with lake.lock("warehouse"):
        return leftovers(lake, named_parts(lake.warehouse), remove=not dry_run)


def leftovers_table(found: Iterable[Leftover]) -> pa.Table:
    """Return leftovers as a table: kind, path, files, bytes."""
    return table_from(found, kind=TEXT, path=TEXT, files=COUNT, bytes=COUNT)


def _candidate(
    lake: Lake, snapshot: Snapshot, entry: RunEntry, date: datetime | None
) -> DropCandidate:
    parts = snapshot.runs[entry.run_id].all_parts if entry.group else ()
    there = lake.part_files.marks([*parts])
    size = sum(mark.bytes // snapshot.sharers(part) for part, mark in there.items())
    status = "run" if entry.group else "dropped"
    return DropCandidate(
        entry, status, date, sum(snapshot.sharers(part) == 1 for part in there), size
    )
