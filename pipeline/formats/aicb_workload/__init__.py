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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa

from tracelake.formats import (
    Block,
    Chunk,
    Claim,
    FileFacts,
    Format,
    Run,
    RunFacts,
    one_run_per_file,
)
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
from tracelake.formats.aicb_workload.passes import pass_columns
from tracelake.formats.aicb_workload.repeats import Repeat, find_repeat
from tracelake.formats.aicb_workload.rows import Records
from tracelake.formats.aicb_workload.words import FIRST_LAYER, PASSES, Words, fields_of
from tracelake.formats.ledger import NOT_UTF8, UNFINISHED, UNFINISHED_LINE, Fault, Ledger, Severity
from tracelake.kernels.arrow import is_utf8, text_of
from tracelake.schema.tables import tables

HELD_ROWS = 1 << 17

PROFILED_NS = 1000

ROW_COUNT_MISMATCH = Fault(
    "row_count_mismatch",
    Severity.DATA_LOSS,
    "The plan has fewer or more rows than its second line declares; all are stored, but the "
    "simulator would read another plan. Generate it again.",
)

_BOM = b"\xef\xbb\xbf"
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
_CHUNK_ROWS = 1 << 14
_CHUNK_REJECTS = 1 << 10


def _sniff(head: bytes) -> Claim:
    """Claim a plan by its policy and count; with a damaged header, by its count and a row."""
    text = head.removeprefix(_BOM)
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
        self._words = Words()
        self._progress = np.zeros(scan.PROGRESS_SLOTS, np.int64)
        self._declared: int | None = None
        self._held: list[Records] | None = None
        self.header = Header("", {}, {})
        self.profiled = False

    @property
    def ended(self) -> bool | None:
        """Tell whether it has as many rows as declared."""
        return None if self._declared is None else self._account.row_lines == self._declared

    def feed(self, block: Block, buffers: scan.Buffers) -> Iterator[pa.RecordBatch]:
        """Read a block; return the rows that are ready."""
        progress = self._progress
        progress[scan.POSITION], progress[scan.LINE] = self._read_top(block)
        fields = scan.FIELDS + (self.header.policy == CUSTOMIZED)
        while progress[scan.POSITION] < block.data.size:
            if self._held is None and self._words.crowded():
                self._words = Words()
            scan.scan_rows(block.data, fields, progress, buffers, self._words.tokens)
            for start, end, line, reason in buffers.rejects[: progress[scan.REJECTS]].tolist():
                raw = block.data[start:end].tobytes()
                cut = end == block.data.size and not block.compressed
                if cut and reason == scan.TOO_FEW_FIELDS:
                    self._account.pass_over("unfinished")
                    self._ledger.fault(self._source_id, UNFINISHED, line=line, raw=raw)
                else:
                    self._reject(block, start, line, _REASONS[reason], raw)
            yield from self._accept(buffers.rows[: progress[scan.ROWS]])
            self._words.reserve(int(progress[scan.STARVED]))
        if block.last:
            yield from self._end()

    def _read_top(self, block: Block) -> tuple[int, int]:
        """Read header and count if the block has them; return position and line of the rest."""
        position, line = 0, block.line
        text = block.data.tobytes() if line <= 2 else b""
        while line <= 2 and position < len(text):
            end = text.find(b"\n", position)
            raw = text[position : len(text) if end < 0 else end]
            if line == 1:
                understood = self._read_header(raw)
            else:
                self._declared = read_count(text_of(raw))
                understood = self._declared is not None
            if understood:
                self._account.context_lines += 1
            else:
                reason = "bad_header" if line == 1 else "bad_count"
                self._reject(block, position, line, reason, raw)
            position += len(raw) + 1
            line += 1
        return position, line

    def _read_header(self, raw: bytes) -> bool:
        header = read_header(text_of(raw))
        if header is None:
            return False
        self.header = header
        if header.sizes.get("micro_batches", 1) > 1:
            self._held = []
        if not is_utf8(raw):
            self._ledger.fault(self._source_id, NOT_UTF8, line=1, raw=raw)
        return True

    def _reject(self, block: Block, position: int, line: int, reason: str, raw: bytes) -> None:
        text = raw.removesuffix(b"\r")
        self._ledger.reject(self._source_id, line, block.offset + position, reason, text)

    def _accept(self, rows: Records) -> Iterator[pa.RecordBatch]:
        """Count rows; hold them or return them."""
        self._account.row_lines += len(rows)
        self._account.rows += len(rows) * len(PASSES)
        self.profiled = self.profiled or bool((rows["compute"] >= PROFILED_NS).any())
        bad = self._words.not_utf8(rows)
        if len(bad):
            self._ledger.fault(self._source_id, NOT_UTF8, line=int(bad["line"][0]), count=len(bad))
        if self._held is None:
            if len(rows):
                yield self._batch(rows, None)
            return
        self._held.append(rows.copy())
        if self._account.row_lines > HELD_ROWS:
            yield from self._release(None)

    def _release(self, repeat: Repeat | None) -> Iterator[pa.RecordBatch]:
        """Return the held rows, and hold no more."""
        held, self._held = self._held or [], None
        for rows in held:
            yield self._batch(rows, repeat)

    def _end(self) -> Iterator[pa.RecordBatch]:
        if self._held:
            count = self.header.sizes["micro_batches"]
            yield from self._release(find_repeat(np.concatenate(self._held), FIRST_LAYER, count))
        self._account.pass_over("blank", int(self._progress[scan.BLANKS]))
        if self.ended is False:
            counts = f"{self._declared} rows declared, {self._account.row_lines} read"
            self._ledger.fault(self._source_id, ROW_COUNT_MISMATCH, line=2, raw=counts.encode())

    def _batch(self, rows: Records, repeat: Repeat | None) -> pa.RecordBatch:
        """Return the passes of rows as a batch of `workload_passes`."""
        columns = pass_columns(rows, self._source_id, self._words, repeat, self._describe)
        return tables()["workload_passes"].batch(columns)

    def _describe(self, tokens: list[int]) -> dict[str, str]:
        """Return a dependency other than -1, and the fields after the twelfth."""
        dependency, extension = ("" if t < 0 else self._words.texts()[t] for t in tokens)
        found = {"dependency": dependency} if dependency else {}
        for column, text in enumerate(fields_of(extension), scan.FIELDS + 1):
            own = column == scan.FIELDS + 1 and self.header.policy == CUSTOMIZED
            found["policy" if own else f"column_{column}"] = text
        return found


class _Parser:
    """Reads the plans of a run, nearly always one."""

    def __init__(self, run: Run, ledger: Ledger) -> None:
        self._run = run
        self._ledger = ledger
        self._plans: dict[int, _Plan] = {}
        self._buffers = scan.new_buffers(_CHUNK_ROWS, _CHUNK_REJECTS)
        self._ready: list[pa.RecordBatch] = []

    def feed(self, chunk: Chunk) -> None:
        """Read a chunk."""
        for block in chunk.blocks():
            if block.source_id not in self._plans:
                self._plans[block.source_id] = _Plan(block.source_id, self._ledger)
            plan = self._plans[block.source_id]
            self._ready.extend(plan.feed(block, self._buffers))

    def drain(self) -> Mapping[str, Sequence[pa.RecordBatch]]:
        """Return rows ready so far."""
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
    version=2,
    tables=("workload_passes",),
    sniff=_sniff,
    facts=_facts,
    group=one_run_per_file,
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
        "unfinished": UNFINISHED_LINE,
    },
    faults=(ROW_COUNT_MISMATCH, UNFINISHED),
    volume="large",
)
