"""Parse per-rank operation traces of Megatron runs: one line per operation, one file per rank.

A line is `rank:N:op(key=value,...,sub_operations=['key=value,...', ...])`. `timestamp` is the end
of an operation in ms on the host's monotonic clock and `duration` its device time, so start = end -
duration. `steps` numbers steps and micro-batches.

Runs: files of one folder whose names carry the same configuration and the same stamp are one run.
Files with stamps within the gap of each other are one run too, until a rank repeats: how they are
cut then says `starts`. Runs of sibling folders whose ranks are disjoint and
whose stamps lie within the gap are one run on several hosts, named by the folders; where these are
not evidently names of nodes, that is a fault of the run. Folders per device within a node's are as
if they were not there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa

from tracelake.formats import Chunk, Claim, FileFacts, Format, Held, Run, RunFacts, first_text
from tracelake.formats.ledger import UNFINISHED, UNFINISHED_LINE, Fault, Ledger, Severity
from tracelake.formats.rank_trace.batches import CLOCK_TICK_NS, earlier
from tracelake.formats.rank_trace.held import make
from tracelake.formats.rank_trace.layout import ROWS, SPAN_FIRST
from tracelake.formats.rank_trace.names import folder_of, name_of
from tracelake.formats.rank_trace.reader import UNKNOWN_DTYPE, Reader
from tracelake.formats.rank_trace.steps import ENDED, STEP, UNENDED
from tracelake.formats.starts import Unit, runs_of, stamp_of, starts
from tracelake.schema.topology import stage_of

_RECORD = re.compile(rb"rank:(\d{1,9}):[A-Za-z_]\w*\(", re.ASCII)
_LATER_RECORD = re.compile(rb"\nrank:\d{1,9}:[A-Za-z_]\w*\(", re.ASCII)
# A record, or a line of a schedule.
_FIRST = re.compile(rb"(?:rank|stage):\d{1,9}:[A-Za-z_]\w*\(", re.ASCII)

JOINED_FOLDERS = Fault(
    "joined_folders",
    Severity.NOTICE,
    "The run was put together from the files of several folders: their ranks complete each other "
    "and their dates fit. If the folders are different jobs, tell them apart with --run-pattern.",
)

# In the order of the kernel's problem numbers, from 1.
REJECTS = {
    "not_a_record": "The line is not `rank:N:op(...)`.",
    "unbalanced": "Brackets or quotes do not close where the line ends.",
    "bad_field": "The fields do not begin with `key=`, or are more than 1024.",
    "duplicate_key": "A key occurs twice in one record.",
    "bad_number": "A time is not a decimal of at most 12.6 digits, or a count is not a number.",
    "bad_shape": "A shape is not `[a, b, ...]` of whole numbers.",
    "missing_timestamp": "A record that was traced has no timestamp.",
    "bad_sub_operation": "`sub_operations` is not a list of quoted strings of `key=value`.",
    "truncated_line": "The last line of a compressed file has no line end and does not parse.",
}
IRRELEVANT = {
    "blank": "Empty line.",
    "plan": "Line of a schedule without times, `stage:N:op(...)`.",
    "untraced_iteration": "Record without times, of an iteration that was not traced.",
}
_KINDS = tuple(IRRELEVANT)  # as the kernel counts them
_REASONS = tuple(REJECTS)


def sniff(head: bytes) -> Claim:
    """Claim a file that has a record behind other lines."""
    return Claim.MAYBE if _LATER_RECORD.search(head) else Claim.NO


def facts(path: str, head: bytes) -> FileFacts:
    """Read `wd8_tp2_pp4_numl40_bs2_<tokenizer>_rank0_<YYYYmmddHHMMSS>.txt`: parts in any order."""
    name, folder = name_of(path), folder_of(path)
    if name.rank:
        rank: int | None = int(name.rank)
    else:
        first = _RECORD.match(first_text(head))
        rank = int(first[1]) if first else None
    return FileFacts(
        path=path,
        stem=name.stem or PurePosixPath(path).stem,
        rank=rank,
        host=folder.host,
        device=folder.device,
        stamp=stamp_of(f"{name.stamp[:8]}T{name.stamp[8:]}") if name.stamp else None,
        topology=name.sizes,
    )


def group(files: Sequence[FileFacts], gap_seconds: float) -> list[list[FileFacts]]:
    """Return runs of files, in order of their first file."""
    siblings: dict[tuple[str | None, ...], list[list[FileFacts]]] = defaultdict(list)
    for run in runs_of(files, gap_seconds, job_of=_job):
        siblings[run[0].run, *_job(run[0])[:2]].append(run)
    runs = []
    for found in siblings.values():
        if len({_job(run[0]) for run in found}) == 1:
            runs += found
            continue
        # Starts of several folders may be those of runs on several hosts.
        units = [Unit(_first_stamp(run), frozenset(file.rank for file in run)) for run in found]
        for start in starts(units, gap_seconds):
            runs += _hosted([found[i] for i in start])
    ordered = [sorted(run, key=lambda f: f.path) for run in runs]
    return sorted(ordered, key=lambda run: run[0].path)


def _job(file: FileFacts) -> tuple[str, ...]:
    """Return what tells jobs in a folder apart: the folder above it, configuration and folder."""
    folder = folder_of(file.path)
    return (folder.parent, file.stem, folder.node) if file.topology else ("", file.path)


def _first_stamp(run: Iterable[FileFacts]) -> datetime | None:
    return min((file.stamp for file in run), key=lambda stamp: stamp or datetime.min)


def _hosted(parts: list[list[FileFacts]]) -> list[list[FileFacts]]:
    """Return one run of parts that complete each other, its hosts named by their folders."""
    ranks = [file.rank for part in parts for file in part]
    world = parts[0][0].topology.get("world_size", len(ranks))
    if len(parts) == 1 or None in ranks or len(ranks) > world:
        return parts
    return [
        [
            file._replace(host=file.host or folder_of(file.path).node_name)
            for part in parts
            for file in part
        ]
    ]


def _joined_folders(sources: Iterable[FileFacts]) -> list[str]:
    """Return the folders that a run was put together from, unless their names say nodes."""
    found = {s.path: folder_of(s.path) for s in sources if s.run is None and s.topology}
    nodes = {folder.node: folder.names_part for folder in found.values()}
    return sorted(nodes) if len(nodes) > 1 and not all(nodes.values()) else []


class _Parser:
    """Feeds chunks to the reader and reports what became of their lines."""

    def __init__(self, run: Run, ledger: Ledger) -> None:
        self._run = run
        self._ledger = ledger
        self._unfinished = False
        self._topology = topology = run.sizes({})
        # Without `self`: a cycle would hold the reader's memory until garbage is collected.
        self._reader = Reader(lambda rank: stage_of(rank, topology), ledger, hold=run.together)

    def feed(self, chunk: Chunk) -> None:
        places = [(0, s.start, s.stop, s.source_id, s.line) for s in chunk.spans]
        spans = np.array(places, np.int64).reshape(-1, 5)
        spans[:, SPAN_FIRST] = chunk.firsts
        counts, rejects = self._reader.feed(chunk.data, chunk.ends, spans)
        for span, (records, *kinds, rows) in zip(chunk.spans, counts.tolist(), strict=True):
            account = self._ledger.source(span.source_id)
            account.row_lines += records
            account.rows += rows
            if any(kinds):  # of one file of many mostly none
                for kind, count in zip(_KINDS, kinds, strict=True):
                    account.pass_over(kind, count)
        for number, line, start, end, problem in rejects.tolist():
            span, reason = chunk.spans[number], _REASONS[problem - 1]
            raw = chunk.data[start:end].tobytes()
            if reason == "truncated_line" and not span.compressed:
                self._unfinished = True
                self._ledger.unfinished(span.source_id, line, raw)
            else:
                offset = span.offset + start - span.start
                self._ledger.reject(span.source_id, line, offset, reason, raw)

    def drain(self) -> Mapping[str, Sequence[pa.RecordBatch]]:
        ready = self._reader.ready()
        return {"ops": [ops for ops, _ in ready], "comms": [comms for _, comms in ready]}

    def finish(self) -> RunFacts:
        book = self._reader.finish()
        seen = self._reader.observed
        printed = self._printed()
        simulated = seen.simulated(self._topology.get("pp", printed.get("pp")))
        if simulated:
            printed.pop("micro_batches", None)
        attributes: dict[str, str] = {}
        for source in self._run.sources:
            attributes |= name_of(source.path).attributes
        if folders := _joined_folders(self._run.sources):
            self._ledger.fault(0, JOINED_FOLDERS, raw=", ".join(folders).encode())
        steps = {int(row[STEP]) for row in book.values()}
        return RunFacts(
            topology=printed,
            ranks=frozenset(book),
            ranks_expected=self._topology.get("world_size"),
            ended=len(steps) == 1
            and all(row[ENDED] and not row[UNENDED] for row in book.values())
            and not self._unfinished,
            simulated=simulated,
            profiled=True,
            signature=seen.signature,
            attributes=attributes,
            held=self._held(),
        )

    def _held(self) -> Held | None:
        rows = self._reader.held
        if rows is None:
            return None
        counts = {"ops": int(rows.ops.size[ROWS]), "comms": int(rows.comms.size[ROWS])}
        return Held(counts, rows, make)

    def _printed(self) -> dict[str, int]:
        """Return sizes that the lines show: the stages, and the micro-batches of a step."""
        seen, printed = self._reader.observed, {}
        if seen.loss_stages == {seen.last_stage} and "pp" not in self._topology:
            printed["pp"] = seen.last_stage + 1
        forwards, chunks = seen.forwards_per_step, self._topology.get("vpp", 1)
        if forwards is not None and forwards % chunks == 0:
            printed["micro_batches"] = forwards // chunks
        return printed


FORMAT = Format(
    name="rank_trace",
    doc="Megatron per-rank operation traces, one file per rank.",
    version=3,
    tables=("ops", "comms"),
    sniff=sniff,
    begin=_FIRST,
    facts=facts,
    group=group,
    parser=_Parser,
    rejects=REJECTS,
    irrelevant={**IRRELEVANT, UNFINISHED.name: UNFINISHED_LINE},
    faults=(UNKNOWN_DTYPE, JOINED_FOLDERS, UNFINISHED),
    volume="large",
    clock_tick_ns=CLOCK_TICK_NS,
    earlier=earlier(),
)
