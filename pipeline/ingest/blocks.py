"""Cuts a stream of bytes into blocks of whole lines, in bounded memory, ahead of the parser."""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from typing import IO

import numpy as np

from pipeline.faults import (
    BYTE_ORDER_MARK,
    LINE_TOO_LONG,
    READ_ERROR,
    TEXT_LIMIT,
    TRUNCATED_COMPRESSION,
    Ledger,
)
from pipeline.formats import Block
from pipeline.ingest.streams import DECODE_ERRORS

# A line longer than this is rejected; 16 MiB hold an operation with some 80,000 sub-operations.
BLOCK_BYTES = 16 << 20

_PIECE = 1 << 16
_BOM = b"\xef\xbb\xbf"


class Buffer:
    """Memory that is filled again and again, seen as bytes, as a view and as an array."""

    def __init__(self, size: int) -> None:
        self.raw = bytearray(size)
        self.view = memoryview(self.raw)
        self.array = np.frombuffer(self.raw, dtype=np.uint8)


class SourceReader:
    """Reads one source to its end; afterwards `bytes`, `lines` and `content_hash` are final.

    Args:
        stream: Decompressed bytes.
        reopen: Opens the stream again, to save what a damaged one still holds.
        compressed: Whether damage is the compression's fault.
    """

    def __init__(
        self,
        stream: IO[bytes],
        source_id: int,
        ledger: Ledger,
        *,
        compressed: bool = False,
        reopen: Callable[[], AbstractContextManager[IO[bytes]]] | None = None,
    ) -> None:
        self.bytes = 0
        self.lines = 0
        self._stream = stream
        self._source_id = source_id
        self._ledger = ledger
        self._compressed = compressed
        self._reopen = reopen
        self._hash = hashlib.sha256()
        self._ended = False

    @property
    def content_hash(self) -> str:
        """SHA-256 of all decompressed bytes, hex."""
        return self._hash.hexdigest()

    def blocks(self, buffers: tuple[Buffer, Buffer], executor: Executor) -> Iterator[Block]:
        """Whole lines in order; exactly one block, the last, says `last`.

        A block is valid until the next one is asked for. While it is parsed, the executor fills the
        other buffer.
        """
        current, ahead = buffers
        filled = self._fill(current, 0)
        start = self._skip_mark(current, filled)
        line, offset = 1, start
        while not self._ended:
            cut = current.raw.rfind(b"\n", start, filled) + 1
            if cut == 0:
                self._reject_line(current.raw[start : start + TEXT_LIMIT], line, offset)
                filled = self._skip_line(current)
                line, offset, start = line + 1, self.bytes - filled, 0
                continue
            rest = filled - cut
            ahead.view[:rest] = current.view[cut:filled]
            pending = executor.submit(self._fill, ahead, rest)
            yield Block(self._source_id, current.array[start:cut], line, offset, last=False)
            lines = current.raw.count(b"\n", start, cut)
            self.lines += lines
            line, offset, start = line + lines, offset + cut - start, 0
            filled = pending.result()
            current, ahead = ahead, current
        yield Block(self._source_id, current.array[start:filled], line, offset, last=True)
        unended = filled > start and current.raw[filled - 1] != ord("\n")
        self.lines += current.raw.count(b"\n", start, filled) + unended

    def _fill(self, buffer: Buffer, filled: int) -> int:
        """Reads until the buffer is full or the stream ends; returns how much it holds."""
        size = len(buffer.raw)
        while filled < size and not self._ended:
            stop = min(size, filled + _PIECE)
            try:
                count: int = self._stream.readinto(buffer.view[filled:stop])  # type: ignore[attr-defined]
            except DECODE_ERRORS as error:
                self._stream = self._salvage(error)
                continue
            self._ended = count == 0
            self._hash.update(buffer.view[filled : filled + count])
            self.bytes += count
            filled += count
        return filled

    def _salvage(self, error: Exception) -> IO[bytes]:
        """What a damaged stream still gives behind the bytes read so far, byte by byte."""
        damaged = self._compressed or not isinstance(error, OSError)
        fault = TRUNCATED_COMPRESSION if damaged else READ_ERROR
        self._ledger.fault(self._source_id, fault, raw=str(error).encode())
        saved = bytearray()
        if self._reopen is not None:
            # The same damage is met again, this time at the exact byte.
            with contextlib.suppress(*DECODE_ERRORS), self._reopen() as again:
                skip = self.bytes
                while skip:
                    skip -= len(again.read(min(skip, _PIECE)))
                while byte := again.read(1):
                    saved += byte
        return io.BytesIO(saved)

    def _skip_mark(self, buffer: Buffer, filled: int) -> int:
        if not buffer.raw.startswith(_BOM, 0, filled):
            return 0
        self._ledger.fault(self._source_id, BYTE_ORDER_MARK, line=1)
        return len(_BOM)

    def _reject_line(self, head: bytearray, line: int, offset: int) -> None:
        raw = bytes(head)
        self._ledger.reject(self._source_id, line, offset, "line_too_long", raw)
        self._ledger.fault(self._source_id, LINE_TOO_LONG, line=line, raw=raw)
        self.lines += 1

    def _skip_line(self, buffer: Buffer) -> int:
        """Reads past the next line end; returns how much of what follows the buffer holds."""
        while not self._ended:
            filled = self._fill(buffer, 0)
            cut = buffer.raw.find(b"\n", 0, filled) + 1
            if cut:
                rest = filled - cut
                buffer.raw[:rest] = buffer.raw[cut:filled]
                return self._fill(buffer, rest)
        return 0
