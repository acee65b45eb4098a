"""Read the sources of a run into chunks of whole lines, in bounded memory, ahead of the parser.

Small sources share a chunk, large ones take several. A chunk is filled on an executor while the one
before is parsed, so that reading, decompressing and hashing cost the parser no time.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from codecs import BOM_UTF8
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import IO

import numpy as np

from tracelake.formats import Chunk, Span
from tracelake.formats.ledger import (
    BYTE_ORDER_MARK,
    CHANGED_WHILE_READ,
    EXPANDED_TOO_FAR,
    LINE_TOO_LONG,
    READ_ERROR,
    TEXT_LIMIT,
    TRUNCATED_COMPRESSION,
    Fault,
    Ledger,
)
from tracelake.inputs.sources import Opened, Read, Source
from tracelake.inputs.streams import DECODE_ERRORS, Codec, ExpandedTooFarError
from tracelake.kernels.numbers import line_ends

# A line longer than this is rejected; 16 MiB hold an operation with about 80,000 sub-operations.
CHUNK_BYTES = 16 << 20

_PIECE = 1 << 16
_NEWLINE = ord("\n")


class Buffer:
    """Memory that is filled repeatedly, seen as bytes, as a view and as an array."""

    def __init__(self, size: int) -> None:
        self.raw = bytearray(size)
        self.view = memoryview(self.raw)
        self.array = np.frombuffer(self.raw, dtype=np.uint8)
        self.ends = np.empty(max(size >> 6, 64), np.int64)


class _Reading:
    """An open source; `offset` is that of its next span."""

    def __init__(self, source: Source, stream: IO[bytes], codec: Codec | None) -> None:
        self.source = source
        self.stream = stream
        self.compressed = codec is not None
        self.found = Read(compression=codec.name if codec else None)
        self.hash = hashlib.sha256()
        self.ended = False
        self.offset = 0
        self.within_line = False  # the last span ended so


@dataclass(slots=True)
class _Filling:
    """The content of a buffer.

    Attributes:
        used: Bytes that the spans take; the beginning of a line follows them.
        filled: Bytes in all.
        weight: Weight of the bytes read.
        notes: Messages for the ledger, in order.
        last: Nothing remains to be read.
    """

    spans: list[tuple[Read, Span]] = field(default_factory=list)
    used: int = 0
    filled: int = 0
    weight: int = 0
    notes: list[Callable[[Ledger], None]] = field(default_factory=list)
    last: bool = False


class ChunkReader:
    """Reads sources in order; afterwards `found` has a record of each that could be opened.

    Args:
        sources: Taken one by one, on the executor; a source is read to its end before the next.
        cut_lines: Hand out a line that is longer than a chunk in pieces, instead of rejecting it.
    """

    def __init__(
        self, sources: Iterable[Source], ledger: Ledger, *, cut_lines: bool = False
    ) -> None:
        self.found: dict[int, Read] = {}
        self._sources = iter(sources)
        self._ledger = ledger
        self._cut_lines = cut_lines
        self._reading: _Reading | None = None
        self._opened: Opened | None = None

    def chunks(
        self, buffers: tuple[Buffer, Buffer], executor: Executor
    ) -> Generator[tuple[Chunk, int]]:
        """Yield chunks in order, each with the weight of the bytes read for it.

        Exactly one span of a source, its last, is marked as last. A chunk is valid until the next
        one is requested. While it is parsed, the executor fills the other buffer.
        """
        current, ahead = buffers
        try:
            chunk, filling = self._fill(current, 0)
            while not filling.last:
                rest = filling.filled - filling.used
                ahead.view[:rest] = current.view[filling.used : filling.filled]
                pending = executor.submit(self._fill, ahead, rest)
                try:
                    yield self._hand_out(chunk, filling)
                finally:  # the buffers are free again, even if the parser fails
                    chunk, filling = pending.result()
                current, ahead = ahead, current
            yield self._hand_out(chunk, filling)
        finally:
            self._shut()

    def _hand_out(self, chunk: Chunk, filling: _Filling) -> tuple[Chunk, int]:
        for note in filling.notes:
            note(self._ledger)
        return chunk, filling.weight

    # --- on the executor ------------------------------------------------------------------

    def _fill(self, buffer: Buffer, rest: int) -> tuple[Chunk, _Filling]:
        """Read until the buffer is full or no source remains; `rest` bytes are in it already."""
        filling = _Filling()
        start, filled = 0, rest
        while True:
            if self._reading is None:
                if filled >= len(buffer.raw) - 1:
                    break
                source = next(self._sources, None)
                if source is None:
                    filling.last = True
                    break
                count = source.read_whole(buffer.view[filled:-1])
                if count is not None:
                    self._add_whole(source, buffer, filled, filled + count, filling)
                    filled = filling.used = _line_ended(buffer, filled, filled + count)
                    continue
                self._reading = self._open(source, filling)
                if self._reading is None:
                    continue
                start = filled
            reading = self._reading
            assert reading is not None
            filled = self._read(reading, buffer, filled, filling)
            if reading.ended:
                self._add_read(reading, buffer, (start, filled), filling)
                filled = filling.used = _line_ended(
                    buffer, start, filled, within_line=reading.within_line
                )
                self._close(reading, filling)
            elif cut := buffer.raw.rfind(b"\n", start, filled) + 1:
                self._add_read(reading, buffer, (start, cut), filling)
                filling.used = cut
                break
            elif start > 0:
                break
            elif self._cut_lines:
                self._add_read(reading, buffer, (start, filled), filling)
                filling.used = filled
                break
            else:
                filled = self._skip_line(reading, buffer, filled, filling)
        filling.filled = filled
        return self._chunk(buffer, filling), filling

    def _add_whole(
        self, source: Source, buffer: Buffer, start: int, stop: int, filling: _Filling
    ) -> None:
        """Add a source that was read at once."""
        hashed = hashlib.sha256(buffer.view[start:stop]).hexdigest()
        found = self.found[source.source_id] = Read(stop - start, content_hash=hashed)
        _add_span(source, found, buffer, (start, stop), filling)
        filling.weight += stop - start

    def _open(self, source: Source, filling: _Filling) -> _Reading | None:
        try:
            opened = source.open()
            reading = _Reading(source, *opened.__enter__())
        except DECODE_ERRORS as error:
            filling.notes.append(_damage_note(source, error))
            return None
        self._opened = opened
        return reading

    def _shut(self) -> None:
        if self._opened is not None:
            self._opened.__exit__(None, None, None)
            self._opened = None

    def _read(self, reading: _Reading, buffer: Buffer, filled: int, filling: _Filling) -> int:
        """Read until one byte of the buffer is free or the source ends; return the bytes in it."""
        size = len(buffer.raw) - 1
        before = reading.found.bytes
        while filled < size and not reading.ended:
            stop = min(size, filled + _PIECE)
            try:
                count: int = reading.stream.readinto(buffer.view[filled:stop])  # type: ignore[attr-defined]
            except DECODE_ERRORS as error:
                filling.notes.append(_damage_note(reading.source, error))
                reading.stream = (
                    io.BytesIO()
                    if isinstance(error, ExpandedTooFarError)
                    else _salvaged(reading.source, reading.found.bytes)
                )
                continue
            reading.ended = count == 0
            reading.hash.update(buffer.view[filled : filled + count])
            reading.found.bytes += count
            filled += count
        if not reading.compressed:
            filling.weight += reading.found.bytes - before
        return filled

    @staticmethod
    def _add_read(
        reading: _Reading, buffer: Buffer, place: tuple[int, int], filling: _Filling
    ) -> None:
        """Add what was read of a source since its last span."""
        _add_span(
            reading.source,
            reading.found,
            buffer,
            place,
            filling,
            offset=reading.offset,
            last=reading.ended,
            compressed=reading.compressed,
        )
        reading.offset += place[1] - place[0]
        if place[1] > place[0]:
            reading.within_line = buffer.raw[place[1] - 1] != _NEWLINE

    def _close(self, reading: _Reading, filling: _Filling) -> None:
        self._shut()
        self._reading = None
        source = reading.source
        reading.found.content_hash = reading.hash.hexdigest()
        self.found[source.source_id] = reading.found
        if source.changed():
            filling.notes.append(lambda ledger: ledger.fault(source.source_id, CHANGED_WHILE_READ))
        if reading.compressed:
            filling.weight += source.weight

    def _skip_line(self, reading: _Reading, buffer: Buffer, filled: int, filling: _Filling) -> int:
        """Reject the line that fills the buffer; return the bytes after it in the buffer."""
        source_id, offset = reading.source.source_id, reading.offset
        line = reading.found.lines + 1
        raw = bytes(buffer.raw[:TEXT_LIMIT])

        def note(ledger: Ledger) -> None:
            ledger.reject(source_id, line, offset, "line_too_long", raw)
            ledger.fault(source_id, LINE_TOO_LONG, line=line, raw=raw)

        filling.notes.append(note)
        reading.found.lines += 1
        while not (cut := buffer.raw.find(b"\n", 0, filled) + 1) and not reading.ended:
            reading.offset += filled
            filled = self._read(reading, buffer, 0, filling)
        cut = cut or filled
        reading.offset += cut
        buffer.raw[: filled - cut] = buffer.raw[cut:filled]
        return filled - cut

    @staticmethod
    def _chunk(buffer: Buffer, filling: _Filling) -> Chunk:
        """Return the spans as a chunk; count their lines to number the next ones."""
        data = buffer.array[: filling.used]
        buffer.ends, count = line_ends(data, buffer.ends)
        ends = buffer.ends[:count]
        bounds = [span.start for _, span in filling.spans] + [filling.used]
        firsts = np.searchsorted(ends, bounds)
        for (found, _), lines in zip(filling.spans, np.diff(firsts).tolist(), strict=True):
            found.lines += lines
        return Chunk(data, ends, firsts[:-1], tuple(span for _, span in filling.spans))


def _add_span(
    source: Source,
    found: Read,
    buffer: Buffer,
    place: tuple[int, int],
    filling: _Filling,
    *,
    offset: int = 0,
    last: bool = True,
    compressed: bool = False,
) -> None:
    """Add lines of a source in the buffer."""
    start, stop = place
    source_id = source.source_id
    if offset == 0 and buffer.raw.startswith(BOM_UTF8, start, stop):
        start, offset = start + len(BOM_UTF8), len(BOM_UTF8)
        filling.notes.append(lambda ledger: ledger.fault(source_id, BYTE_ORDER_MARK, line=1))
    span = Span(source_id, start, stop, found.lines + 1, offset, last, compressed)
    filling.spans.append((found, span))


def _line_ended(buffer: Buffer, start: int, filled: int, *, within_line: bool = False) -> int:
    """Return the bytes in the buffer, after adding a missing line end at the end of a source.

    Args:
        within_line: The bytes from `start` on, perhaps none, end within a line.
    """
    if within_line or (filled > start and buffer.raw[filled - 1] != _NEWLINE):
        buffer.raw[filled] = _NEWLINE  # the next source begins a line of its own
        filled += 1
    return filled


def _damage_note(source: Source, error: Exception) -> Callable[[Ledger], None]:
    """Return the ledger's entry for an error."""
    system = isinstance(error, OSError) and error.errno is not None
    fault: Fault = READ_ERROR if system else TRUNCATED_COMPRESSION
    if isinstance(error, ExpandedTooFarError):
        fault = EXPANDED_TOO_FAR
    raw = str(error).encode()
    return lambda ledger: ledger.fault(source.source_id, fault, raw=raw)


def _salvaged(source: Source, skip: int) -> IO[bytes]:
    """Return what a damaged stream still gives after its first `skip` bytes, byte by byte."""
    saved = bytearray()
    with contextlib.suppress(*DECODE_ERRORS):
        opened = source.reopen()
        if opened is not None:
            with opened as (again, _):
                # The same error comes again, this time at the exact byte.
                while skip and (piece := again.read(min(skip, _PIECE))):
                    skip -= len(piece)
                # The file may have been replaced by one that does not fail.
                while len(saved) < CHUNK_BYTES and (byte := again.read(1)):
                    saved += byte
    return io.BytesIO(saved)
