"""Parse files whose lines are told apart by expressions: see `tracelake.formats.lines`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from tracelake.formats import Chunk, Run, RunFacts, Span
from tracelake.formats.expressions import Found, LineSlice, Matches, find_all, null_row, sliced
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
from tracelake.formats.many_lines import ManyLines
from tracelake.formats.readers import BadValueError, Reader
from tracelake.kernels.numbers import Longs
from tracelake.schema.tables import tables

_AT = "_at"
_TEXT = "text"


class LineParser:
    """The parser of the files of one run."""

    def __init__(self, fmt: LineFormat, run: Run, ledger: Ledger) -> None:
        self._run = run
        self._fmt = fmt
        self._reader: Reader | None = None
        self._found: list[RunFacts] = []  # of the files before
        self._kinds = fmt.lines
        self._expressions = fmt.expressions
        self._ledger = ledger
        self._source_id = -1
        self._carried: dict[int, pl.DataFrame] = {}  # by kind: what the last such line says
        self._ready: defaultdict[str, list[pa.RecordBatch]] = defaultdict(list)

    def feed(self, chunk: Chunk) -> None:
        """Read the lines of a chunk."""
        for span, ends in chunk.lines():
            if span.source_id != self._source_id:
                self._source_id, self._carried = span.source_id, {}
                if self._fmt.reader:
                    if self._reader:
                        self._found.append(self._reader.finish())
                    self._reader = self._fmt.reader(self._run.sources[span.source_id])
            self._read(chunk.data, span, ends)

    def drain(self) -> Mapping[str, Sequence[pa.RecordBatch]]:
        """Return the rows that are ready, by table."""
        ready, self._ready = self._ready, defaultdict(list)
        return ready

    def finish(self) -> RunFacts:
        """Return the facts of the run: what its reader says, of several files joined."""
        if self._reader is None:
            return RunFacts()
        return self._fmt.join([*self._found, self._reader.finish()])

    def _read(self, data: npt.NDArray[np.uint8], span: Span, ends: Longs) -> None:
        if ends.size and ends[-1] == span.stop and not span.compressed:
            start = int(ends[-2]) + 1 if ends.size > 1 else span.start
            raw = data[start : span.stop].tobytes()
            self._ledger.unfinished(span.source_id, span.line + ends.size - 1, raw)
            ends = ends[:-1]
        slices = list(sliced(data, span.start, ends))
        line, offset = span.line, span.offset
        every = find_all(slices, self._expressions, prefixed=self._fmt.prefixed)
        for lines, found in zip(slices, every, strict=True):
            self._take(lines, found, line, offset)
            line += lines.starts.size
            offset += lines.data.size + 1

    def _take(self, lines: LineSlice, found: Found, line: int, offset: int) -> None:
        """Count the lines of a slice and make its rows."""
        account = self._ledger.source(self._source_id)
        rejects = [(i, NOT_UTF8) for i in found.not_utf8.tolist()]
        rejects += [(i, UNKNOWN) for i in found.rest.tolist()]
        rejects += self._read_records(found, line)
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
            self._ledger.reject(self._source_id, line + i, offset + start, reason, raw)

    def _read_records(self, found: Found, line: int) -> list[tuple[int, str]]:
        """Make the rows of the reader's lines; return the lines that it rejects, with reasons."""
        if self._reader is None:
            return []
        account = self._ledger.source(self._source_id)
        at, texts = _records(self._kinds, found)
        rejects: list[tuple[int, str]] = []
        rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        many = ManyLines(self._reader, texts)
        for i, (place, text) in enumerate(zip(at, texts.to_list(), strict=True)):
            if many.takes(i):
                continue
            made = self._read_record(self._reader, text, line + place)
            if isinstance(made, str):
                rejects.append((place, made))
                continue
            account.row_lines += bool(made)
            account.context_lines += not made
            for table, row in made:
                rows[table].append({**row, "source_id": self._source_id, "line": line + place})
        batches: defaultdict[str, list[pa.RecordBatch]] = defaultdict(list)
        for table, found_rows in rows.items():
            schema = tables()[table].storage_schema
            batches[table].append(pa.RecordBatch.from_pylist(found_rows, schema))
        for table, lines, columns in many.taken():
            numbers = np.array([at[i] for i in lines]) + line
            columns |= {"source_id": np.full(len(lines), self._source_id), "line": numbers}
            batches[table].append(tables()[table].batch(columns))
            account.row_lines += len(lines)
        for table, some in batches.items():
            account.rows += sum(batch.num_rows for batch in some)
            self._ready[table] += [_by_line(some)] if len(some) > 1 else some
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


def _by_line(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of batches of a table in order of their lines."""
    (batch,) = pa.Table.from_batches(batches).sort_by("line").combine_chunks().to_batches()
    return batch


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
