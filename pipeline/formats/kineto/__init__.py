"""Parse traces of the PyTorch profiler (Kineto): one JSON document per rank, of any size.

A document is read object by object, and nothing of it is kept but 36 bytes per kernel and what is
said about communications. Kernels and copies on the device are `ops`, those of NCCL and RCCL are
`comms` too, and `ProfilerStep#N` is the record of step N. A kernel belongs to the step that had
begun last on the device, or on the host where the trace does not say that. The annotations of a
pipeline's passes on the device are `ops` too; on the host they contain waiting for other ranks.

Runs: files of one folder whose names differ in rank, process and time only, or in numbers where the
traces say that they are ranks of one job. A folder that is called after its rank is as if it were
not there. Where a rank has several files, those of a run began at about the same time; without
times, the k-th files of all ranks are a run.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from tracelake.formats import Chunk, Claim, FileFacts, Format, Run, RunFacts, first_text
from tracelake.formats.kineto.document import Document
from tracelake.formats.kineto.events import Events
from tracelake.formats.kineto.names import SIZES, group_of, name_of
from tracelake.formats.kineto.rows import DocumentRows
from tracelake.formats.ledger import Fault, Ledger, Severity
from tracelake.formats.starts import date_of, runs_of
from tracelake.schema.topology import LARGEST

RANK_UNKNOWN = Fault(
    "rank_unknown",
    Severity.NOTICE,
    "The trace is of a distributed job and says no rank, nor does its name: it counts as rank 0."
    " Put `rankN` into the name of the file.",
)
MERGED = Fault(
    "merged_trace",
    Severity.ERROR,
    "The steps of the document are of several processes, or its kernels of several devices:"
    " it is made of traces of several ranks, or of a process with several devices, and counts as"
    " one rank with one device here. Read the traces of the ranks themselves.",
)
NO_WORK = Fault(
    "no_device_work",
    Severity.NOTICE,
    "The trace has no work of a device, and no step or only passes of a pipeline on the host, which"
    " contain waiting. Record what the device does, as with `ProfilerActivity.CUDA`.",
)
OVERRUN = Fault(
    "overrun",
    Severity.NOTICE,
    "Kernels of AMD that compute and last until later ones of their stream have ended, as ROCm says"
    " after a long wait: they end here where the next one begins.",
)
_DISTRIBUTED = re.compile(rb'"distributedInfo"\s*:\s*\{')
_DIGITS = re.compile(r"\d+", re.ASCII)
_RANK = re.compile(rb'"rank"\s*:\s*(\d{1,9})\b')
_WORLD = re.compile(rb'"world_size"\s*:\s*(\d{1,9})\b')
_HOST = re.compile(rb'"host_name"\s*:\s*"([\w.-]+)"', re.ASCII)
# Times of events are in us since the base, or since 1970 where the document has none.
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')
_TIME = re.compile(rb'"ts"\s*:\s*"?([1-9]\d{0,15})\b')
# The years 2000 to 2100: other times are not of a clock that tells dates.
_DATES = range(946_684_800, 4_102_444_800)


def _sniff(head: bytes) -> Claim:
    if not first_text(head).startswith(b"{"):
        return Claim.NO
    keys = (b"schemaVersion", b"deviceProperties", b"distributedInfo", b"traceEvents")
    return Claim.YES if sum(b'"%b"' % key in head for key in keys) > 1 else Claim.NO


def _facts(path: str, head: bytes) -> FileFacts:
    name = name_of(path)
    begin = _DISTRIBUTED.search(head)
    info = head[begin.end() :].partition(b"}")[0] if begin else b""
    host = _HOST.search(head.partition(b'"traceEvents"')[0])
    rank, world = _RANK.search(info), _WORLD.search(info)
    sizes = {"world_size": int(world[1])} if world and 0 < int(world[1]) <= LARGEST else {}
    return FileFacts(
        path,
        name.stem,
        rank=int(rank[1]) if rank and int(rank[1]) <= LARGEST else name.rank,
        host=host[1].decode() if host else name.host,
        stamp=_stamp(head),
        topology=sizes,
    )


def _stamp(head: bytes) -> datetime | None:
    """Return the time of the first event, in UTC; None if it has no date."""
    base = _BASE.search(head)
    since = int(base[1]) // 1000 if base else 0
    times = ((since + int(time[1])) // 1_000_000 for time in _TIME.finditer(head))
    seconds = next((time for time in times if time in _DATES), None)
    return None if seconds is None else date_of(seconds)


def _group(files: Sequence[FileFacts], gap_seconds: float) -> list[list[FileFacts]]:
    """Return runs of files, in order of their first file."""
    alike = Counter(map(_job, files))

    def job(file: FileFacts) -> tuple[object, ...]:
        """Return the job of a file; names may say the rank in other words: `TP-3`, `profile_3`."""
        one = _job(file)
        several = file.topology.get("world_size", 1) > 1
        return _job(file, _DIGITS.sub("#", file.stem)) if alike[one] == 1 and several else one

    return runs_of(files, gap_seconds, job_of=job)


def _job(file: FileFacts, stem: str | None = None) -> tuple[object, ...]:
    if file.rank is None:
        return ("", file.path)
    return (name_of(file.path).folder, stem or file.stem, file.topology.get("world_size"))


class _Parser:
    """Reads the documents of a run one after another."""

    def __init__(self, run: Run, ledger: Ledger) -> None:
        self._run = run
        self._ledger = ledger
        self._open: tuple[Events, Document] | None = None
        self._ready: defaultdict[str, list[Iterator[pa.RecordBatch]]] = defaultdict(list)
        self._ranks: set[int] = set()
        self._sizes: dict[str, int] = {}
        self._alone = all(source.rank is None for source in run.sources)
        self._ended = True
        self._steps: dict[int, set[int]] = {}  # by rank
        self._device: str | None = None
        self._messages: dict[int, str] = {}

    def feed(self, chunk: Chunk) -> None:
        for block in chunk.blocks():
            if self._open is None:
                events = Events()
                self._open = events, Document(block.source_id, self._ledger, events)
            events, document = self._open
            document.feed(block)
            if block.last:
                self._ended &= document.ended
                self._finish_document(block.source_id, events, ended=document.ended)
                self._open = None

    def drain(self) -> Mapping[str, Iterable[pa.RecordBatch]]:
        ready, self._ready = self._ready, defaultdict(list)
        return {table: itertools.chain(*found) for table, found in ready.items()}

    def finish(self) -> RunFacts:
        sizes = self._run.sizes(self._sizes)
        return RunFacts(
            topology=self._sizes,
            ranks=frozenset(self._ranks),
            ranks_expected=sizes.get("world_size") or (1 if self._alone else None),
            ended=self._ended and _same_steps(self._steps.values()),
            simulated=False,
            profiled=True,
            signature=self._messages[min(self._messages)] if self._messages else None,
            attributes={"device": self._device} if self._device else {},
        )

    def _finish_document(self, source: int, events: Events, *, ended: bool) -> None:
        info = events.members.get("distributedInfo")
        rank = self._rank(source, info if isinstance(info, dict) else None)
        if events.host_steps:
            self._steps.setdefault(rank, set()).update(events.host_steps)
        if events.merged:
            self._ledger.fault(source, MERGED)
        world = info.get("world_size") if isinstance(info, dict) else None
        self._add_sizes({"world_size": world, **_group_sizes(events)})
        devices = events.members.get("deviceProperties")
        if isinstance(devices, list) and devices and isinstance(devices[0], dict):
            name = devices[0].get("name")
            self._device = name if isinstance(name, str) and name.isascii() else None
        found = DocumentRows(events, source, rank)
        told = self._run.named.keys() | self._run.given.keys() | self._sizes.keys()
        if told.isdisjoint(("tp", "pp", "dp", "cp")):
            self._add_sizes({"dp": found.replicas()})
        found.sizes = self._run.sizes(self._sizes)
        self._add_sizes(found.pipeline_sizes())
        of_amd = (self._device or "").startswith("AMD ") and not events.merged
        if of_amd and (overruns := found.end_overruns()):
            self._ledger.fault(source, OVERRUN, count=overruns)
        if message := found.message():
            self._messages.setdefault(rank, message)
        # The profiler writes `distributedInfo` where the process is one of several.
        self._alone &= info is None and not found.counts["comms"]
        if ended:
            self._ranks.add(rank)
            if not found.counts["ops"] and (events.host_passes or not events.host_steps):
                self._ledger.fault(source, NO_WORK)
        for table, count in found.counts.items():
            if count:
                self._ready[table].append(found.batches(table))
                self._ledger.source(source).rows += count
                self._ranks.add(rank)

    def _rank(self, source: int, info: Mapping[str, Any] | None) -> int:
        rank = None if info is None else info.get("rank")
        if isinstance(rank, int) and 0 <= rank <= LARGEST:
            return int(rank)
        named = self._run.sources[source].rank
        if named is None and info is not None:
            self._ledger.fault(source, RANK_UNKNOWN)
        return named or 0

    def _add_sizes(self, found: Mapping[str, object]) -> None:
        """Keep sizes of the job; the first one counts."""
        for key, size in found.items():
            if isinstance(size, int) and 0 < size <= LARGEST:
                self._sizes.setdefault(key, int(size))


def _same_steps(ranks: Collection[set[int]]) -> bool:
    """Return whether the ranks have the same steps.

    Where each begins and ends its trace at a time of its own, one more or less at an end is usual.
    """
    every = set[int]().union(*ranks)
    return all(
        min(steps) - min(every) < 2
        and max(every) - max(steps) < 2
        and steps.issuperset(step for step in every if min(steps) < step < max(steps))
        for steps in ranks
    )


def _group_sizes(events: Events) -> dict[str, int]:
    """Return sizes of the parallel groups whose description says what they are."""
    kinds = ((group_of(group.description), group.size) for group in events.groups().values())
    return {SIZES[kind]: size for kind, size in kinds if kind in SIZES and size}


FORMAT = Format(
    name="kineto",
    clock_tick_ns=1000,
    doc="Traces of the PyTorch profiler (Kineto): a JSON document per rank.",
    version=9,
    tables=("ops", "comms", "train_steps"),
    sniff=_sniff,
    facts=_facts,
    group=_group,
    parser=_Parser,
    rejects={
        "broken_event": "The text is no JSON; reading goes on with the next event.",
        "torn_event": "The document ends within an object: the file was cut off.",
        "no_event": "An entry of `traceEvents` is no object, or a kernel has no name.",
        "bad_number": "A kernel or step without a time from 0 on, or with one that is too large.",
    },
    irrelevant={
        "event": "Operations on the host, calls of the runtime, arrows, names of threads.",
        "structure": "Empty lines, and brackets between objects.",
        "unread": "The rest of an object that cannot be read.",
    },
    faults=(RANK_UNKNOWN, MERGED, NO_WORK, OVERRUN),
    named_by="content",
    dated_by="content",
    long_lines=True,
)
