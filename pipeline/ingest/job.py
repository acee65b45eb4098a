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
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tracelake.base.files import remove
from tracelake.base.metrics import phase
from tracelake.execution.jobs import require, work_folder
from tracelake.formats.ledger import Ledger
from tracelake.ingest.batches import Batch
from tracelake.ingest.fence import FencedParser, ParserFailedError, ParserFailure
from tracelake.ingest.options import Options
from tracelake.ingest.run_plan import RunPlan
from tracelake.ingest.run_result import RunResult
from tracelake.ingest.run_row import run_row
from tracelake.ingest.sniff import InputFile
from tracelake.ingest.together import ParsedRun, Together, own_rows
from tracelake.inputs.archives import pass_by
from tracelake.inputs.chunks import CHUNK_BYTES, Buffer, ChunkReader
from tracelake.inputs.sources import Read, Source, opened_ahead
from tracelake.inputs.streams import FileRef
from tracelake.lake.home import part_files_at
from tracelake.lake.layout import partition_of, table_of_part
from tracelake.lake.manifest import RunEntry, generation_of
from tracelake.lake.parquet import LANES, PartWriter
from tracelake.schema.tables import PARTITION_KEY
from tracelake.storage.store_path import is_uri

# Text of small runs that are read before they are finished together.
_WAITING_BYTES = 4 << 20

Advance = Callable[[int, int, int], None]

_local = threading.local()


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
        left = files.hand_in({part: path for r in results for part, path in r.staged.items()})
        return [
            replace(r, staged={part: path for part, path in r.staged.items() if part in left})
            for r in results
        ]


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
    together = Together(folder, helper)
    results: list[RunResult] = []
    waiting: list[_RunWork] = []
    size = 0
    for bundle in batch:
        works = [_RunWork(plan, folder, helper, advance, together) for plan in bundle]
        _read_bundle(works)
        waiting += works
        size += sum(work.bytes for work in works)
        if size > _WAITING_BYTES or not all(work.plan.together for work in works):
            results += _finish(waiting, options)
            waiting, size = [], 0
    results += _finish(waiting, options)
    together.close()
    return [together.placed(result) for result in results]


def _read_bundle(works: Sequence[_RunWork]) -> None:
    packed: dict[str, dict[int, tuple[_RunWork, int, FileRef]]] = defaultdict(dict)
    for work in works:
        sources = list(enumerate(work.plan.sources))
        files = (Source(i, c.entry) for i, c in sources if not c.entry.packed)
        stored = any(is_uri(c.entry.readable) for c in work.plan.sources)
        work.read(opened_ahead(files) if stored else files)
        for i, c in sources:
            if c.entry.packed:
                packed[c.entry.location][c.entry.position] = work, i, c.entry
    for _, wanted in sorted(packed.items()):
        members = pass_by(entry for _, _, entry in wanted.values())
        passing = ((*wanted[i], stream) for i, stream in members)
        for work, own in itertools.groupby(passing, key=lambda member: member[0]):
            work.read(Source(i, entry, stream) for _, i, entry, stream in own)


def _finish(works: Sequence[_RunWork], options: Options) -> list[RunResult]:
    """Return the results of runs that were read."""
    FencedParser.prepare([work.parser for work in works if work.failure is None])
    return [work.finish(options) for work in works]


class _RunWork:
    """One run between its first chunk and its staged parts."""

    def __init__(
        self, plan: RunPlan, staging: Path, helper: Executor, advance: Advance, together: Together
    ) -> None:
        self.plan = plan
        self._ledger = Ledger()
        self.parser = FencedParser(plan, self._ledger)
        self.failure: ParserFailure | None = None
        self._together = together
        self._rows: dict[str, list[pa.RecordBatch]] = defaultdict(list)  # of a small run
        self._writer: PartWriter | None = None
        if not plan.together:
            folder = staging / plan.run_id
            folder.mkdir()
            self._writer = PartWriter(folder, helper)
        self._helper = helper
        self._advance = advance
        self._reads: dict[int, Read] = {}
        self._rejected = 0  # lines that were told of

    @property
    def bytes(self) -> int:
        """Bytes of text that were read."""
        return sum(read.bytes for read in self._reads.values())

    def read(self, sources: Iterable[Source]) -> None:
        """Feed sources to the parser and its rows to the writer, unless the parser has failed."""
        if self.failure is None:
            try:
                self._read(sources)
            except ParserFailedError as error:
                self.failure = error.failure

    def finish(self, options: Options) -> RunResult:
        """End the run; the result of a parser that has failed has a failure and no parts."""
        if self.failure is None:
            try:
                return self._finish(options)
            except ParserFailedError as error:
                self.failure = error.failure
        if self._writer:
            for path in self._writer.close(partition_of(self.plan.format.name, None)).values():
                remove(path)
        return RunResult.of(self.plan, usable=False, failure=self.failure)

    def _read(self, sources: Iterable[Source]) -> None:
        long_lines = self.plan.format.long_lines
        reader = ChunkReader(sources, self._ledger, cut_lines=long_lines)
        # Closed at once if the parser fails, because this thread's next job reuses the buffers.
        with contextlib.closing(reader.chunks(_buffers(), self._helper)) as chunks:
            for chunk, weight in chunks:
                with phase("parse"):
                    self.parser.feed(chunk)
                self._write()
                self._say(weight, sum(s.last for s in chunk.spans))
        self._reads |= reader.found

    def _finish(self, options: Options) -> RunResult:
        """Add the remaining rows, line counts, and the run's own row."""
        with phase("parse"):
            facts = self.parser.finish()
        self._write(everything=True)
        self._say(0, 0)
        copies = ((source_id, file) for file, source_id in self.plan.duplicates)
        rows, records = [], []
        for number, (source_id, file) in enumerate((*enumerate(self.plan.sources), *copies)):
            row = self._source_row(number, source_id, file)
            rows.append(row)
            records.append(file.record(row))
        with self.parser.fence():  # the values are the parser's
            if facts.held and not self.plan.together:
                raise ValueError("rows are held back of a run that is not `together`")
            run = run_row(self.plan, facts, options.fabric)
            faults = self._ledger.fault_batches()
        self._add("faults", faults)
        parsed = ParsedRun(self.plan, run, rows, self._rows, facts.held)
        shaping = options.shaping(self.plan.format)
        counts = self._ledger.sources.values()
        row_lines = sum(count.row_lines for count in counts)
        rejected = sum(count.rejected for count in counts)
        context = any(count.context_lines for count in counts)
        usable = bool(row_lines or context or (rejected and not shaping["forced"]))
        staged: Mapping[str, Path] = {}
        if self._writer:
            for table, batch in own_rows([parsed]).items():
                self._writer.add(table, [batch])
            staged = self._writer.close(parsed.partition)
        elif usable:
            self._together.add(parsed)
        entry = RunEntry(
            self.plan.run_id,
            self.plan.group,
            generation_of(shaping, rows),
            {
                table: tuple(parts)
                for table, parts in itertools.groupby(sorted(staged), table_of_part)
            },
            tuple(records),
            shaping,
        )
        return RunResult.of(
            self.plan,
            bytes=self.bytes,
            lines=sum(count.lines for count in counts),
            rows=sum(count.rows for count in counts),
            rejected=rejected,
            bad_ratio=rejected / (row_lines + rejected) if rejected else 0.0,
            complete=run["complete"],
            faults=self._ledger.fault_totals(),
            usable=usable,
            foreign=facts.foreign and not shaping["forced"],
            entry=entry,
            staged=staged,
        )

    def _say(self, weight: int, files: int) -> None:
        """Tell of bytes and files that are done, and of the lines rejected since."""
        rejected = self._ledger.rejected
        self._advance(weight, files, rejected - self._rejected)
        self._rejected = rejected

    def _write(self, *, everything: bool = False) -> None:
        for table, batches in self.parser.drain().items():
            self._add(table, batches)
        rejects = self._ledger.drain_rejects(everything=everything)
        self._add("rejects", self.parser.fenced(rejects))

    def _add(self, table: str, batches: Iterable[pa.RecordBatch]) -> None:
        if self._writer is None:
            if rows := [batch for batch in batches if batch.num_rows]:
                self._rows[table] += rows
        else:
            self._writer.add(table, batches, self.plan.run_id)

    def _source_row(self, number: int, source_id: int, file: InputFile) -> dict[str, Any]:
        """Return the row of a source, or of a copy of it, which has another number."""
        is_copy = number != source_id
        count, read = self._ledger.source(source_id), self._reads.get(source_id) or Read()
        # What is a duplicate of another run is decided when all runs are committed.
        duplicate_of = self.plan.sources[source_id].entry.label if is_copy else None
        return {
            PARTITION_KEY: self.plan.run_id,
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
            "rows": 0 if is_copy else count.rows,
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
