"""Build the warehouse beside the old one and replace it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from pipeline.engine import Workers
from pipeline.errors import LakeError
from pipeline.files import naming
from pipeline.lake import Lake, Snapshot
from pipeline.models.catalog import Catalog, catalog
from pipeline.models.failures import Failure
from pipeline.models.fill import Filler
from pipeline.models.state import State, recorded_failures, recorded_state
from pipeline.packing import rewrite_packs
from pipeline.schema import schema_hash
from pipeline.text import counted

# If others commit meanwhile, a build adds their runs this often before it publishes.
_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class BuildResult:
    """Describes what a build did.

    Attributes:
        built: Runs whose models were computed.
        dropped: Runs that were deleted from the warehouse.
        unchanged: The warehouse was current: nothing was written.
        relations: Public models of the warehouse.
        failed: Runs of the warehouse without figures, because a model failed on their data.
        notice: Why everything was rebuilt without --full.
    """

    built: tuple[str, ...]
    dropped: tuple[str, ...]
    unchanged: bool
    relations: tuple[str, ...]
    seconds: float
    failed: tuple[Failure, ...] = ()
    notice: str | None = None

    def table(self) -> pa.Table:
        """Return a row per run that was computed, that has no figures, or that was deleted."""
        failed = {failure.run_id for failure in self.failed}
        rows = [("computed", run_id) for run_id in self.built if run_id not in failed]
        rows += [("failed", run_id) for run_id in sorted(failed)]
        rows += [("dropped", run_id) for run_id in self.dropped]
        return pa.Table.from_pylist(
            [{"status": status, "run_id": run_id} for status, run_id in rows],
            schema=pa.schema([("status", pa.string()), ("run_id", pa.string())]),
        )

    def told(self) -> str:
        """Return the result as a line for people."""
        failed = f", {len(self.failed)} left out" if self.failed else ""
        if self.unchanged:
            return f"warehouse: already current{failed}"
        dropped = f", {len(self.dropped)} deleted" if self.dropped else ""
        notice = f" ({self.notice})" if self.notice else ""
        return (
            f"warehouse: {len(self.relations)} models, {counted(len(self.built), 'run')}"
            f" computed{failed}{dropped} in {self.seconds:.1f} s{notice}"
        )


def build(
    lake: Lake,
    *,
    full: bool = False,
    memory_limit: str | None = None,
    threads: int | None = None,
    workers: Workers | None = None,
    progress: Callable[[str], None] | None = None,
    models: Catalog | None = None,
) -> BuildResult:
    """Bring the warehouse up to date with the lake and publish it.

    Models per run are computed for runs that changed, fleet models always; all of them where the
    models or the schemas changed. A run that a model fails on is left out, and `failed` says why.
    Readers see the whole old or the whole new warehouse.

    Args:
        full: Compute everything again.
        memory_limit: Limit of each process as DuckDB spells it, e.g. `8GB`; by default 60 % of the
            machine's memory, which workers on one machine share.
        workers: Workers that compute models per run; None for this process.
        progress: Called with one line per step.
        models: Other models than those shipped.

    Raises:
        LakeError: The lake cannot be read or written, or the warehouse is open for writing.
        ContractError: A model breaks its declaration, whatever the runs hold.
        WorkersError: Workers were lost; the warehouse did not change.
    """
    started = time.perf_counter()
    models = models or catalog()
    filler = Filler(
        lake.part_files,
        models,
        memory_limit,
        threads,
        progress or (lambda _: None),
        workers,
    )
    with lake.lock("warehouse"):
        done = lake.agree(lambda: _bring_up(lake, filler, full=full))
    return replace(done, seconds=time.perf_counter() - started)


def _bring_up(lake: Lake, filler: Filler, *, full: bool) -> BuildResult:
    """Build on top of the existing warehouse.

    Raises:
        ChangedError: Another machine has published one meanwhile.
    """
    models = filler.models
    _refuse_wal(lake.warehouse)
    rewrite_packs(lake)  # without the rows of runs that were replaced or dropped
    snapshot = lake.snapshot()
    old = recorded_state(lake.warehouse)
    wanted = wanted_state(lake, snapshot, models)
    if old == wanted and not full:
        lake.sweep(snapshot)  # a killed build may have left files
        return BuildResult((), (), True, models.public, 0, recorded_failures(lake.warehouse))
    notice = None
    if old is None and lake.warehouse.exists():
        notice = "the old warehouse has another version or is damaged, so everything is rebuilt"
    carried = old if old and not full and same_code(old, wanted) else None
    with lake.staging("build") as folder:
        staged = folder / "warehouse.duckdb"
        if carried:
            _copy(lake.warehouse, staged)
        state, snapshot, failed = _follow(lake, filler, staged, snapshot, carried)
        staged.chmod(staged.stat().st_mode & 0o444)  # permissions of the umask, without writing
        lake.publish_warehouse(staged)  # before parts are removed that the old one names
    published = {part for parts in old.parts.values() for part in parts} if old else set()
    lake.sweep(snapshot, published=published, full=carried is None)
    before, after = (carried.runs if carried else {}), state.runs
    known = old.runs if old else {}
    return BuildResult(
        built=tuple(sorted(run for run in after if before.get(run) != after[run])),
        dropped=tuple(sorted(known.keys() - after.keys())),
        unchanged=False,
        relations=models.public,
        seconds=0,
        failed=failed,
        notice=notice,
    )


def wanted_state(lake: Lake, snapshot: Snapshot, models: Catalog) -> State:
    """Return the state of an up-to-date warehouse."""
    return State.of(snapshot, lake.part_files.base, models.hash, schema_hash())


def same_code(a: State, b: State) -> bool:
    """Return whether both were built by the same models and schemas."""
    return (a.models, a.schema) == (b.models, b.schema)


def _follow(
    lake: Lake, filler: Filler, staged: Path, snapshot: Snapshot, state: State | None
) -> tuple[State, Snapshot, tuple[Failure, ...]]:
    """Fill the staged file until it is up to date, or others do not stop committing."""
    attempts = 0
    while True:
        wanted = wanted_state(lake, snapshot, filler.models)
        failed = filler.fill(staged, snapshot, state, wanted)
        attempts += 1
        state, newest = wanted, lake.snapshot()
        if newest.stamp == snapshot.stamp or attempts == _ATTEMPTS:
            return wanted, snapshot, failed
        snapshot = newest


def _copy(source: Path, target: Path) -> None:
    """Copy a file; on a file system that can share blocks, without copying data."""
    with naming(target), source.open("rb") as old, target.open("wb") as new:
        try:
            while os.copy_file_range(old.fileno(), new.fileno(), 1 << 30):
                pass
        except (AttributeError, OSError):  # not supported by this system or between these files
            shutil.copyfileobj(old, new)


def _refuse_wal(warehouse: Path) -> None:
    wal = warehouse.with_name(f"{warehouse.name}.wal")
    if wal.exists():
        raise LakeError(
            "another program opened the warehouse for writing",
            path=wal,
            hint="close that program, delete this file, and open the warehouse read-only",
        )
