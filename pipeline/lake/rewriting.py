"""Keep part files few and without outdated rows, whatever is added, replaced and dropped."""

from __future__ import annotations

import heapq
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from tracelake.base.errors import LakeError
from tracelake.base.packing import packed
from tracelake.lake.layout import names_runs, partition_in, run_of, table_of_part
from tracelake.lake.manifest import Change, RunEntry, Snapshot, group_name
from tracelake.lake.parquet import LANES, PartWriter
from tracelake.lake.part_files import PartFiles
from tracelake.lake.record_batches import trimmed
from tracelake.lake.store import Lake
from tracelake.schema.tables import PARTITION_KEY, tables

# A group that has as much text, or as many runs, is not merged with others.
_FULL_BYTES = 4 << 20
_FULL_RUNS = 256
# Small groups are merged when there are as many, into groups of at most so many runs and bytes.
_SMALL_GROUPS = 16
_MERGED_BYTES = 64 << 20
_MERGED_RUNS = 1024
_CHECK = "find the repair with: tracelake check"
# Another command can replace runs meanwhile; what is left then waits for the next call.
_ROUNDS = 3

# A row group is read in pieces: some dozen parts may be read at the same time.
_BATCH_ROWS = 1 << 14

Piece: TypeAlias = tuple[str, pa.RecordBatch]


def rows_of_runs(
    files: PartFiles, schema: pa.Schema, parts: Mapping[str, Collection[str]]
) -> Iterator[Piece]:
    """Return rows of a table with their run id, in order of run and then in their stored order.

    Args:
        schema: Schema of the rows: the run id and the table's columns.
        parts: Parts, those of one run in order of its rows; each with the runs that are left out.

    Raises:
        LakeError: A part is missing or damaged.
    """
    streams = [_of_part(files, part, schema, left_out) for part, left_out in parts.items()]
    return heapq.merge(*streams, key=itemgetter(0))


def _of_part(
    files: PartFiles, part: str, schema: pa.Schema, left_out: Collection[str]
) -> Iterator[Piece]:
    import pyarrow.compute as pc  # noqa: PLC0415 - a sixth of the time of a short query

    for batch in _batches(files, part):
        if not names_runs(part):
            yield run_of(part), _completed(batch, pa.repeat(run_of(part), batch.num_rows), schema)
            continue
        spans = pc.run_end_encode(batch.column(PARTITION_KEY))
        ends = [0, *spans.run_ends.to_pylist()]
        for run_id, (first, last) in zip(spans.values.to_pylist(), pairwise(ends), strict=True):
            if run_id not in left_out:
                rows = batch.slice(first, last - first)
                yield run_id, trimmed(_completed(rows, rows.column(PARTITION_KEY), schema))


def _batches(files: PartFiles, part: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part after a check of its hash: a new part must not hide damage."""
    try:
        with files.open(part) as file:
            rows = pq.ParquetFile(file)
            if not files.is_intact(part):
                raise _unreadable(files, part, "the content differs from the hash in its name")
            for batch in rows.iter_batches(_BATCH_ROWS, use_threads=False):
                if batch.num_rows:
                    yield batch
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(files, part, str(error)) from error


def _unreadable(files: PartFiles, part: str, why: str) -> LakeError:
    return LakeError(
        f"a part cannot be read: {why}",
        path=f"{files.base}/{part}",
        hint=_CHECK,
    )


def _completed(batch: pa.RecordBatch, key: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with their run id; a column that an earlier version lacks is NULL."""
    given = dict(zip(batch.schema.names, batch.columns, strict=True)) | {PARTITION_KEY: key}
    columns = [
        given[f.name] if f.name in given else pa.nulls(batch.num_rows, f.type) for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def tidy(lake: Lake) -> None:
    """Write groups anew that have outdated rows, and merge small groups.

    Rows are outdated if their run was replaced or dropped. A part that cannot be read stays as it
    is: nothing reads those rows, and a check finds it. The caller holds the lake's warehouse lock.

    Raises:
        LakeError: A manifest is damaged, or the lake cannot be written.
    """
    lake.adopt_packs()
    snapshot = _keep_one_entry(lake, lake.snapshot())
    _merge_small(lake, _remove_outdated(lake, snapshot))


def _keep_one_entry(lake: Lake, snapshot: Snapshot) -> Snapshot:
    """Leave each run in one group; return what the lake then has.

    Two machines that ingest the same inputs into a store at once can commit a run in two groups.
    """
    if not snapshot.twice:
        return snapshot
    runs = [snapshot.runs[run_id] for run_id in sorted({run_id for run_id, _ in snapshot.twice})]
    lake.commit_all([Change(run.group, [run], {}, over=[run]) for run in runs])
    return lake.snapshot()


def _remove_outdated(lake: Lake, snapshot: Snapshot) -> Snapshot:
    """Write parts anew that have outdated rows; return what the lake then has."""
    unreadable: set[str] = set()
    for _ in range(_ROUNDS):
        outdated: dict[str, list[str]] = defaultdict(list)
        for part in sorted(snapshot.dead.keys() - unreadable):
            (living, *_) = snapshot.living[part]
            outdated[snapshot.runs[living].group].append(part)
        if not outdated:
            break
        with _rewriting(lake, snapshot) as rewriting:
            changes = []
            for group, parts in outdated.items():
                new = {}
                for part in parts:
                    try:
                        new[part] = rewriting.write(table_of_part(part), partition_in(part), [part])
                    except LakeError:
                        unreadable.add(part)
                if new:
                    changes.append(_renamed(snapshot, group, new, rewriting.staged))
            if not changes:
                break
            lake.commit_all(changes)
        snapshot = lake.snapshot()
    return snapshot


def _renamed(
    snapshot: Snapshot, group: str, new: Mapping[str, str], staged: Mapping[str, Path]
) -> Change:
    """Return the change of a group whose parts were written anew.

    Args:
        new: Part -> the one that replaces it.
    """
    runs = [snapshot.runs[r] for r in sorted({r for part in new for r in snapshot.living[part]})]
    entries = [
        replace(
            run,
            parts={t: tuple(new.get(p, p) for p in named) for t, named in run.parts.items()},
        )
        for run in runs
    ]
    return Change(group, entries, {part: staged[part] for part in new.values()}, over=runs)


def _merge_small(lake: Lake, snapshot: Snapshot) -> None:
    small = _small_groups(snapshot)
    if len(small) < _SMALL_GROUPS:
        return
    for groups in packed(small, (_text_bytes, _MERGED_BYTES), (len, _MERGED_RUNS)):
        runs = [*chain.from_iterable(groups)]
        with _rewriting(lake, snapshot) as rewriting:
            try:
                entries = rewriting.merge(runs)
            except LakeError:
                continue
            name = group_name(run.run_id for run in runs)
            lake.commit_all([Change(name, entries, rewriting.staged, over=runs)])


def _small_groups(snapshot: Snapshot) -> list[list[RunEntry]]:
    """Return the runs of each group that is small and of this version, in order of group."""
    groups: dict[str, list[RunEntry]] = defaultdict(list)
    for run in snapshot.runs.values():
        groups[run.group].append(run)
    return [
        runs
        for _, runs in sorted(groups.items())
        if len(runs) < _FULL_RUNS
        and _text_bytes(runs) < _FULL_BYTES
        and all(run.is_current and all(map(names_runs, run.all_parts)) for run in runs)
        and all(snapshot.dead.keys().isdisjoint(run.all_parts) for run in runs)
    ]


def _text_bytes(runs: Iterable[RunEntry]) -> int:
    return sum(run.text_bytes for run in runs)


@dataclass(frozen=True)
class _Rewriting:
    """Writes rows that the lake has as new parts.

    Attributes:
        staged: Final path, relative to the lake's root -> staged file.
    """

    lake: Lake
    snapshot: Snapshot
    folder: Path
    helper: Executor
    staged: dict[str, Path]

    def write(self, table: str, partition: str, parts: Collection[str]) -> str:
        """Write the rows of parts as one, without outdated ones; return its name.

        Raises:
            LakeError: A part is missing or damaged, or its manifest lists wrong runs.
        """
        dead = self.snapshot.dead
        read = {part: dead.get(part, frozenset()) for part in parts}
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        schema = tables()[table].rewritten_schema
        writer = PartWriter(folder, self.helper, "rewritten_schema", whole=True)
        writer.add(table, (b for _, b in rows_of_runs(self.lake.part_files, schema, read)))
        staged = writer.close(partition)
        if not staged:
            raise LakeError("no run of a part has rows in it", path=next(iter(parts)), hint=_CHECK)
        self.staged.update(staged)
        (name,) = staged
        return name

    def merge(self, runs: Sequence[RunEntry]) -> list[RunEntry]:
        """Write the rows of runs as one part per table and partition; return their new entries.

        Raises:
            LakeError: A part is missing or damaged.
        """
        together: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        for part in chain.from_iterable(run.all_parts for run in runs):
            together[table_of_part(part), partition_in(part)][part] = None
        new = {place: self.write(*place, parts) for place, parts in together.items()}
        return [
            replace(
                run,
                parts={t: (new[t, partition_in(named[0])],) for t, named in run.parts.items()},
            )
            for run in runs
        ]


@contextmanager
def _rewriting(lake: Lake, snapshot: Snapshot) -> Iterator[_Rewriting]:
    with (
        lake.staging("tidy") as folder,
        ThreadPoolExecutor(LANES, thread_name_prefix="tidy") as helper,
    ):
        yield _Rewriting(lake, snapshot, folder, helper, {})
