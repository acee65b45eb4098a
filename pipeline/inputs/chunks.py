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
from tracelake.inputs.sources import Read, Source
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
        filled: Bytes in all.
        used: Bytes that the spans take; the beginning of a line follows them.
        weight: Weight of the bytes read.
        notes: Messages for the ledger, in order.
        last: Nothing remains to be read.
    """

    buffer: Buffer
    filled: int
    used: int = 0
    spans: list[tuple[Read, Span]] = field(default_factory=list)
    weight: int = 0
    notes: list[Callable[[Ledger], None]] = field(default_factory=list)
    last: bool = False

    def add_span(
        self,
        source_id: int,
        found: Read,
        start: int,
        stop: int,
        *,
        offset: int = 0,
        last: bool = True,
        compressed: bool = False,
    ) -> None:
        """Add lines of a source in the buffer."""
        self.used = stop
        if offset == 0 and self.buffer.raw.startswith(BOM_UTF8, start, stop):
            start, offset = start + len(BOM_UTF8), len(BOM_UTF8)
            self.notes.append(lambda ledger: ledger.fault(source_id, BYTE_ORDER_MARK, line=1))
        span = Span(source_id, start, stop, found.lines + 1, offset, last, compressed)
        self.spans.append((found, span))

    def end_line(self, start: int, *, within_line: bool = False) -> None:
        """Add a missing line end at the end of a source.

        Args:
            within_line: The bytes from `start` on, perhaps none, end within a line.
        """
        raw = self.buffer.raw
        if within_line or (self.filled > start and raw[self.filled - 1] != _NEWLINE):
            raw[self.filled] = _NEWLINE  # the next source begins a line of its own
            self.filled += 1
        self.used = self.filled


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
        self._opened = contextlib.ExitStack()  # the source that is being read

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
            self._opened.close()

    def _hand_out(self, chunk: Chunk, filling: _Filling) -> tuple[Chunk, int]:
        for note in filling.notes:
            note(self._ledger)
        return chunk, filling.weight

    # --- on the executor ------------------------------------------------------------------

    def _fill(self, buffer: Buffer, rest: int) -> tuple[Chunk, _Filling]:
        """Read until the buffer is full or no source remains; `rest` bytes are in it already."""
        filling = _Filling(buffer, filled=rest)
        start = 0
        while True:
            if self._reading is None:
                if filling.filled >= len(buffer.raw) - 1:
                    break
                source = next(self._sources, None)
                if source is None:
                    filling.last = True
                    break
                count = source.read_whole(buffer.view[filling.filled : -1])
                if count is not None:
                    self._add_whole(source, count, filling)
                    continue
                self._reading = self._open(source, filling)
                if self._reading is None:
                    continue
                start = filling.filled
            reading = self._reading
            assert reading is not None
            self._read(reading, filling)
            if reading.ended:
                self._add_read(reading, start, filling.filled, filling)
                filling.end_line(start, within_line=reading.within_line)
                self._close(reading, filling)
            elif cut := buffer.raw.rfind(b"\n", start, filling.filled) + 1:
                self._add_read(reading, start, cut, filling)
                break
            elif start > 0:
                break
            elif self._cut_lines:
                self._add_read(reading, start, filling.filled, filling)
                break
            else:
                self._skip_line(reading, filling)
        return self._chunk(filling), filling

    def _add_whole(self, source: Source, count: int, filling: _Filling) -> None:
        """Add a source that was read at once."""
        start, stop = filling.filled, filling.filled + count
        hashed = hashlib.sha256(filling.buffer.view[start:stop]).hexdigest()
        found = self.found[source.source_id] = Read(count, content_hash=hashed)
        filling.add_span(source.source_id, found, start, stop)
        filling.weight += count
        filling.filled = stop
        filling.end_line(start)

    def _open(self, source: Source, filling: _Filling) -> _Reading | None:
        try:
            return _Reading(source, *self._opened.enter_context(source.open()))
        except DECODE_ERRORS as error:
            filling.notes.append(_damage_note(source, error))
            return None

    def _read(self, reading: _Reading, filling: _Filling) -> None:
        """Read until one byte of the buffer is free or the source ends."""
        view = filling.buffer.view[:-1]
        before = reading.found.bytes
        while filling.filled < len(view) and not reading.ended:
            piece = view[filling.filled : filling.filled + _PIECE]
            try:
                count: int = reading.stream.readinto(piece)  # type: ignore[attr-defined]
            except DECODE_ERRORS as error:
                filling.notes.append(_damage_note(reading.source, error))
                reading.stream = (
                    io.BytesIO()
                    if isinstance(error, ExpandedTooFarError)
                    else _salvaged(reading.source, reading.found.bytes)
                )
                continue
            reading.ended = count == 0
            reading.hash.update(piece[:count])
            reading.found.bytes += count
            filling.filled += count
        if not reading.compressed:
            filling.weight += reading.found.bytes - before

    @staticmethod
    def _add_read(reading: _Reading, start: int, stop: int, filling: _Filling) -> None:
        """Add what was read of a source since its last span."""
        filling.add_span(
            reading.source.source_id,
            reading.found,
            start,
            stop,
            offset=reading.offset,
            last=reading.ended,
            compressed=reading.compressed,
        )
        reading.offset += stop - start
        if stop > start:
            reading.within_line = filling.buffer.raw[stop - 1] != _NEWLINE

    def _close(self, reading: _Reading, filling: _Filling) -> None:
        self._opened.close()
        self._reading = None
        source = reading.source
        reading.found.content_hash = reading.hash.hexdigest()
        self.found[source.source_id] = reading.found
        if source.changed():
            filling.notes.append(lambda ledger: ledger.fault(source.source_id, CHANGED_WHILE_READ))
        if reading.compressed:
            filling.weight += source.weight

    def _skip_line(self, reading: _Reading, filling: _Filling) -> None:
        """Reject the line that fills the buffer, and keep what follows it."""
        source_id, offset = reading.source.source_id, reading.offset
        line, content = reading.found.lines + 1, filling.buffer.raw
        raw = bytes(content[:TEXT_LIMIT])

        def note(ledger: Ledger) -> None:
            ledger.reject(source_id, line, offset, "line_too_long", raw)
            ledger.fault(source_id, LINE_TOO_LONG, line=line, raw=raw)

        filling.notes.append(note)
        reading.found.lines += 1
        while not (cut := content.find(b"\n", 0, filling.filled) + 1) and not reading.ended:
            reading.offset += filling.filled
            filling.filled = 0
            self._read(reading, filling)
        cut = cut or filling.filled
        reading.offset += cut
        content[: filling.filled - cut] = content[cut : filling.filled]
        filling.filled -= cut

    @staticmethod
    def _chunk(filling: _Filling) -> Chunk:
        """Return the spans as a chunk; count their lines to number the next ones."""
        buffer = filling.buffer
        data = buffer.array[: filling.used]
        buffer.ends, count = line_ends(data, buffer.ends)
        ends = buffer.ends[:count]
        bounds = [span.start for _, span in filling.spans] + [filling.used]
        firsts = np.searchsorted(ends, bounds)
        for (found, _), lines in zip(filling.spans, np.diff(firsts).tolist(), strict=True):
            found.lines += lines
        return Chunk(data, ends, firsts[:-1], tuple(span for _, span in filling.spans))


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
