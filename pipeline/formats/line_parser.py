"""Parse files whose lines are told apart by expressions: see `tracelake.formats.lines`."""

from __future__ import annotations

import dataclasses
import itertools
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from tracelake.base.packing import packed
from tracelake.formats import Chunk, Held, Run, RunFacts, Span
from tracelake.formats.expressions import (
    NO_LINES,
    SLICE_BYTES,
    Found,
    LineSlice,
    Matches,
    find_all,
    joined,
    null_row,
    sliced,
)
from tracelake.formats.ledger import Fault, Ledger
from tracelake.formats.lines import (
    BAD_VALUE,
    NOT_UTF8,
    UNKNOWN,
    Context,
    Irrelevant,
    Kind,
    LineFormat,
    Record,
    Reject,
    Row,
)
from tracelake.formats.many_lines import AlikeLines, ManyLines
from tracelake.formats.readers import BadValueError, Reader
from tracelake.formats.record_rows import RecordRows, make
from tracelake.kernels.numbers import Longs
from tracelake.schema.tables import tables

_AT = "_at"
_TEXT = "text"


@dataclass(frozen=True, slots=True)
class _Piece:
    """Holds lines of a file.

    Attributes:
        line: Number of the first in the file.
        offset: Of its first byte in the decompressed file.
    """

    lines: LineSlice
    source_id: int
    line: int
    offset: int

    def copied(self) -> _Piece:
        """Return the same with bytes of its own: those of a chunk change."""
        return dataclasses.replace(self, lines=self.lines._replace(data=self.lines.data.copy()))


@dataclass(frozen=True, slots=True)
class _Matched:
    """Holds what was found in a piece.

    Attributes:
        at: Numbers of the lines of the reader in the piece, and `texts` these.
        alike: The lines of readers in this and other pieces.
        first: Number of the first of `at` among them.
    """

    found: Found
    at: Sequence[int]
    texts: Sequence[str]
    alike: AlikeLines
    first: int


def prepare(parsers: Sequence[LineParser]) -> None:
    """Match the lines that parsers of one format wait with.

    To match the lines of a hundred small files takes little longer than those of one.
    """
    pieces = [piece for parser in parsers for piece in parser.waiting]
    matched = _matched(parsers[0].format, pieces)
    for parser in parsers:
        parser.matched = list(itertools.islice(matched, len(parser.waiting)))


def _matched(fmt: LineFormat, pieces: Iterable[_Piece]) -> Iterator[_Matched]:
    """Yield what was found in each piece; small ones are matched together."""
    groups = [*packed(pieces, (lambda piece: piece.lines.data.size, SLICE_BYTES))]
    slices = [joined([piece.lines for piece in group]) for group in groups]
    every = find_all(slices, fmt.expressions, prefixed=fmt.prefixed)
    for group, found in zip(groups, every, strict=True):
        at, texts = _records(fmt.lines, found)
        alike = AlikeLines(texts)
        stop, last = 0, 0
        for piece in group:
            begin, stop = stop, stop + piece.lines.starts.size
            first, last = last, bisect_left(at, stop, last)
            here = found if len(group) == 1 else found.between(begin, stop)
            own = [number - begin for number in at[first:last]]
            yield _Matched(here, own, texts[first:last].to_list(), alike, first)


class LineParser:
    """The parser of the files of one run.

    Attributes:
        waiting: Lines of a small run, which wait to be matched with those of others.
        matched: What was found in them, once that is done.
    """

    def __init__(self, fmt: LineFormat, run: Run, ledger: Ledger) -> None:
        self.format = fmt
        self.waiting: list[_Piece] = []
        self.matched: list[_Matched] = []
        self._run = run
        self._reader: Reader | None = None
        self._found: list[RunFacts] = []  # of the files before
        self._kinds = fmt.lines
        self._expressions = fmt.expressions
        self._ledger = ledger
        self._source_id = -1
        self._carried: dict[int, pl.DataFrame] = {}  # by kind: what the last such line says
        self._records: list[RecordRows] = []  # whose columns are not made yet
        # Of a table of which other rows are ready none can be held back.
        self._holds = run.together and not any(isinstance(kind, Row) for kind in fmt.lines)
        self._ready: defaultdict[str, list[pa.RecordBatch]] = defaultdict(list)

    def feed(self, chunk: Chunk) -> None:
        """Read the lines of a chunk, or keep those of a small run."""
        pieces = [
            piece for span, ends in chunk.lines() for piece in self._pieces(chunk, span, ends)
        ]
        if not self._run.together:
            self._read(pieces, _matched(self.format, pieces))
            return
        self.waiting += [piece.copied() for piece in pieces]
        if sum(piece.lines.data.size for piece in self.waiting) > SLICE_BYTES:
            self._read_waiting()

    def drain(self) -> Mapping[str, Sequence[pa.RecordBatch]]:
        """Return the rows that are ready, by table."""
        ready, self._ready = self._ready, defaultdict(list)
        if not self._holds:
            records, self._records = self._records, []
            for table, batch in make([records]).items():
                ready[table].append(batch)
        return ready

    def finish(self) -> RunFacts:
        """Return the facts of the run: what its reader says, of several files joined."""
        self._read_waiting()
        if self._reader is None:
            return RunFacts()
        facts = self.format.join([*self._found, self._reader.finish()])
        if not self._holds:
            return facts
        counts = sum((rows.counts for rows in self._records), Counter())
        return dataclasses.replace(facts, held=Held(counts, self._records, make))

    def _pieces(self, chunk: Chunk, span: Span, ends: Longs) -> Iterator[_Piece]:
        """Yield the lines of a span, at least one piece; one that was cut is no line."""
        if ends.size and ends[-1] == span.stop and not span.compressed:
            start = int(ends[-2]) + 1 if ends.size > 1 else span.start
            raw = chunk.data[start : span.stop].tobytes()
            self._ledger.unfinished(span.source_id, span.line + ends.size - 1, raw)
            ends = ends[:-1]
        line, offset = span.line, span.offset
        for lines in [*sliced(chunk.data, span.start, ends)] or [NO_LINES]:
            yield _Piece(lines, span.source_id, line, offset)
            line += lines.starts.size
            offset += lines.data.size + 1

    def _read_waiting(self) -> None:
        pieces, self.waiting = self.waiting, []
        matched, self.matched = self.matched, []
        self._read(pieces, matched or _matched(self.format, pieces))

    def _read(self, pieces: Sequence[_Piece], matched: Iterable[_Matched]) -> None:
        for piece, found in zip(pieces, matched, strict=True):
            if piece.source_id != self._source_id:
                self._begin(piece.source_id)
            self._take(piece, found)

    def _begin(self, source_id: int) -> None:
        """Begin a file."""
        self._source_id, self._carried = source_id, {}
        if self.format.reader:
            if self._reader:
                self._found.append(self._reader.finish())
            self._reader = self.format.reader(self._run.sources[source_id])

    def _take(self, piece: _Piece, matched: _Matched) -> None:
        """Count the lines of a piece and make its rows."""
        lines, found, line = piece.lines, matched.found, piece.line
        account = self._ledger.source(self._source_id)
        rejects = [(i, NOT_UTF8) for i in found.not_utf8.tolist()]
        rejects += [(i, UNKNOWN) for i in found.rest.tolist()]
        rejects += self._read_records(matched, line)
        contexts = list(self._contexts(found))
        frames: defaultdict[str, list[pl.DataFrame]] = defaultdict(list)
        for kind, matches in zip(self._kinds, found.matches, strict=True):
            rejects += [(i, BAD_VALUE) for i in matches.bad.tolist()]
            count = int(matches.at.size)
            match kind:
                case Row() if count:
                    frame, bad = _complete(kind, matches, contexts)
                    rejects += [(i, BAD_VALUE) for i in bad]
                    frames[kind.table].append(frame)
                    account.row_lines += frame.height
                case Context():
                    account.context_lines += count
                case Irrelevant():
                    account.pass_over(kind.kind, count)
                case Reject():
                    rejects += [(i, kind.reason) for i in matches.at.tolist()]
        for table, parts in frames.items():
            batch = _batch(table, parts, self._source_id, line)
            account.rows += batch.num_rows
            self._ready[table].append(batch)
        for i, reason in sorted(rejects):
            start = int(lines.starts[i])
            raw = lines.data[start : lines.stops[i]].tobytes()
            self._ledger.reject(self._source_id, line + i, piece.offset + start, reason, raw)

    def _read_records(self, matched: _Matched, line: int) -> list[tuple[int, str]]:
        """Make the rows of the reader's lines; return the lines that it rejects, with reasons."""
        if self._reader is None:
            return []
        account = self._ledger.source(self._source_id)
        rejects: list[tuple[int, str]] = []
        rows = RecordRows(self._source_id)
        numbers = np.array(matched.at, np.int64) + line
        many = ManyLines(self._reader, matched.alike, matched.first, numbers)
        stop = 0
        for i, place in enumerate(matched.at):
            if i < stop:
                continue
            if count := many.take(i):
                stop = i + count
                continue
            made = self._read_record(self._reader, matched.texts[i], line + place)
            if isinstance(made, str):
                rejects.append((place, made))
                continue
            account.row_lines += bool(made)
            account.context_lines += not made
            for table, row in made:
                own = {"source_id": self._source_id, "line": line + place}
                rows.alone[table].append({**row, **own})
        rows.taken.extend(many.taken)
        account.row_lines += sum(len(taken.lines) for taken in rows.taken)
        account.rows += sum(rows.counts.values())
        self._records.append(rows)
        return rejects

    def _read_record(
        self, reader: Reader, text: str, line: int
    ) -> list[tuple[str, Mapping[str, Any]]] | str:
        """Return the rows of a line, or the reason to reject it; its faults go to the ledger."""
        try:
            made = reader.read(text)
        except BadValueError:
            return BAD_VALUE
        if isinstance(made, str):
            return made
        rows = []
        for what, row in made:
            if isinstance(what, Fault):
                self._ledger.fault(self._source_id, what, line=line, raw=row["text"].encode())
            else:
                rows.append((what, row))
        return rows if all(tables()[table].holds(row) for table, row in rows) else BAD_VALUE

    def _contexts(self, found: Found) -> Iterator[tuple[Longs, pl.DataFrame]]:
        """Yield, for each kind of context with values, its lines and what holds from each on.

        The first is what the lines before said, at -1. After a line with a bad value nothing holds.
        """
        for number, (kind, matches) in enumerate(zip(self._kinds, found.matches, strict=True)):
            groups = self._expressions[number].groups
            if not isinstance(kind, Context) or not groups:
                continue
            before = self._carried[number] if number in self._carried else null_row(groups)
            at = np.concatenate([[-1], matches.at, matches.bad])
            own = [matches.values] if matches.at.size else []
            order = np.argsort(at)
            values = pl.concat([before, *own, before.clear(matches.bad.size)])[order]
            self._carried[number] = values[-1:]
            yield at[order], values


def _records(kinds: Sequence[Kind], found: Found) -> tuple[list[int], pl.Series]:
    """Return the lines of the reader with their numbers, in order."""
    some = [
        pl.DataFrame({_AT: matches.at, _TEXT: matches.values[_TEXT]})
        for kind, matches in zip(kinds, found.matches, strict=True)
        if isinstance(kind, Record) and matches.at.size
    ]
    if not some:
        return [], pl.Series(dtype=pl.String)
    lines = pl.concat(some).sort(_AT) if len(some) > 1 else some[0]
    return lines[_AT].to_list(), lines[_TEXT]


def _complete(
    kind: Row, matches: Matches, contexts: Sequence[tuple[Longs, pl.DataFrame]]
) -> tuple[pl.DataFrame, list[int]]:
    """Return rows with their lines and the values of the context, and the lines that lack one."""
    table = tables()[kind.table]
    stored = {column.name for column in table.stored}
    frame = matches.values.with_columns(pl.Series(_AT, matches.at))
    for at, values in contexts:
        added = [c for c in values.columns if c in stored and c not in frame.columns]
        if added:
            index = np.searchsorted(at, matches.at) - 1
            frame = frame.with_columns(values.select(added)[index])
    needed = [c for c in frame.columns if c in table.required and frame[c].null_count()]
    if not needed:
        return frame, []
    lacks = frame.select(pl.any_horizontal(pl.col(needed).is_null())).to_series()
    return frame.filter(~lacks), frame[_AT].filter(lacks).to_list()


def _batch(table: str, frames: Sequence[pl.DataFrame], source_id: int, line: int) -> pa.RecordBatch:
    """Return the rows of a slice as a batch of a table, in order of their lines."""
    frame = frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal").sort(_AT)
    columns = {c.name: c.to_arrow(compat_level=pl.CompatLevel.oldest()) for c in frame}
    columns |= {
        "source_id": np.full(frame.height, source_id, np.int32),
        "line": frame[_AT].to_numpy() + line,
    }
    return tables()[table].batch(columns)
