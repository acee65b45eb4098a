"""Parse workload plans of AICB, SimAI and ASTRA-sim 1.0: one layer per line.

Line 1 names a policy and the sizes of the job, line 2 the number of rows, then one row per layer:
name, dependency, and per pass (forward, input_grad, weight_grad) compute time in ns, communication
word and bytes, and last the update time. Fields are separated by any blanks. What a word means is
fixed by the simulator that reads these files (SimAI, `Workload::initialize_workload`): without a
suffix a collective runs over the tensor-parallel group in the forward and input_grad columns and
over the data-parallel group in the weight_grad column; `_EP` and `_DP_EP` name another; every other
word transfers nothing.

Rows are numbered by line, line 3 being row 1; blank lines do not count, rejected ones do. The
simulator reads tokens and accepts a row broken over lines; here a row is one line.

A training plan lists its layers once per micro-batch, and an `embedding_layer` begins each. Where
the header's ga is 2 or more and exactly ga rows have that name, at equal distance and with the same
layers between them, `micro_batch` is the number of the block and `layer_index` that of the row in
it, both from 0. Rows before the first block and after the last (which is as long as the others)
have neither, nor has any row of another plan, or of one of more than `HELD_ROWS` rows: whether the
list repeats is known at its end, and until then the rows are held.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa

from tracelake.formats import Chunk, Claim, FileFacts, Format, Run, RunFacts, Span
from tracelake.formats.aicb_workload import rows as scan
from tracelake.formats.aicb_workload.header import (
    CUSTOMIZED,
    POLICIES,
    Header,
    name_model,
    name_sizes,
    read_count,
    read_header,
)
from tracelake.formats.aicb_workload.passes import PASSES, Repeat, Rows, find_repeat, pass_rows
from tracelake.formats.aicb_workload.rows import read_lines
from tracelake.formats.ledger import NOT_UTF8, UNFINISHED, UNFINISHED_LINE, Fault, Ledger, Severity
from tracelake.kernels.arrow import is_utf8, text_of
from tracelake.kernels.numbers import Bytes, Longs

HELD_ROWS = 1 << 17

PROFILED_NS = 1000

ROW_COUNT_MISMATCH = Fault(
    "row_count_mismatch",
    Severity.INCOMPLETE,
    "The plan has fewer or more rows than its second line declares; all are stored, but the "
    "simulator would read another plan. Generate it again.",
)

_ROW_LINE = re.compile(rb"\s*\S+\s+-?\d+(\s+\d+\s+\S+\s+\d+){3}\s+\d+(\s|$)")

# A quick test that excludes nearly all other files.
_FIRST_WORD = re.compile(rb"[^\S\n]*\S+")
_COUNTED = re.compile(rb"[^\n]*\n\s*\+?[0-9]")

_POLICIES = {policy.encode(): policy for policy in POLICIES}

_REASONS = {
    scan.TOO_FEW_FIELDS: "too_few_fields",
    scan.SEVERAL_ROWS: "several_rows",
    scan.BAD_NUMBER: "bad_number",
}
_FIRST_LAYER = "embedding_layer"
_PIECE_LINES = 1 << 15


def _sniff(head: bytes) -> Claim:
    """Claim a plan by its policy and count; with a damaged header, by its count and a row."""
    text = head.removeprefix(BOM_UTF8)
    word = _FIRST_WORD.match(text)
    policy = _POLICIES.get(word[0].lstrip(), "") if word else ""
    if not (policy or _COUNTED.match(text)):
        return Claim.NO
    _, second, third = (text.split(b"\n", 3) + [b""] * 3)[:3]
    counted = read_count(text_of(second)) is not None
    if policy and counted:
        return Claim.YES
    return Claim.MAYBE if "_" in policy or (counted and _ROW_LINE.match(third)) else Claim.NO


def _facts(path: str, head: bytes) -> FileFacts:
    """Return the facts of the name; plans have no rank and no date."""
    del head
    name = PurePosixPath(path).name
    stem = name[:-4] if name.lower().endswith(".txt") else name
    return FileFacts(path, stem or name, topology=name_sizes(stem))


class _Plan:
    """One source: the facts of its first lines, and rows that become batches."""

    def __init__(self, source_id: int, ledger: Ledger) -> None:
        self._source_id = source_id
        self._ledger = ledger
        self._account = ledger.source(source_id)
        self._declared: int | None = None
        self._blanks = 0
        self._held: list[Rows] | None = None
        self.header = Header("", {}, {})
        self.profiled = False

    @property
    def ended(self) -> bool | None:
        """Tell whether it has as many rows as declared."""
        return None if self._declared is None else self._account.row_lines == self._declared

    def feed(self, data: Bytes, span: Span, ends: Longs) -> Iterator[pa.RecordBatch]:
        """Read a span; return the rows that are ready.

        Args:
            ends: Index of the newline behind each of its lines.
        """
        starts = np.concatenate([[span.start], ends + 1])
        starts[-1] = min(starts[-1], span.stop)
        top = min(max(0, 3 - span.line), ends.size)
        for k in range(top):
            self._read_top(span, span.line + k, int(starts[k]), _line(data, starts, k))
        for first in range(top, ends.size, _PIECE_LINES):
            yield from self._read(data, span, starts[first : first + _PIECE_LINES + 1], first)
        if span.last:
            yield from self._end()

    def _read_top(self, span: Span, line: int, start: int, raw: bytes) -> None:
        """Read the header or the count."""
        if line == 2:
            self._declared = read_count(text_of(raw))
            understood = self._declared is not None
        else:
            header = read_header(text_of(raw))
            understood = header is not None
            self.header = header or self.header
            if self.header.sizes.get("micro_batches", 1) > 1:
                self._held = []
            if header and not is_utf8(raw):
                self._ledger.fault(self._source_id, NOT_UTF8, line=1, raw=raw)
        if understood:
            self._account.context_lines += 1
        else:
            self._reject(span, line, start, "bad_header" if line == 1 else "bad_count", raw)

    def _reject(self, span: Span, line: int, start: int, reason: str, raw: bytes) -> None:
        offset = span.offset + start - span.start
        self._ledger.reject(self._source_id, line, offset, reason, raw.removesuffix(b"\r"))

    def _read(self, data: Bytes, span: Span, starts: Longs, first: int) -> Iterator[pa.RecordBatch]:
        """Read the lines of layers; `first` is the number of their first in the span."""
        lines = read_lines(data, starts, customized=self.header.policy == CUSTOMIZED)
        number = np.arange(span.line + first, span.line + first + lines.kind.size)
        for k in np.flatnonzero(lines.kind > scan.BLANK).tolist():
            kind, raw = int(lines.kind[k]), _line(data, starts, k)
            cut = starts[k] + len(raw) == span.stop and not span.compressed
            if cut and kind == scan.TOO_FEW_FIELDS:
                self._ledger.unfinished(self._source_id, int(number[k]), raw)
            else:
                self._reject(span, int(number[k]), int(starts[k]), _REASONS[kind], raw)
        blanks = self._blanks + np.cumsum(lines.kind == scan.BLANK)
        self._blanks = int(blanks[-1])
        if lines.which.size:
            there = lines.kind == scan.LAYER
            row = number - 2 - blanks
            yield from self._accept(Rows(number[there], row[there], lines.which, lines.layers))

    def _accept(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Count rows; hold them or return them."""
        self._account.row_lines += rows.line.size
        self._account.rows += rows.line.size * len(PASSES)
        self.profiled = self.profiled or bool((rows.layers.compute_ns >= PROFILED_NS).any())
        foreign = rows.line[~rows.layers.utf8[rows.which]]
        if foreign.size:
            self._ledger.fault(self._source_id, NOT_UTF8, line=int(foreign[0]), count=foreign.size)
        if self._held is None:
            yield pass_rows(rows, self._source_id, None)
            return
        self._held.append(rows)
        if self._account.row_lines > HELD_ROWS:
            yield from self._release(None)

    def _release(self, repeat: Repeat | None) -> Iterator[pa.RecordBatch]:
        """Return the held rows, and hold no more."""
        held, self._held = self._held or [], None
        for rows in held:
            yield pass_rows(rows, self._source_id, repeat)

    def _end(self) -> Iterator[pa.RecordBatch]:
        if self._held:
            codes: defaultdict[str, int] = defaultdict(lambda: len(codes), {_FIRST_LAYER: 0})
            names = []
            for rows in self._held:
                own = np.array([codes[name] for name in rows.layers.name.dictionary.to_pylist()])
                names.append(own[rows.layers.name.indices.to_numpy()[rows.which]])
            numbers = np.concatenate([rows.row for rows in self._held])
            count = self.header.sizes["micro_batches"]
            yield from self._release(find_repeat(numbers, np.concatenate(names), count))
        self._account.pass_over("blank", self._blanks)
        if self.ended is False:
            counts = f"{self._declared} rows declared, {self._account.row_lines} read"
            self._ledger.fault(self._source_id, ROW_COUNT_MISMATCH, line=2, raw=counts.encode())


def _line(data: Bytes, starts: Longs, number: int) -> bytes:
    """Return a line without its newline."""
    return data[starts[number] : starts[number + 1]].tobytes().removesuffix(b"\n")


class _Parser:
    """Reads the plans of a run, nearly always one."""

    def __init__(self, run: Run, ledger: Ledger) -> None:
        self._run = run
        self._ledger = ledger
        self._plans: dict[int, _Plan] = {}
        self._ready: list[pa.RecordBatch] = []

    def feed(self, chunk: Chunk) -> None:
        for span, ends in chunk.lines():
            if span.source_id not in self._plans:
                self._plans[span.source_id] = _Plan(span.source_id, self._ledger)
            plan = self._plans[span.source_id]
            self._ready.extend(plan.feed(chunk.data, span, ends))

    def drain(self) -> Mapping[str, Sequence[pa.RecordBatch]]:
        ready, self._ready = self._ready, []
        return {"workload_passes": ready}

    def finish(self) -> RunFacts:
        """Return sizes and attributes of the headers; those of the first plan take precedence."""
        plans = [plan for _, plan in sorted(self._plans.items(), reverse=True)]
        ends = [plan.ended for plan in plans]
        return RunFacts(
            topology={key: size for p in plans for key, size in p.header.sizes.items()},
            ended=None if None in ends or not ends else all(ends),
            profiled=any(plan.profiled for plan in plans),
            model=name_model(self._run.sources[0].stem),
            attributes={key: text for p in plans for key, text in p.header.attributes.items()},
        )


FORMAT = Format(
    name="aicb_workload",
    doc="Workload plans of AICB, SimAI and ASTRA-sim: a layer per line.",
    version=4,
    tables=("workload_passes",),
    sniff=_sniff,
    facts=_facts,
    parser=_Parser,
    rejects={
        "bad_header": "Line 1 begins with no known policy.",
        "bad_count": "Line 2 does not begin with a number of rows.",
        "too_few_fields": "A row has fewer than 12 fields (13 under HYBRID_CUSTOMIZED); "
        "a row that is broken over lines is rejected line by line.",
        "several_rows": "A line has 24 fields or more: two rows have lost the line end between.",
        "bad_number": "A time, a size or the dependency is not a whole number, or is too large.",
    },
    irrelevant={
        "blank": "Lines without text between or behind the rows.",
        UNFINISHED.name: UNFINISHED_LINE,
    },
    faults=(ROW_COUNT_MISMATCH, UNFINISHED),
    volume="large",
)
