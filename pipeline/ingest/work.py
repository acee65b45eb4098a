"""Parse the runs of one job and stage their parts; commit nothing."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tracelake.base.metrics import phase
from tracelake.formats.ledger import Fault, Ledger, SourceCount
from tracelake.ingest.batches import Job
from tracelake.ingest.find import InputFile
from tracelake.ingest.known_inputs import source_record
from tracelake.ingest.options import Options
from tracelake.ingest.plan import RunPlan
from tracelake.ingest.rows import is_complete, run_row
from tracelake.inputs.archives import pass_by
from tracelake.inputs.chunks import CHUNK_BYTES, Buffer, ChunkReader
from tracelake.inputs.sources import FileSource, MemberSource, Read, Source, opened_ahead
from tracelake.inputs.streams import FileRef
from tracelake.lake import RunEntry, generation_of
from tracelake.lake.parquet import PartWriter
from tracelake.schema.tables import tables
from tracelake.storage import is_uri

Advance = Callable[[int, int, int], None]

_local = threading.local()


@dataclass(frozen=True, slots=True)
class RunResult:
    """A parsed run, staged. Small, and of plain values, because another process may send it.

    Attributes:
        staged: Final path, relative to the lake -> staged file.
        rows: Rows by table.
        lines: Counts of its lines, over all sources.
        faults: Fault -> count.
    """

    entry: RunEntry
    staged: Mapping[str, Path]
    rows: Mapping[str, int]
    lines: SourceCount
    faults: Mapping[Fault, int]
    bytes: int
    complete: bool | None

    @property
    def usable(self) -> bool:
        """Tell whether the run has anything of its format.

        Rejected lines count, unless the format was forced on the input.
        """
        lines = self.lines
        rejected = 0 if self.entry.options["forced"] else lines.rejected
        return bool(lines.row_lines or lines.context_lines or rejected)

    @property
    def bad_ratio(self) -> float:
        """Rejected / (record lines + rejected); 0 without either."""
        records = self.lines.row_lines + self.lines.rejected
        return self.lines.rejected / records if records else 0.0


def ingest_batch(
    jobs: Sequence[Job], options: Options, staging: Path, helper: Executor, advance: Advance
) -> list[RunResult]:
    """Parse the runs of a batch and stage their parts, in a folder that no other call uses.

    Args:
        staging: The command's private folder on the lake's file system.
        helper: Executor for read-ahead and writing; not the one that runs this.
        advance: Called with the further bytes and files that are done, and the rejected lines.
    """
    folder = Path(tempfile.mkdtemp(prefix="batch-", dir=staging))
    return [result for job in jobs for result in _ingest_job(job, options, folder, helper, advance)]


def _ingest_job(
    plans: Job, options: Options, staging: Path, helper: Executor, advance: Advance
) -> list[RunResult]:
    """Parse the runs of one job."""
    works = [_RunWork(plan, staging, helper, advance) for plan in plans]
    packed: dict[str, dict[int, tuple[_RunWork, int, FileRef]]] = defaultdict(dict)
    for work in works:
        candidates = list(enumerate(work.plan.sources))
        files = (FileSource(i, c.entry) for i, c in candidates if not c.entry.packed)
        stored = any(is_uri(c.entry.location) for c in work.plan.sources)
        work.read(opened_ahead(files) if stored else files)
        for i, c in candidates:
            if c.entry.packed:
                packed[c.entry.location][c.entry.position] = work, i, c.entry
    for _, wanted in sorted(packed.items()):
        members = pass_by(entry for _, _, entry in wanted.values())
        passing = ((*wanted[i], stream) for i, stream in members)
        for work, own in itertools.groupby(passing, key=lambda member: member[0]):
            work.read(MemberSource(i, stream, entry.limit) for _, i, entry, stream in own)
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
            told = self._ledger.rejected
            for chunk, weight in chunks:
                with phase("parse"):
                    self._parser.feed(chunk)
                self._write()
                rejected = self._ledger.rejected
                self._advance(weight, sum(s.last for s in chunk.spans), rejected - told)
                told = rejected
        self._reads |= reader.found

    def finish(self, options: Options) -> RunResult:
        """End the run: remaining rows, line counts, and the run's own row."""
        with phase("parse"):
            facts = self._parser.finish()
        self._write(everything=True)
        sources = [
            *((i, candidate, None) for i, candidate in enumerate(self.plan.sources)),
            *((i, candidate, i) for candidate, i in self.plan.twins),
        ]
        rows, records = [], []
        for number, (source_id, candidate, twin_of) in enumerate(sources):
            row = self._source_row(number, source_id, candidate, twin_of)
            rows.append(row)
            records.append(record_of(candidate, row))
        complete = is_complete(facts)
        self._writer.add("sources", [_rows("sources", rows)])
        self._writer.add("runs", [_rows("runs", [run_row(self.plan, facts, complete)])])
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
        return RunResult(
            entry,
            staged,
            dict(self._writer.rows),
            _total(self._ledger),
            self._ledger.fault_totals(),
            sum(read.bytes for read in self._reads.values()),
            complete,
        )

    def _write(self, *, everything: bool = False) -> None:
        for table, batches in self._parser.drain().items():
            self._writer.add(table, batches)
        self._writer.add("rejects", self._ledger.drain_rejects(everything=everything))

    def _source_row(
        self, number: int, source_id: int, candidate: InputFile, twin_of: int | None
    ) -> dict[str, Any]:
        count, read = self._ledger.source(source_id), self._reads.get(source_id) or Read()
        # What is a duplicate of another run is decided when all runs are committed.
        duplicate_of = None if twin_of is None else self.plan.sources[twin_of].entry.label
        return {
            "source_id": number,
            "path": candidate.entry.path,
            "member": candidate.entry.member,
            "format": self.plan.format.name,
            "compression": read.compression,
            "bytes": read.bytes,
            "content_hash": read.content_hash,
            "lines": read.lines,
            "row_lines": count.row_lines,
            "context_lines": count.context_lines,
            "rejected": count.rejected,
            "irrelevant": sorted(count.irrelevant.items()),
            "rows": count.rows if twin_of is None else 0,
            "rank": candidate.facts.rank,
            "host": candidate.facts.host,
            "device": candidate.facts.device,
            "duplicate_of": duplicate_of,
        }


def _buffers() -> tuple[Buffer, Buffer]:
    """Return the worker's own pair of buffers, reused for every source."""
    if not hasattr(_local, "buffers"):
        _local.buffers = Buffer(CHUNK_BYTES), Buffer(CHUNK_BYTES)
    pair: tuple[Buffer, Buffer] = _local.buffers
    return pair


def record_of(candidate: InputFile, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of an input; see `source_record`."""
    return source_record(
        candidate.entry,
        candidate.base,
        place=candidate.place,
        head_hash=candidate.head_hash,
        beginnings=candidate.beginnings,
        members=candidate.members,
        found=found,
    )


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
