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
import numpy.typing as npt
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
from tracelake.formats.ledger import NOT_UTF8, UNFINISHED, UNFINISHED_LINE, Ledger, escape
from tracelake.formats.optimus import lines as log_lines
from tracelake.formats.optimus import steps as log_steps
from tracelake.formats.optimus.columns import Layers, layer_rows, step_rows
from tracelake.formats.optimus.lists import Owners
from tracelake.formats.optimus.records import names
from tracelake.formats.optimus.statements import Statements
from tracelake.formats.starts import stamp_of
from tracelake.schema.topology import resolve

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
    "unfinished": UNFINISHED_LINE,
}
_KINDS = tuple(_IRRELEVANT)
_REASONS = tuple(_REJECTS)

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
_SAID = re.compile(rb"> (GAS|GBS|MBS|TP|DP|PP|World size): \d")
_STAGES = re.compile(rb"stage2rank = \{\d")
_PROGRESS = re.compile(rb"\| epoch +\d+ \| +\d+/ *\d+ batches \|")


def _sniff(head: bytes) -> Claim:
    # A search for plain bytes, best a single one, excludes most other files.
    said = set(_SAID.findall(head)) if b">" in head and b"> " in head else set[bytes]()
    if len(said) > 1 or (b"{" in head and _STAGES.search(head)):
        return Claim.YES
    # A search from the end is faster, and most files have neither.
    speaks = head.rfind(b"forward time") >= 0 or head.rfind(b"layer[") >= 0
    if speaks and _RECORD.search(head):
        return Claim.YES
    progress = b"|" in head and b"| epoch" in head and _PROGRESS.search(head)
    return Claim.MAYBE if said or progress else Claim.NO


def _facts(path: str, head: bytes) -> FileFacts:
    del head
    base = PurePosixPath(path).name
    stem = re.sub(r"\.(txt|log|out)$", "", base)
    date = _STAMP.match(stem)
    stamp = stamp_of(date[1] + date[2]) if date else None
    plain = stem[date.end() if date and stamp else 0 :].removesuffix("_log").strip("_")
    topology = {_SIZE_KEYS[key]: int(value) for key, value in _SIZE.findall(stem)}
    sizes = {key: value for key, value in topology.items() if value > 0}
    return FileFacts(path, plain or base, stamp=stamp, topology=sizes)


class _Parser:
    """The parser of one log."""

    def __init__(self, run: Run, ledger: Ledger) -> None:
        self._run = run
        self._ledger = ledger
        self._buffers = log_lines.buffers(0, 0)
        self._names = names()
        self._layers = Layers()
        self._embed = -1  # code of the layer before layer 0
        self._statements = Statements()
        self._owners = Owners()
        self._closed = False  # a window has been resolved
        self._recent = log_steps.recent()
        self._ranks: set[int] = set()
        self._held = np.empty(0, np.uint8)  # position in the file of the first held piece
        self._held_size = 0
        self._ready: dict[str, list[pa.RecordBatch]] = {}

    def feed(self, chunk: Chunk) -> None:
        for block in chunk.blocks():
            self._feed(block)

    def _feed(self, block: Block) -> None:
        count = self._ledger.source(block.source_id)
        spare = 0 if block.last else WINDOW_PIECES
        found = self._buffers = log_lines.room(self._buffers, block.data.size, spare)
        log_lines.scan(block.data, block.line, block.offset, found, self._names)
        for kind, lines in zip(_KINDS, found.kinds.tolist(), strict=True):
            count.pass_over(kind, lines)
        self._name_layers(block)
        self._read_others(block, found.others[: found.counts[log_lines.OTHERS]])
        self._take_records(block, found.records[: found.counts[log_lines.RECORDS]])
        self._resolve(block)
        # One order of kinds, independent of the blocks.
        counts = [(kind, count.irrelevant.pop(kind)) for kind in _KINDS if kind in count.irrelevant]
        count.irrelevant.update(counts)

    def drain(self) -> Mapping[str, Sequence[pa.RecordBatch]]:
        ready, self._ready = self._ready, {}
        return ready

    def finish(self) -> RunFacts:
        said = self._statements
        sizes, _ = resolve(printed=said.topology, named=self._run.named, given=self._run.given)
        return RunFacts(
            topology=said.topology,
            ranks=frozenset(self._ranks) if self._owners.blocks else None,
            ranks_expected=sizes.get("pp") if self._owners.blocks else None,
            ended=said.closed and self._owners.complete,
            simulated=False,
            profiled=self._owners.blocks,
            model=said.model,
            params=said.params,
            attributes=said.attributes,
        )

    def _name_layers(self, block: Block) -> None:
        for code, start, end in self._names.new[: self._names.counts[0]].tolist():
            raw = block.data[start:end].tobytes()
            try:
                self._layers[code] = raw.decode()
            except UnicodeDecodeError:
                self._layers[code] = escape(raw)
                self._ledger.fault(block.source_id, NOT_UTF8, raw=raw)
            if raw == b"embed":
                self._embed = code

    def _read_others(self, block: Block, others: npt.NDArray[np.void]) -> None:
        count = self._ledger.source(block.source_id)
        for line, start, end, kind in others.tolist():
            text = block.data[start:end].tobytes()
            stated = self._statements.read(line, text)
            if kind == log_lines.RECORDED:
                continue
            if stated:
                count.context_lines += 1
                continue
            count.pass_over(_KINDS[kind])
            if kind == log_lines.UNFINISHED:
                self._ledger.fault(block.source_id, UNFINISHED, line=line, raw=text)
        if self._statements.stages is not None:
            self._owners.slots.stage_ranks(*self._statements.stages)

    def _take_records(self, block: Block, records: npt.NDArray[np.void]) -> None:
        if not records.size:
            return
        log_steps.exact_floats(block.data, records)
        copies = np.empty(records.size, np.int32)
        log_steps.number_copies(records, self._recent, copies)
        self._emit("train_steps", step_rows(block.source_id, records, copies), block)

    def _resolve(self, block: Block) -> None:
        """Assign complete windows to their blocks; at the end of the source, assign all rows."""
        count = self._buffers.counts[log_lines.PIECES]
        pieces, details = self._buffers.pieces[:count], self._buffers.details[:count]
        end = block.offset + block.data.size
        done = 0
        while done < pieces.size:
            size = log_steps.window_size(
                pieces[done:],
                details[done:],
                end,
                (WINDOW_PIECES, WINDOW_BYTES),
                last=block.last,
            )
            if size == 0:
                break
            whole = block.last and not self._closed and size == pieces.size
            window = slice(done, done + size)
            self._close(block, pieces[window], details[window], whole=whole)
            self._closed = True
            done += size
        self._hold(block, int(details["start"][done]) if done < pieces.size else end)
        log_lines.keep_from(self._buffers, done)

    def _hold(self, block: Block, start: int) -> None:
        """Copy the bytes from a place in the file on: the block is gone at the next call."""
        old, new = max(0, block.offset - start), block.data[max(0, start - block.offset) :]
        size = old + new.size
        last = self._held[self._held_size - old : self._held_size]
        if size > self._held.size:
            self._held = np.empty(2 * size, np.uint8)
        self._held[:old] = last
        self._held[old:size] = new
        self._held_size = size

    def _close(
        self,
        block: Block,
        window: npt.NDArray[np.void],
        details: npt.NDArray[np.void],
        *,
        whole: bool,
    ) -> None:
        """Emit the rows of a window and count its lines."""
        owners = self._owners.resolve(window, self._embed, whole=whole)
        rows, ranks = layer_rows(block.source_id, window, details, owners, self._layers)
        self._ranks |= ranks
        self._emit("layer_times", rows, block)
        rejects = np.empty(window.size, np.int64)
        with_rows, context, rejected = log_steps.tally_lines(window, owners, rejects)
        count = self._ledger.source(block.source_id)
        count.row_lines += with_rows
        count.context_lines += context
        for i in rejects[:rejected].tolist():
            start, line_number = int(details["start"][i]), int(window["line"][i])
            raw = self._text(block, start, start + int(details["size"][i]))
            reason = _REASONS[window["reason"][i]]
            self._ledger.reject(block.source_id, line_number, start, reason, raw)

    def _text(self, block: Block, start: int, end: int) -> bytes:
        """Return a line of this block or of the held bytes before it, without its end."""
        if start >= block.offset:
            raw = block.data[start - block.offset : end - block.offset].tobytes()
        else:
            at = block.offset - self._held_size
            raw = self._held[start - at : end - at].tobytes()
        return raw.removesuffix(b"\r")

    def _emit(self, table: str, rows: pa.RecordBatch, block: Block) -> None:
        self._ready.setdefault(table, []).append(rows)
        self._ledger.source(block.source_id).rows += rows.num_rows


FORMAT = Format(
    name="optimus",
    doc="OptimusPrime pipeline-training output: per-layer forward times and training progress.",
    version=2,
    tables=("layer_times", "train_steps"),
    sniff=_sniff,
    facts=_facts,
    group=one_run_per_file,
    parser=_Parser,
    rejects=_REJECTS,
    irrelevant=_IRRELEVANT,
    faults=(UNFINISHED,),
    volume="large",
)
