"""Parse the runs of a batch and stage their parts: the job that an executor does."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tracelake.base.metrics import phase
from tracelake.execution import require, work_folder
from tracelake.formats.ledger import Fault, Ledger, SourceCount
from tracelake.ingest.batches import Batch, Job
from tracelake.ingest.options import Options
from tracelake.ingest.run_plan import RunPlan, Status
from tracelake.ingest.run_row import is_complete, run_row
from tracelake.ingest.sniff import InputFile
from tracelake.inputs.archives import pass_by
from tracelake.inputs.chunks import CHUNK_BYTES, Buffer, ChunkReader
from tracelake.inputs.sources import Read, Source, opened_ahead
from tracelake.inputs.streams import FileRef
from tracelake.lake import RunEntry, generation_of, part_files_at
from tracelake.lake.parquet import LANES, PartWriter
from tracelake.schema.tables import tables
from tracelake.storage import is_uri

Advance = Callable[[int, int, int], None]

_local = threading.local()


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of one run. Figures are of this ingest: 0 for a run that was not read.

    Attributes:
        files: Inputs of the run.
        lines, rows, rejected: Over all sources.
        bad_ratio: Rejected / (record lines + rejected); 0 without either.
        missing: Inputs that the run in the lake has, or had with more lines.
        usable: Whether the run has anything of its format. Rejected lines count, unless the format
            was forced on the input.
        entry: The run to commit; None once that is done, or if there is nothing to commit.
        staged: Final path, relative to the lake -> staged file.
    """

    run_id: str
    format: str
    status: Status
    files: int
    bytes: int = 0
    lines: int = 0
    rows: int = 0
    rejected: int = 0
    bad_ratio: float = 0.0
    complete: bool | None = None
    missing: tuple[str, ...] = ()
    faults: Mapping[Fault, int] = field(default_factory=dict)
    usable: bool = True
    entry: RunEntry | None = None
    staged: Mapping[str, Path] = field(default_factory=dict)


def parse_in_worker(batch: Batch, options: Options, base: str, staging: Path) -> list[RunResult]:
    """Parse a batch in a worker's process.

    It may be called more than once for one batch, also at the same time. Parts that the command
    does not receive are removed with its staging folder, or by `gc` if the lake is in a store.
    There a worker puts the parts itself; else it shares the lake's file system.

    Args:
        base: Directory or URI of the lake.

    Raises:
        CancelledError: The command has ended.
        WorkersError: The worker does not see the files of the command.
    """
    files = part_files_at(base)
    for p in itertools.chain(*batch):
        for source in p.sources:
            if not is_uri(source.entry.location):
                # A missing file is a fault of the run, as in threads.
                location = Path(source.entry.location)
                there = location if location.exists() else location.parent
                require(there, os.R_OK, "an input")
    with (
        work_folder(staging if files.local else None) as folder,
        ThreadPoolExecutor(1 + LANES) as helper,
    ):

        def advance(weight: int, files: int, rejected: int) -> None:
            del weight, files, rejected
            if not folder.exists():
                raise CancelledError

        results = parse_batch(batch, options, folder, helper, advance)
        return [replace(result, staged=files.hand_in(result.staged)) for result in results]


def parse_batch(
    batch: Batch, options: Options, staging: Path, helper: Executor, advance: Advance
) -> list[RunResult]:
    """Parse the runs of a batch and stage their parts, in a folder that no other call uses.

    Args:
        staging: The command's private folder on the lake's file system.
        helper: Executor for read-ahead and writing; not the one that runs this.
        advance: Called with the further bytes and files that are done, and the rejected lines.
    """
    folder = Path(tempfile.mkdtemp(prefix="batch-", dir=staging))
    return [result for job in batch for result in _parse_job(job, options, folder, helper, advance)]


def _parse_job(
    job: Job, options: Options, staging: Path, helper: Executor, advance: Advance
) -> list[RunResult]:
    """Parse the runs of one job."""
    works = [_RunWork(plan, staging, helper, advance) for plan in job]
    packed: dict[str, dict[int, tuple[_RunWork, int, FileRef]]] = defaultdict(dict)
    for work in works:
        sources = list(enumerate(work.plan.sources))
        files = (Source(i, c.entry) for i, c in sources if not c.entry.packed)
        stored = any(is_uri(c.entry.location) for c in work.plan.sources)
        work.read(opened_ahead(files) if stored else files)
        for i, c in sources:
            if c.entry.packed:
                packed[c.entry.location][c.entry.position] = work, i, c.entry
    for _, wanted in sorted(packed.items()):
        members = pass_by(entry for _, _, entry in wanted.values())
        passing = ((*wanted[i], stream) for i, stream in members)
        for work, own in itertools.groupby(passing, key=lambda member: member[0]):
            work.read(Source(i, entry, stream) for _, i, entry, stream in own)
    return [work.finish(options) for work in works]


class _RunWork:
    """One run between its first chunk and its staged parts."""

    def __init__(self, plan: RunPlan, staging: Path, helper: Executor, advance: Advance) -> None:
        self.plan = plan
        self._ledger = Ledger()
        self._parser = plan.format.parser(plan.run, self._ledger)
        folder = staging / plan.run_id
        folder.mkdir()
        self._writer = PartWriter(plan.run_id, folder, helper)
        self._helper = helper
        self._advance = advance
        self._reads: dict[int, Read] = {}

    def read(self, sources: Iterable[Source]) -> None:
        """Feed sources to the parser and its rows to the writer."""
        long_lines = self.plan.format.long_lines
        reader = ChunkReader(sources, self._ledger, cut_lines=long_lines)
        # Closed at once if the parser fails, because this thread's next job reuses the buffers.
        with contextlib.closing(reader.chunks(_buffers(), self._helper)) as chunks:
            before = self._ledger.rejected
            for chunk, weight in chunks:
                with phase("parse"):
                    self._parser.feed(chunk)
                self._write()
                rejected = self._ledger.rejected
                self._advance(weight, sum(s.last for s in chunk.spans), rejected - before)
                before = rejected
        self._reads |= reader.found

    def finish(self, options: Options) -> RunResult:
        """End the run: remaining rows, line counts, and the run's own row."""
        with phase("parse"):
            facts = self._parser.finish()
        self._write(everything=True)
        sources = [
            *((i, file, None) for i, file in enumerate(self.plan.sources)),
            *((i, file, i) for file, i in self.plan.duplicates),
        ]
        rows, records = [], []
        for number, (source_id, file, copy_of) in enumerate(sources):
            row = self._source_row(number, source_id, file, copy_of)
            rows.append(row)
            records.append(file.record(row))
        complete = is_complete(facts)
        self._writer.add("sources", [_rows("sources", rows)])
        self._writer.add(
            "runs", [_rows("runs", [run_row(self.plan, facts, complete, options.fabric)])]
        )
        self._writer.add("faults", [self._ledger.fault_batch()])
        shaping = options.shaping(self.plan.format)
        staged = self._writer.close()
        parts: dict[str, list[str]] = defaultdict(list)
        for relative in sorted(staged):
            parts[relative.split("/", 1)[0]].append(relative)
        entry = RunEntry(
            self.plan.run_id,
            self.plan.group,
            generation_of(shaping, rows),
            {table: tuple(names) for table, names in parts.items()},
            tuple(records),
            shaping,
        )
        ledger, total = self._ledger, _total(self._ledger)
        records_read = total.row_lines + total.rejected
        rejected = 0 if shaping["forced"] else total.rejected
        return RunResult(
            self.plan.run_id,
            self.plan.format.name,
            self.plan.status,
            len(records),
            sum(read.bytes for read in self._reads.values()),
            total.lines,
            total.rows,
            total.rejected,
            total.rejected / records_read if records_read else 0.0,
            complete,
            faults=ledger.fault_totals(),
            usable=bool(total.row_lines or total.context_lines or rejected),
            entry=entry,
            staged=staged,
        )

    def _write(self, *, everything: bool = False) -> None:
        for table, batches in self._parser.drain().items():
            self._writer.add(table, batches)
        self._writer.add("rejects", self._ledger.drain_rejects(everything=everything))

    def _source_row(
        self, number: int, source_id: int, file: InputFile, copy_of: int | None
    ) -> dict[str, Any]:
        count, read = self._ledger.source(source_id), self._reads.get(source_id) or Read()
        # What is a duplicate of another run is decided when all runs are committed.
        duplicate_of = None if copy_of is None else self.plan.sources[copy_of].entry.label
        return {
            "source_id": number,
            "path": file.entry.path,
            "member": file.entry.member,
            "format": self.plan.format.name,
            "compression": read.compression,
            "bytes": read.bytes,
            "content_hash": read.content_hash,
            "lines": read.lines,
            "row_lines": count.row_lines,
            "context_lines": count.context_lines,
            "rejected": count.rejected,
            "irrelevant": sorted(count.irrelevant.items()),
            "rows": count.rows if copy_of is None else 0,
            "rank": file.facts.rank,
            "host": file.facts.host,
            "device": file.facts.device,
            "duplicate_of": duplicate_of,
        }


def _buffers() -> tuple[Buffer, Buffer]:
    """Return the worker's own pair of buffers, reused for every source."""
    if not hasattr(_local, "buffers"):
        _local.buffers = Buffer(CHUNK_BYTES), Buffer(CHUNK_BYTES)
    pair: tuple[Buffer, Buffer] = _local.buffers
    return pair


def _rows(table: str, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    schema = tables()[table].storage_schema
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _total(ledger: Ledger) -> SourceCount:
    total = SourceCount()
    for count in ledger.sources.values():
        total.row_lines += count.row_lines
        total.context_lines += count.context_lines
        total.rejected += count.rejected
        total.rows += count.rows
        for kind, lines in count.irrelevant.items():
            total.pass_over(kind, lines)
    return total
