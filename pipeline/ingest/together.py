"""Write the rows of small runs together: a part has the rows of many."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tracelake.formats import Held
from tracelake.ingest.fence import Fence, ParserFailedError, checked
from tracelake.ingest.run_plan import RunPlan
from tracelake.ingest.run_result import RunResult
from tracelake.lake.layout import partition_of, table_of_part
from tracelake.lake.parquet import PartWriter
from tracelake.schema.tables import tables

# One row of a table, by column.
_Row = Mapping[str, Any]
# A table, rows of it, and how many of them each run has.
_Rows = tuple[str, pa.RecordBatch, Mapping[str, int]]

# Rows of small runs that wait in memory, so that what many runs say of themselves is converted at
# once: to convert a single row costs as much as hundreds.
_WAITING_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class ParsedRun:
    """A run that was parsed.

    Attributes:
        run, sources: Its rows of `runs` and `sources`.
        rows: Its rows of other tables that are not written yet.
        held: Those that are not made yet either.
    """

    plan: RunPlan
    run: _Row
    sources: Sequence[_Row]
    rows: Mapping[str, Sequence[pa.RecordBatch]]
    held: Held | None

    @property
    def partition(self) -> str:
        """The folder of its parts below that of their table."""
        return partition_of(self.plan.format.name, self.run["run_date"])

    @property
    def waiting(self) -> Counter[str]:
        """Return how many rows wait by table."""
        ready = {table: sum(b.num_rows for b in rows) for table, rows in self.rows.items()}
        return Counter(ready) + Counter(self.held.rows if self.held else {})


class Together:
    """The small runs of a batch, whose rows are written together, in order of run id."""

    def __init__(self, staging: Path, helper: Executor) -> None:
        self._staging = staging
        self._helper = helper
        self._waiting: dict[str, list[ParsedRun]] = defaultdict(list)  # by partition
        self._waiting_rows = 0
        self._last = ""
        self._writers: dict[str, PartWriter] = {}  # by partition
        self._open: dict[str, tuple[str, Collection[str]]] = {}  # partition and tables by run
        self._parts: dict[str, dict[str, tuple[str, ...]]] = {}
        self._staged: dict[str, Path] = {}
        self._failed: dict[str, RunResult] = {}

    def add(self, run: ParsedRun) -> None:
        """Add a run; one that is out of order begins new parts."""
        if run.plan.run_id < self._last:
            self.close()
        self._last = run.plan.run_id
        self._waiting[run.partition].append(run)
        self._waiting_rows += run.waiting.total()
        if self._waiting_rows >= _WAITING_ROWS:
            self._write_waiting()

    def _write_waiting(self) -> None:
        for partition, runs in self._waiting.items():
            self._write(partition, runs)
        self._waiting.clear()
        self._waiting_rows = 0

    def _write(self, partition: str, runs: Sequence[ParsedRun]) -> None:
        """Write the rows of runs, except of those whose rows cannot be made."""
        try:
            own, made = own_rows(runs), list(_other_rows(runs))
        except ParserFailedError as error:
            if len(runs) == 1:
                failed = RunResult.of(runs[0].plan, usable=False, failure=error.failure)
                self._failed[failed.run_id] = failed
            else:
                for run in runs:
                    self._write(partition, [run])
            return
        writer = self._writers.get(partition)
        if writer is None:
            folder = Path(tempfile.mkdtemp(prefix="together-", dir=self._staging))
            writer = PartWriter(folder, self._helper, whole=True)
            self._writers[partition] = writer
        for table, batch, of_runs in made:
            writer.add_runs(table, batch, of_runs)
        for table, batch in own.items():
            writer.add(table, [batch])
        for run in runs:
            self._open[run.plan.run_id] = partition, {*own, *run.waiting}

    def close(self) -> None:
        """Complete the parts."""
        self._write_waiting()
        self._last = ""
        names = {}
        for partition, writer in self._writers.items():
            staged = writer.close(partition)
            names[partition] = {table_of_part(part): part for part in staged}
            self._staged |= staged
        for run_id, (partition, filled) in self._open.items():
            self._parts[run_id] = {table: (names[partition][table],) for table in sorted(filled)}
        self._writers, self._open = {}, {}

    def placed(self, result: RunResult) -> RunResult:
        """Return the result of a run with the parts that have its rows, if it was added."""
        parts = self._parts.get(result.run_id)
        if parts is None or result.entry is None:
            return self._failed.get(result.run_id, result)
        staged = {part: self._staged[part] for (part,) in parts.values()}
        return replace(result, entry=replace(result.entry, parts=parts), staged=staged)


def own_rows(runs: Sequence[ParsedRun]) -> dict[str, pa.RecordBatch]:
    """Return the rows of `runs` and `sources` of these runs.

    Raises:
        ParserFailedError: A value is none that its column can hold; of several runs, of any.
    """
    first = runs[0].plan
    rows = {
        "sources": [row for run in runs for row in run.sources],
        "runs": [run.run for run in runs],
    }
    with Fence(first.format, (c.entry for c in first.sources), first.run_id):
        return {
            table: pa.RecordBatch.from_pylist(some, schema=tables()[table].part_schema)
            for table, some in rows.items()
        }


def _other_rows(runs: Sequence[ParsedRun]) -> Iterator[_Rows]:
    """Yield the rows of all other tables by table, in order of the runs, and how many each has.

    Raises:
        ParserFailedError: Held rows cannot be made; of several runs, those of any.
    """
    for holds, neighbours in itertools.groupby(runs, lambda run: run.held is not None):
        some = [*neighbours]
        if holds:
            yield from _held_rows(some)
        for run in some:
            for table, batches in run.rows.items():
                for batch in batches:
                    yield table, batch, {run.plan.run_id: batch.num_rows}


def _held_rows(runs: Sequence[ParsedRun]) -> list[_Rows]:
    first = runs[0].plan
    held = [(run.plan.run_id, run.held) for run in runs if run.held]
    with Fence(first.format, (c.entry for c in first.sources), first.run_id):
        made = held[0][1].make([one.content for _, one in held])
        counts = {table: {run_id: one.rows[table] for run_id, one in held} for table in made}
        for table, batch in made.items():
            checked(first.format, table, batch)
            if batch.num_rows != sum(counts[table].values()):
                raise ValueError(f"{batch.num_rows} rows of {table} for {counts[table]}")
    return [(table, batch, counts[table]) for table, batch in made.items()]
