"""Read a JSON document object by object, from blocks cut anywhere, and account for its lines."""

from __future__ import annotations

import json
import re
from typing import Protocol

import numpy as np

from tracelake.formats import Block
from tracelake.formats.kineto import scan
from tracelake.formats.ledger import TEXT_LIMIT, Ledger
from tracelake.kernels.numbers import Bytes, Longs

# A longer object is rejected: no event is as long, and a missing quote would hold the rest.
LONGEST = 16 << 20

DECODER = json.JSONDecoder(parse_float=str, parse_constant=str, strict=False)
"""Leaves fractions as text, so that times are exact."""

_EVENTS = "traceEvents"
_BETWEEN = re.compile(r"[\s,]*")
_COLON = re.compile(r"\s*:\s*")
# Versions of PyTorch before 2026 write so the description of a group that has none.
_NO_VALUE, _NULL = b'": ,', b'":0,'
_FRAME = re.compile(r'\{\s*"ph":\s*"X",\s*"cat":\s*"python_function"')
_NEXT_EVENT = re.compile(r"(?<=\n)[ \t]*\{|\{\s*\"(?:ph|cat|name)\"\s*:|(?<=\n)[ \t]{0,2}\]")
# What may become the next event when more is read, and how far from the end it may begin.
_PERHAPS_NEXT = re.compile(r"\n[ \t]*\Z|\{\s*(?:\"\w{0,4}\"?\s*)?\Z")
_PERHAPS_BYTES = 4096
_WORD_BYTES = 16  # no word or escape of JSON is as long


_KINDS = {scan.STRUCTURE: "structure", scan.UNREAD: "unread", scan.EVENT: "event"}


class _MoreError(Exception):
    """The object goes on in the next block."""


class _BrokenError(Exception):
    """The text is no JSON."""


class Events(Protocol):
    """Takes what a document has."""

    def scan(self, data: Bytes, at: int, end: int, base: int, place: Longs) -> int:
        """Take plain events; return where the next one begins that has to be decoded."""

    def take_event(self, event: object, line: int) -> int | str:
        """Take an event; return what its lines are, or why it is rejected."""

    def take_member(self, key: str, value: object) -> None:
        """Take another member of the document."""


class Document:
    """Hands over the events and the other members of one document while it is fed.

    Plain events are read as bytes, by a kernel. The others are decoded as latin-1, so that places
    in the text are bytes; `decoded` decodes a string. Fractions stay text, so that times are exact.

    Attributes:
        ended: The document was read to its closing bracket.
    """

    def __init__(self, source_id: int, ledger: Ledger, events: Events) -> None:
        self.ended = False
        self._source_id = source_id
        self._ledger = ledger
        self._events = events
        self._step = Document._start  # what is read next; not bound: that would be a cycle
        self._listed = False  # the document is the list of events alone
        self._data: Bytes = np.zeros(scan.SPARE, np.uint8)
        self._text = ""
        self._solid = 0  # length without the blanks at the end
        self._at = 0
        self._last = False  # nothing follows the text
        self._lacks_values = False  # some members have none
        self._base: int | None = None  # offset of the text in the file
        self._place = scan.new_place()
        self._reject = ("", "")

    def feed(self, block: Block) -> None:
        """Read a block."""
        if self._base is None:
            self._base = int(block.offset)
            self._place[scan.LINE_OFFSET] = block.offset
        self._append(block.data)
        self._last = block.last
        self._read()
        if block.last:
            self._advance(len(self._text), scan.STRUCTURE)
            if self._place[scan.LINE_OFFSET] < self._base + self._at:
                self._close(int(self._place[scan.LEVEL]))
            self._report()

    def _append(self, more: Bytes) -> None:
        """Put bytes behind those that are not read yet."""
        assert self._base is not None
        rest = len(self._text) - self._at
        size = rest + more.size
        data = self._data
        if size + scan.SPARE > data.size:
            data = np.zeros(2 * rest + more.size + scan.SPARE, np.uint8)
        data[:rest] = self._data[self._at : len(self._text)]
        data[rest:size] = more
        self._data = data
        self._set_text(size)
        self._solid = len(self._text.rstrip())
        self._base += self._at
        self._at = 0

    def _set_text(self, size: int) -> None:
        """Decode the data; members without a value become 0."""
        raw = self._data[:size].tobytes()
        if self._lacks_values:
            raw = raw.replace(_NO_VALUE, _NULL)
            self._data[:size] = np.frombuffer(raw, np.uint8)
        self._text = raw.decode("latin-1")

    def _read(self) -> None:
        while True:
            if self._step == Document._event:
                self._scan()
            # The search for the next event needs the beginning of its line.
            seeks = self._step == Document._seek
            between = None if seeks else _BETWEEN.match(self._text, self._at)
            if between and between.end() > self._at:
                self._advance(between.end(), scan.STRUCTURE)
            if self._at == len(self._text):
                return
            try:
                self._step(self)
            except _MoreError:
                if not self._last and len(self._text) - self._at <= LONGEST:
                    return
                self._break("torn_event" if self._last else "broken_event")
            except _BrokenError:
                if self._reject_end() is None:
                    return
                self._break("broken_event")

    def _scan(self) -> None:
        """Read the plain events that come next."""
        assert self._base is not None
        end = len(self._text)
        self._at = self._events.scan(self._data, self._at, end, self._base, self._place)

    def _start(self) -> None:
        if self._text[self._at] == "[":
            self._advance(self._at + 1, scan.STRUCTURE)
            self._step, self._listed = Document._event, True
            return
        if self._text[self._at] != "{":
            raise _BrokenError
        self._advance(self._at + 1, scan.CONTEXT)
        self._step = Document._member

    def _member(self) -> None:
        if self._text[self._at] == "}":
            self._advance(self._at + 1, scan.STRUCTURE)
            self._step, self.ended = Document._pass, True
            return
        key, end = self._decode(self._at)
        colon = _COLON.match(self._text, end)
        if not isinstance(key, str) or (colon is None and end < self._solid):
            raise _BrokenError
        if colon is None or colon.end() >= self._solid:
            raise _MoreError
        if key == _EVENTS and self._text[colon.end()] == "[":
            self._advance(colon.end() + 1, scan.STRUCTURE)
            self._step = Document._event
            return
        value, end = self._decode(colon.end())
        self._events.take_member(key, value)
        self._advance(end, scan.CONTEXT)

    def _event(self) -> None:
        if self._text[self._at] == "]":
            self._advance(self._at + 1, scan.STRUCTURE)
            self._step = Document._pass if self._listed else Document._member
            self.ended |= self._listed
            return
        event, end = self._decode(self._at)
        level = self._events.take_event(event, int(self._place[scan.LINE]))
        if isinstance(level, str):
            if self._reject_end() is None:
                raise _MoreError
            self._mark(level)
            level = scan.UNREAD
        self._advance(end, level)

    def _seek(self) -> None:
        """Look for the next event after a broken one."""
        found = _NEXT_EVENT.search(self._text, self._at)
        if found:
            self._step = Document._event
        elif not self._last:
            near = max(self._at, len(self._text) - _PERHAPS_BYTES)
            found = _PERHAPS_NEXT.search(self._text, near)
        self._advance(found.start() if found else len(self._text), scan.UNREAD)
        if self._step == Document._seek and found:
            raise _MoreError

    def _pass(self) -> None:
        self._advance(len(self._text), scan.UNREAD)

    def _decode(self, at: int) -> tuple[object, int]:
        text = self._text
        try:
            value, end = DECODER.raw_decode(text, at)
        except json.JSONDecodeError as error:
            if not self._lacks_values and text.startswith('": ,', error.pos - 3):
                self._lacks_values = True
                self._set_text(len(text))
                return self._decode(at)
            unclear = not self._last and len(text) - error.pos < _WORD_BYTES
            unended = error.msg.startswith("Unterminated string")
            if unclear or unended or error.pos >= self._solid:
                raise _MoreError from error
            raise _BrokenError from error
        except (ValueError, RecursionError) as error:  # a number or a nesting beyond all bounds
            raise _BrokenError from error
        if end == len(text) and not self._last and text[end - 1] not in '"}]':
            raise _MoreError  # more digits may follow
        return value, end

    def _reject_end(self) -> int | None:
        """Return where the text of a reject that begins here ends; None if that is not read yet."""
        end = self._text.find("\n", self._at, self._at + TEXT_LIMIT)
        if end >= 0:
            return end
        whole = self._last or len(self._text) - self._at >= TEXT_LIMIT
        return self._at + TEXT_LIMIT if whole else None

    def _break(self, reason: str) -> None:
        """Reject what is here; go on with the next event, or not at all outside the events."""
        # Frames of Python have names that PyTorch does not escape; they are not read anyway.
        if not (self._step == Document._event and _FRAME.match(self._text, self._at)):
            self._mark(reason)
        self._advance(self._at + 1, scan.UNREAD)
        self._step = Document._seek if self._step == Document._event else Document._pass

    def _mark(self, reason: str) -> None:
        """Reject the line that begins here, or goes on here."""
        if self._place[scan.LEVEL] != scan.REJECT:
            self._place[scan.LEVEL] = scan.REJECT
            self._reject = (reason, self._text[self._at : self._reject_end()])

    def _advance(self, end: int, level: int) -> None:
        """Move on; the lines between are of this level."""
        assert self._base is not None
        place = self._place
        lines = self._text.count("\n", self._at, end)
        if lines:
            self._close(max(int(place[scan.LEVEL]), level))
            place[scan.COUNTS + level] += lines - 1
            place[scan.LINE] += lines
            place[scan.LINE_OFFSET] = self._base + self._text.rfind("\n", self._at, end) + 1
            place[scan.LEVEL] = scan.STRUCTURE if self._text[end - 1] == "\n" else level
        elif level > place[scan.LEVEL]:
            place[scan.LEVEL] = level
        self._at = end

    def _close(self, level: int) -> None:
        if level == scan.REJECT:
            reason, text = self._reject
            raw = text.rstrip("\r").encode("latin-1")
            line, offset = self._place[scan.LINE : scan.LINE_OFFSET + 1].tolist()
            self._ledger.reject(self._source_id, line, offset, reason, raw)
        else:
            self._place[scan.COUNTS + level] += 1

    def _report(self) -> None:
        """Tell the ledger what the lines were."""
        count, counts = self._ledger.source(self._source_id), self._place[scan.COUNTS :].tolist()
        count.row_lines += counts[scan.ROW]
        count.context_lines += counts[scan.CONTEXT]
        for level, kind in _KINDS.items():
            count.pass_over(kind, counts[level])


def decoded(value: object) -> str | None:
    """Return a string of the document as text; None if it is no string."""
    if not isinstance(value, str):
        return None
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:  # one of U+0080 to U+00FF, written as an escape
        return value
    except UnicodeEncodeError:  # others, written as escapes
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
