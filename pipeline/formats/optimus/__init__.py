"""Parse standard output of OptimusPrime pipeline training, all ranks in one stream.

The ranks write at once: text and newline are separate writes, so a line can hold the pieces of
several ranks, followed by empty lines. The beginning of a line decides what it is: a block header
(`[rank:R stage:S] ... forward time ... step N`), a layer row (`layer[...`), a progress record
(`| epoch ...`), a statement of the configuration, or irrelevant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa

from tracelake.formats import Block, Chunk, Claim, FileFacts, Format, Run, RunFacts
from tracelake.formats.ledger import (
    NOT_UTF8,
    TEXT_LIMIT,
    UNFINISHED,
    UNFINISHED_LINE,
    Fault,
    Ledger,
    Severity,
    escape,
)
from tracelake.formats.optimus import scan
from tracelake.formats.optimus.lists import Owners
from tracelake.formats.optimus.rows import Layers, Steps, layer_rows
from tracelake.formats.optimus.statements import Statements
from tracelake.formats.starts import stamp_of
from tracelake.kernels.arrow import is_utf8
from tracelake.kernels.numbers import Longs
from tracelake.kernels.tokens import TokenTable

# Limits of rows that are held until it is known what their ranks print elsewhere: pieces, and
# bytes of the file.
WINDOW_PIECES = 1 << 16
WINDOW_BYTES = 8 << 20

_REJECTS = {
    "bad_header": "A block header (`[rank:`, `forward time`) without rank, stage or step.",
    "bad_layer": "A layer row (`layer[`) that lacks a field, or whose name is invalid.",
    "bad_progress": "A progress record (`| epoch`) that lacks a field.",
    "bad_number": "A number that is invalid, too large, or finer than a nanosecond.",
    "no_header": "A layer row that no open block expects.",
    "ambiguous_rank": "A layer row that fits two blocks, or one with a broken header.",
    "unexpected_layer": "A layer row that no open block's rank prints in other steps.",
    "rank_not_in_stage": "A block header whose rank is not in its stage according to stage2rank.",
}
_IRRELEVANT = {
    "blank": "Empty: most are newlines of lines that ranks wrote over each other.",
    "launcher": "Message of the launcher.",
    "nccl": "Warning of torch or NCCL.",
    "fx_graph": "Dump of the model's graph and how it was split.",
    "other": "Anything else: it says nothing about time.",
    UNFINISHED.name: UNFINISHED_LINE,
}
_KINDS = tuple(_IRRELEVANT)
_REASONS = tuple(_REJECTS)

ROWS_MISSING = Fault(
    "rows_missing",
    Severity.INCOMPLETE,
    "The log has ended, and not every rank has all its layer rows in every step: lines were lost or"
    " torn. The rows that are there are stored.",
)

_STAMP = re.compile(r"^(\d{8})_?(\d{6})(?=_|$)")
_SIZE = re.compile(r"(?:^|_)(TP|DP|PP|MBS|GBS)(\d{1,9})(?=_|$)")
_SIZE_KEYS = {
    "TP": "tp",
    "DP": "dp",
    "PP": "pp",
    "MBS": "micro_batch_size",
    "GBS": "global_batch_size",
}
_RECORD = re.compile(
    rb"\[rank:\d+ stage:\d+\][^\n]*forward time|layer\[[^\]\n]+\]: (?:total|compute)=\d"
)
# Two expressions: each begins with plain bytes, which is ten times as fast as one of both.
_SETTING = re.compile(rb"> (GAS|GBS|MBS|TP|DP|PP|World size): \d")
_STAGES = re.compile(rb"stage2rank = \{\d")
_PROGRESS = re.compile(rb"\| epoch +\d+ \| +\d+/ *\d+ batches \|")


def _sniff(head: bytes) -> Claim:
    # A search for plain bytes, best a single one, excludes most other files.
    settings = set(_SETTING.findall(head)) if b">" in head and b"> " in head else set[bytes]()
    if len(settings) > 1 or (b"{" in head and _STAGES.search(head)):
        return Claim.YES
    # A search from the end is faster, and most files have neither.
    speaks = head.rfind(b"forward time") >= 0 or head.rfind(b"layer[") >= 0
    if speaks and _RECORD.search(head):
        return Claim.YES
    progress = b"|" in head and b"| epoch" in head and _PROGRESS.search(head)
    return Claim.MAYBE if settings or progress else Claim.NO


def _facts(path: str, head: bytes) -> FileFacts:
    del head
    base = PurePosixPath(path).name
    stem = re.sub(r"\.(txt|log|out)$", "", base)
    date = _STAMP.match(stem)
    stamp = stamp_of(f"{date[1]}T{date[2]}") if date else None
    plain = stem[date.end() if date and stamp else 0 :].removesuffix("_log").strip("_")
    topology = {_SIZE_KEYS[key]: int(value) for key, value in _SIZE.findall(stem)}
    sizes = {key: value for key, value in topology.items() if value > 0}
    return FileFacts(path, plain or base, stamp=stamp, topology=sizes)


class _Parser:
    """The parser of one log."""

    def __init__(self, run: Run, ledger: Ledger) -> None:
        self._run = run
        self._ledger = ledger
        self._count = ledger.source(0)
        self._found = scan.space(0, 0)
        self._held = bytearray()  # of the file, from the line of the first piece on
        self._names = TokenTable((b"embed",))
        self._layers = Layers({scan.EMBED: "embed"})
        self._statements = Statements()
        self._owners = Owners()
        self._steps = Steps()
        self._closed = False  # a window has been resolved
        self._ranks: set[int] = set()
        self._ready: dict[str, list[pa.RecordBatch]] = {}

    def feed(self, chunk: Chunk) -> None:
        for block in chunk.blocks():
            found = self._found = scan.with_space(self._found, block.data.size)
            self._names.reserve(min(block.data.size, scan.NAMES * scan.NAME_BYTES))
            scan.scan(block.data, block.line, block.offset, found, self._names.tokens)
            pieces, records, others = found.counts.tolist()
            for kind, lines in zip(_KINDS, found.kinds.tolist(), strict=True):
                self._count.pass_over(kind, lines)
            self._name_layers()
            self._read_others(block, found.others[:, :others])
            if records:
                read = found.records[:, :records].copy(), found.floats[:, :records].copy()
                self._emit("train_steps", self._steps.rows(block.data, *read))
            self._resolve(block, found.pieces[:, :pieces])

    def drain(self) -> Mapping[str, Sequence[pa.RecordBatch]]:
        ready, self._ready = self._ready, {}
        return ready

    def finish(self) -> RunFacts:
        stated, complete = self._statements, self._owners.complete
        sizes = self._run.sizes(stated.topology)
        if stated.closed and not complete:
            self._ledger.fault(
                0, ROWS_MISSING, raw=b"not all ranks have all layer rows of each step"
            )
        return RunFacts(
            topology=stated.topology,
            ranks=frozenset(self._ranks) if self._owners.blocks else None,
            ranks_expected=sizes.get("pp") if self._owners.blocks else None,
            ended=stated.closed and complete,
            simulated=False,
            profiled=self._owners.blocks,
            model=stated.model,
            params=stated.params,
            attributes=stated.attributes,
        )

    def _name_layers(self) -> None:
        for token in range(len(self._layers), len(self._names)):
            raw = self._names.raw(token)
            good = is_utf8(raw)
            self._layers[scan.NAMED + token] = raw.decode() if good else escape(raw)
            if not good:
                self._ledger.fault(0, NOT_UTF8, raw=raw)

    def _read_others(self, block: Block, others: Longs) -> None:
        for line, start, end, kind in others.T.tolist():
            text = block.data[start:end].tobytes()
            stated = self._statements.read(line, text)
            if kind == scan.RECORDED:
                continue
            if stated:
                self._count.context_lines += 1
            elif kind == scan.UNFINISHED:
                self._ledger.unfinished(0, line, text)
            else:
                self._count.pass_over(_KINDS[kind])
        self._owners.stages = self._statements.stages

    def _resolve(self, block: Block, pieces: Longs) -> None:
        """Assign complete windows to their blocks; at the end of the source, assign all rows."""
        end = block.offset + block.data.size
        count = pieces.shape[1]
        while size := _window_size(pieces, end, last=block.last):
            whole = block.last and not self._closed and size == count
            self._close(block, pieces[:, :size], whole=whole)
            self._closed = True
            pieces = pieces[:, size:]
        start = int(pieces[scan.START, 0]) if pieces.size else end
        for row, held in zip(self._found.pieces, pieces, strict=True):
            row[: held.size] = held
        self._found.counts[scan.PIECES] = pieces.shape[1]
        del self._held[: len(self._held) - max(0, block.offset - start)]
        self._held.extend(block.data[max(0, start - block.offset) :].data)

    def _close(self, block: Block, window: Longs, *, whole: bool) -> None:
        """Emit the rows of a window and count its lines."""
        self._owners.resolve(window, whole=whole)
        rows = layer_rows(window, self._layers)
        self._ranks.update(rows["rank"].unique().to_pylist())
        self._emit("layer_times", rows)
        bad = np.flatnonzero(window[scan.FATE] >= 0)
        # Of the pieces of a line a bad one decides, else a row.
        level = (window[scan.KIND] != scan.HEADER).view(np.int8)
        level[bad] = 2
        lines = np.flatnonzero(np.diff(window[scan.LINE], prepend=0))
        levels = np.bincount(np.maximum.reduceat(level, lines), minlength=3).tolist()
        self._count.context_lines += levels[0]
        self._count.row_lines += levels[1]
        _, first = np.unique(window[scan.LINE, bad], return_index=True)
        for piece in bad[first].tolist():
            line, start, fate = window[[scan.LINE, scan.START, scan.FATE], piece].tolist()
            text = self._text(block, start)
            self._ledger.reject(0, line, start, _REASONS[fate], text)

    def _text(self, block: Block, start: int) -> bytes:
        """Return a line of this block or of the held bytes before it, as far as it is stored."""
        at = start - block.offset
        text, at = (block.data, at) if at >= 0 else (self._held, at + len(self._held))
        return bytes(text[at : at + TEXT_LIMIT + 1]).partition(b"\n")[0].removesuffix(b"\r")

    def _emit(self, table: str, rows: pa.RecordBatch) -> None:
        self._ready.setdefault(table, []).append(rows)
        self._count.rows += rows.num_rows


def _window_size(pieces: Longs, end: int, *, last: bool) -> int:
    """Return pieces of the next complete window; 0 while the file may still add to it.

    The content of a window depends on the file alone, not on its blocks. It ends before a header,
    but not between one and the next without rows, else before a line.

    Args:
        end: Bytes of the file so far.
    """
    if not pieces.size:
        return 0
    starts = pieces[scan.START, :WINDOW_PIECES]
    limit = int(np.searchsorted(starts, starts[0] + WINDOW_BYTES, "right"))
    if limit == pieces.shape[1] and end - starts[0] <= WINDOW_BYTES:
        return limit if last else 0
    header = pieces[scan.KIND] == scan.HEADER
    lines = 1 + np.flatnonzero(np.diff(pieces[scan.LINE]))
    inside = lines[lines < limit]
    blocks = inside[header[inside] & ~header[inside - 1]]
    ends = blocks if blocks.size else inside if inside.size else [*lines[:1], pieces.shape[1]][:1]
    return int(ends[-1])


FORMAT = Format(
    name="optimus",
    doc="OptimusPrime pipeline-training output: per-layer forward times and training progress.",
    version=4,
    tables=("layer_times", "train_steps"),
    sniff=_sniff,
    facts=_facts,
    parser=_Parser,
    rejects=_REJECTS,
    irrelevant=_IRRELEVANT,
    faults=(ROWS_MISSING, UNFINISHED),
    volume="large",
)
