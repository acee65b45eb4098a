"""Traces of MegaScan (MegatronApp) that are joined over ranks: one JSON list of events.

A pass is an event `B` and an event `E` of a process; the `E` says micro-batch, chunk and stage. The
process is the rank. Times are microseconds of one clock. The name of the file has the sizes:
`data-1-pipeline-4-tensor-1-pp-aggregated.json`. `line` is the line where the pass begins.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from tracelake.formats import Chunk, FileFacts, Format, Run, RunFacts
from tracelake.formats.kineto.document import Document, decoded
from tracelake.formats.kineto.events import nanoseconds, whole
from tracelake.formats.kineto.scan import CONTEXT, EVENT, ROW
from tracelake.formats.ledger import Ledger
from tracelake.kernels.numbers import Bytes, Longs
from tracelake.schema.tables import tables
from tracelake.schema.topology import LARGEST

_OPS = {"forward": "forward_step", "backward": "backward_step"}
_MARKS = {"iteration begin", "iteration end", "reduce"}
_FIRST = re.compile(rb'\[\s*\{[^{}]*"name"\s*:\s*"iteration begin"[^{}]*\{\s*"iteration"')
_NAME = re.compile(r"data-(\d{1,6})-pipeline-(\d{1,6})-tensor-(\d{1,6})(?!\d)")


def _facts(path: str, head: bytes) -> FileFacts:
    del head
    name = PurePosixPath(path).stem
    sizes = _NAME.search(name)
    named = dict(zip(("dp", "pp", "tp"), map(int, sizes.groups()), strict=True)) if sizes else {}
    return FileFacts(path, name, topology={key: size for key, size in named.items() if size})


class _Passes:
    """Joins the events of a document to passes."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self._open: dict[int, list[tuple[str, int, int, int]]] = {}
        self._thread: object = None

    @property
    def ended(self) -> bool:
        """Every pass that began has ended."""
        return not any(self._open.values())

    def take_event(self, event: object, line: int) -> int | str:  # noqa: PLR0911 - a list of cases
        """Take an event, and return what it is or why it is rejected."""
        if not isinstance(event, dict) or not isinstance(event.get("args"), dict):
            return "not_an_event"
        name, kind, args = decoded(event.get("name")), event.get("ph"), event["args"]
        rank, step = whole(event.get("pid"), LARGEST - 1), whole(args.get("iteration"), LARGEST - 1)
        at = nanoseconds(event.get("ts"))
        if name is None or at is None or rank is None or step is None:
            return "not_an_event"
        thread = event.get("tid")
        if self._thread is None:
            self._thread = thread
        if thread != self._thread:
            return "second_trace"
        if kind == "i" and name in _MARKS:
            return CONTEXT
        passes = self._open.setdefault(rank, [])
        if kind == "B":
            passes.append((name, step, at, line))
            return ROW
        if kind != "E":
            return EVENT
        if not passes or passes[-1][:2] != (name, step) or at < passes[-1][2]:
            return "no_begin"
        _, _, begin, first = passes.pop()
        keys = ("pp_rank", "microbatch", "model_chunk")
        stage, batch, chunk = (whole(args.get(key), LARGEST - 1) for key in keys)
        self.rows.append((rank, begin, at, first, step, name, stage, batch, chunk))
        return ROW

    def scan(self, data: Bytes, at: int, end: int, base: int, place: Longs) -> int:
        """Leave every event to the decoder."""
        del data, end, base, place
        return at

    def take_member(self, key: str, value: object) -> None:
        """Leave out what is no event."""

    def columns(self, source: int) -> dict[str, list[Any]]:
        """Return columns of `ops`."""
        numbers: Counter[int] = Counter()
        numbered = []
        for row in sorted(self.rows, key=lambda row: row[:6]):  # what follows may be None
            numbers[row[0]] += 1
            numbered.append((*row, numbers[row[0]]))
        numbered.sort(key=lambda row: row[3])
        ranks, starts, ends, lines, steps, names, stages, batches, chunks, seqs = (
            [row[place] for row in numbered] for place in range(10)
        )
        return {
            "source_id": [source] * len(ranks),
            "line": lines,
            "rank": ranks,
            "stage": stages,
            "step": steps,
            "seq": seqs,
            "micro_batch": batches,
            "op": [_OPS.get(name, name) for name in names],
            "category": ["compute" if name in _OPS else None for name in names],
            "kind": [name if name in _OPS else None for name in names],
            "pass": [name if name in _OPS else None for name in names],
            "start_ns": starts,
            "end_ns": ends,
            "duration_ns": [end - start for start, end in zip(starts, ends, strict=True)],
            "chunk": chunks,
        }


class _Parser:
    """Reads the documents of a run one after another."""

    def __init__(self, run: Run, ledger: Ledger) -> None:
        self._run = run
        self._ledger = ledger
        self._open: tuple[_Passes, Document] | None = None
        self._ready: list[pa.RecordBatch] = []
        self._steps: dict[int, set[int]] = {}  # of each rank
        self._sizes: dict[str, int] = {}
        self._ended = True

    def feed(self, chunk: Chunk) -> None:
        for block in chunk.blocks():
            if self._open is None:
                passes = _Passes()
                self._open = passes, Document(block.source_id, self._ledger, passes)
            passes, document = self._open
            document.feed(block)
            if block.last:
                self._ended &= document.ended and passes.ended
                self._take(block.source_id, passes)
                self._open = None

    def drain(self) -> Mapping[str, Sequence[pa.RecordBatch]]:
        ready, self._ready = self._ready, []
        return {"ops": ready} if ready else {}

    def finish(self) -> RunFacts:
        return RunFacts(
            topology=self._sizes,
            ranks=frozenset(self._steps),
            ranks_expected=self._run.sizes(self._sizes).get("world_size"),
            ended=self._ended and len(set(map(frozenset, self._steps.values()))) < 2,
            simulated=False,
        )

    def _take(self, source: int, passes: _Passes) -> None:
        columns = passes.columns(source)
        if not columns["line"]:
            return
        batch = tables()["ops"].batch(columns)
        self._ready.append(batch)
        self._ledger.source(source).rows += batch.num_rows
        for rank, step in zip(columns["rank"], columns["step"], strict=True):
            self._steps.setdefault(rank, set()).add(step)
        for size, name in (("vpp", "chunk"), ("micro_batches", "micro_batch"), ("pp", "stage")):
            places = [place for place in columns[name] if place is not None]
            if places:
                self._sizes[size] = max(places) + 1


FORMAT = Format(
    name="megascan",
    doc="Traces of MegaScan (MegatronApp), joined over ranks: passes of interleaved pipelines.",
    version=3,
    tables=("ops",),
    begin=_FIRST,
    facts=_facts,
    parser=_Parser,
    rejects={
        "not_an_event": "The event lacks its name, process, iteration or time.",
        "no_begin": "The event ends what did not begin.",
        "second_trace": "The event is of another trace that was laid over this one.",
        "torn_event": "The event is not complete: the file was cut.",
        "broken_event": "The text is no JSON.",
    },
    irrelevant={
        "structure": "Brackets between the events.",
        "event": "Events that are no pass.",
        "unread": "The rest of a document that cannot be read.",
    },
    volume="document",
)
