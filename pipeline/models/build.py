"""Build the warehouse beside the old one and replace it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from tracelake.base import files
from tracelake.base.memory_limit import processors
from tracelake.base.text import counted
from tracelake.execution.cluster import Workers
from tracelake.lake.losses import Losses, find_losses, verify
from tracelake.lake.manifest import Snapshot
from tracelake.lake.part_files import Mark
from tracelake.lake.rewriting import tidy
from tracelake.lake.store import Lake
from tracelake.models.catalog import Catalog, catalog
from tracelake.models.describe import text_table
from tracelake.models.failures import Failure
from tracelake.models.fill import WarehouseWriter
from tracelake.models.parts import ModelParts, PartRuns
from tracelake.models.profile import Profile
from tracelake.models.state import State, recorded, runs_of_parts, wal_of
from tracelake.schema.tables import schema_hash

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
        notice: Why more was computed than what changed.
        lost: Run, part file and what is wrong with it: the run is left out.
        profile: What each relation took that was computed.
    """

    built: tuple[str, ...]
    dropped: tuple[str, ...]
    unchanged: bool
    relations: tuple[str, ...]
    seconds: float
    failed: tuple[Failure, ...] = ()
    notice: str | None = None
    lost: Sequence[tuple[str | None, str, str]] = ()
    profile: Profile = field(default_factory=Profile)

    def table(self) -> pa.Table:
        """Return a row per run that was computed, that has no figures, or that was deleted."""
        failed = {failure.run_id for failure in self.failed}
        rows = [("computed", run_id) for run_id in self.built if run_id not in failed]
        rows += [("failed", run_id) for run_id in sorted(failed)]
        rows += [("dropped", run_id) for run_id in self.dropped]
        return text_table(("status", "run_id"), rows)

    def summary(self) -> str:
        """Return the result as a line for people."""
        failed = f", {len(self.failed)} left out" if self.failed else ""
        if self.unchanged:
            return f"warehouse: already current{failed}"
        dropped = f", {len(self.dropped)} deleted" if self.dropped else ""
        return (
            f"warehouse: {len(self.relations)} models, {counted(len(self.built), 'run')}"
            f" computed{failed}{dropped} in {self.seconds:.1f} s"
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

    Models per run are computed for runs that changed, fleet models always, and alone where a job
    may have been running at the last build and now is not; all of them where the models or the
    schemas changed. A run that a model fails on is left out, and `failed` says why.
    Readers see the whole old or the whole new warehouse.

    Args:
        full: Compute everything again.
        memory_limit: Limit of each process as DuckDB spells it, e.g. `8GB`; by default little at
            first, and more where a model fails without it, up to 60 % of the machine's memory,
            which workers on one machine share.
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
    filler = WarehouseWriter(
        lake.part_files,
        models,
        memory_limit,
        threads or processors(),
        progress or (lambda _: None),
        workers,
    )
    with lake.lock("warehouse"):
        done = lake.agree(lambda: _bring_up(lake, filler, full=full))
    return replace(done, seconds=time.perf_counter() - started, profile=filler.profile)


def _bring_up(lake: Lake, filler: WarehouseWriter, *, full: bool) -> BuildResult:
    """Build on top of the existing warehouse.

    Raises:
        ChangedError: Another machine has published one meanwhile.
    """
    models = filler.models
    record = recorded(lake.warehouse, in_full=True)
    old = None if record.trouble else record.state
    tidy(lake)
    snapshot = lake.snapshot()
    known = {**({} if full or old is None else record.marks), **lake.verified}
    losses = all_losses(lake, record.state, snapshot, known)
    lake.verified.update(losses.marks)
    wanted = wanted_state(lake, snapshot, models, losses)
    carried = old if old and not full and same_code(old, wanted) else None
    named = record.model_parts if old else {}
    again, marks = _verify_models(lake, named if carried else {}, known)
    if old == wanted and not (full or again or record.expired):
        # A killed build may have left files.
        lake.sweep(snapshot, needed={*named, *losses.parts})
        return BuildResult((), (), True, models.public, 0, record.failures, lost=losses.rows())
    notice = (
        record.trouble
        and f"{lake.warehouse} is not used, so all of it is built again: {record.trouble}"
    )
    if old and not full and not carried:
        notice = "models or schemas are not those of the last build: all of it is built again"
    with lake.staging("build") as folder:
        staged = folder / "warehouse.duckdb"
        parts = ModelParts(models, lake.part_files, lake.add_model_parts, folder)
        if carried:
            _copy(lake.warehouse, staged)
            if again:
                notice = (
                    f"part files of models are missing or damaged: {counted(len(again), 'run')}"
                    " computed again"
                )
            # no generation of a run is empty: these runs count as changed
            carried = replace(carried, runs={**carried.runs, **dict.fromkeys(again, "")})
            parts.runs.update(named)
            parts.marks.update(marks)
        built, newest = carried, snapshot
        for _ in range(_ATTEMPTS):  # until it is up to date, or others do not stop committing
            if newest.stamp != snapshot.stamp:
                snapshot = newest
                losses = all_losses(lake, record.state, snapshot, losses.marks)
            state = wanted_state(lake, snapshot, models, losses)
            failed = filler.fill(staged, losses.left(snapshot), built, state, losses, parts)
            built, newest = state, lake.snapshot()
            if newest.stamp == snapshot.stamp:
                break
        staged.chmod(staged.stat().st_mode & 0o444)  # permissions of the umask, without writing
        _make_way(lake.warehouse)
        # Before parts are removed that the old one names.
        lake.small.publish_large(staged, lake.warehouse.name)
    published = {*old.known_parts, *named} if old else set(named)
    needed = {*parts.runs, *losses.parts}
    lake.sweep(snapshot, needed=needed, published=published, full=carried is None)
    before, after = (carried.runs if carried else {}), state.runs
    earlier = old.runs if old else {}
    return BuildResult(
        built=tuple(sorted(run for run in after if before.get(run) != after[run])),
        dropped=tuple(sorted(earlier.keys() - after.keys() - losses.runs.keys())),
        unchanged=False,
        relations=models.public,
        seconds=0,
        failed=failed,
        notice=notice,
        lost=losses.rows(),
    )


def _verify_models(
    lake: Lake, named: PartRuns, known: Mapping[str, Mark]
) -> tuple[set[str], dict[str, Mark]]:
    """Return runs whose rows of models are missing or damaged, and the marks of the parts.

    A part that is lost has no bytes that count.
    """
    trusted = {part: mark for part, mark in known.items() if part not in lake.damaged}
    lost, marks = verify(lake.part_files, named.keys(), trusted)
    marks |= dict.fromkeys(lost, Mark(0, 0))
    return {run_id for part in lost for run_id in named[part]}, marks


def all_losses(
    lake: Lake, old: State | None, snapshot: Snapshot, known: Mapping[str, Mark]
) -> Losses:
    """Return what is lost of a snapshot, and runs of the last warehouse whose manifest is lost.

    Args:
        old: State of the last warehouse.
        known: See `find_losses`.
    """
    losses = find_losses(lake.part_files, snapshot, known)
    return losses.and_unnamed(_unnamed_runs(lake, old, snapshot))


def _unnamed_runs(lake: Lake, old: State | None, snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """Return runs of the last warehouse whose manifest is lost, with their parts.

    Who replaces or drops a run lists its parts before it changes the manifest. Parts that exist and
    that neither a manifest nor this list names have lost their manifest, unless the run is in the
    lake again. In a store other machines have lists of their own, so nothing is known there.
    """
    listed = lake.unlisted.listed()
    if old is None or listed is None or not lake.part_files.local:
        return {}
    gone = old.known_parts - snapshot.all_parts - set(listed)
    there = lake.part_files.marks(gone) if gone else {}
    if not there:
        return {}
    found: dict[str, list[str]] = {}
    for part, runs in sorted(runs_of_parts(lake.warehouse, there).items()):
        for run_id in runs - snapshot.runs.keys():
            found.setdefault(run_id, []).append(part)
    return {run_id: tuple(parts) for run_id, parts in sorted(found.items())}


def wanted_state(lake: Lake, snapshot: Snapshot, models: Catalog, losses: Losses) -> State:
    """Return the state of an up-to-date warehouse: everything but what is lost."""
    left = losses.left(snapshot)
    return State(
        left.stamp,
        lake.part_files.base,
        models.hash,
        schema_hash(),
        {run_id: entry.generation for run_id, entry in left.runs.items()},
        {name: tuple(parts) for name, parts in left.parts_by_table().items()},
        left.older,
        left.dead,
        frozenset(losses.parts),
        left.living,
    )


def losses_before(lake: Lake, again: Callable[[str], bool]) -> Losses:
    """Return what is lost of a lake before an ingest, which may read it again.

    In a store only a build hashes the parts that no build has verified.

    Args:
        again: Whether to hash a part that the last build has verified.
    """
    snapshot = lake.snapshot()
    record = recorded(lake.warehouse)
    known, among = record.marks, None
    if not lake.part_files.local:
        among = known.keys() | (record.state.lost if record.state else set())
    losses = find_losses(lake.part_files, snapshot, known, again, among)
    lake.verified.update(losses.marks)
    due = [part for part in known.keys() - snapshot.all_parts if again(part)]  # models
    lake.damaged.update(verify(lake.part_files, due, {})[0])
    return losses


def same_code(a: State, b: State) -> bool:
    """Return whether both were built by the same models and schemas."""
    return (a.models, a.schema) == (b.models, b.schema)


def _copy(source: Path, target: Path) -> None:
    """Copy a file; on a file system that can share blocks, without copying data."""
    with files.naming(target), source.open("rb") as old, target.open("wb") as new:
        try:
            while os.copy_file_range(old.fileno(), new.fileno(), 1 << 30):
                pass
        except (AttributeError, OSError):  # not supported by this system or between these files
            shutil.copyfileobj(old, new)


def _make_way(warehouse: Path) -> None:
    """Remove a write-ahead log, and rename a folder that has the name of the warehouse."""
    for path in (wal_of(warehouse), warehouse):
        if path.is_dir() and not path.is_symlink():
            files.replace(path, path.with_name(f"{path.name}.{time.time_ns()}"))
    files.remove(wal_of(warehouse))
