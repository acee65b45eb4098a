"""Read a JSON document object by object, from blocks of whole lines, and account for its lines."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable

from tracelake.formats import Block
from tracelake.formats.ledger import TEXT_LIMIT, Ledger

# A longer object is rejected: no event is as long, and a missing quote would hold the rest.
LONGEST = 16 << 20

_EVENTS = "traceEvents"
_BETWEEN = re.compile(r"[\s,]*")
_COLON = re.compile(r"\s*:\s*")
_NEXT_EVENT = re.compile(r"(?m)^[ \t]*\{|\{\s*\"(?:ph|cat|name)\"\s*:|^[ \t]{0,2}\]")


class Level(enum.IntEnum):
    """What a piece of text is; of the pieces on one line the highest decides."""

    STRUCTURE = 0
    UNREAD = 1
    EVENT = 2
    CONTEXT = 3
    ROW = 4
    REJECT = 5


# Plain numbers, because they are compared with every event.
_STRUCTURE, _REJECT = int(Level.STRUCTURE), int(Level.REJECT)
_KINDS = {Level.STRUCTURE: "structure", Level.UNREAD: "unread", Level.EVENT: "event"}


class _State(enum.Enum):
    START = enum.auto()
    MEMBERS = enum.auto()
    EVENTS = enum.auto()
    SEEK = enum.auto()
    END = enum.auto()
    LOST = enum.auto()


class _MoreError(Exception):
    """The object goes on in the next block."""


class _BrokenError(Exception):
    """The text is no JSON."""


class Document:
    """Hands over the events and the other members of one document while it is fed.

    Text is decoded as latin-1, so that places in it are bytes; `text_of` decodes a string.
    Fractions stay text, so that times are exact.

    Attributes:
        ended: The document was read to its closing bracket.
    """

    def __init__(
        self,
        source_id: int,
        ledger: Ledger,
        take_event: Callable[[object, int], Level | str],
        take_member: Callable[[str, object], None],
    ) -> None:
        self.ended = False
        self._source_id = source_id
        self._ledger = ledger
        self._take_event = take_event
        self._take_member = take_member
        self._decoder = json.JSONDecoder(parse_float=str, parse_constant=str, strict=False)
        self._state = _State.START
        self._listed = False  # the document is the list of events alone
        self._text = ""
        self._solid = 0  # length without the blanks at the end
        self._at = 0
        self._base = 0  # offset of the text in the file
        self._line = 1
        self._line_offset = 0
        self._level = _STRUCTURE
        self._counts = [0] * len(Level)
        self._reject = ("", "")

    def feed(self, block: Block) -> None:
        """Read a block."""
        if block.data.size and block.offset != self._base + len(self._text):
            self._skip_to(block)
        rest = self._text
        self._text = rest + block.data.tobytes().decode("latin-1")
        self._solid = len(self._text.rstrip())
        self._read(last=block.last)
        if block.last:
            self._advance(len(self._text), Level.STRUCTURE)
            if self._line_offset < self._base + self._at:
                self._close(self._level)
            self._report()
        self._text = self._text[self._at :]
        self._base += self._at
        self._at = 0

    def _skip_to(self, block: Block) -> None:
        """Go on after a line that the reader left out."""
        if self._text:
            self._break("broken_event")
            self._advance(len(self._text), Level.UNREAD)
        self._base, self._text, self._at = block.offset, "", 0
        self._line, self._line_offset = block.line, block.offset

    def _read(self, *, last: bool) -> None:
        steps = {
            _State.START.value: self._start,
            _State.MEMBERS.value: self._member,
            _State.EVENTS.value: self._event,
            _State.SEEK.value: self._seek,
            _State.END.value: self._pass,
            _State.LOST.value: self._pass,
        }
        while True:
            # The search for the next event needs the beginning of its line.
            seeks = self._state is _State.SEEK
            between = None if seeks else _BETWEEN.match(self._text, self._at)
            if between and between.end() > self._at:
                self._advance(between.end(), Level.STRUCTURE)
            if self._at == len(self._text):
                return
            try:
                steps[self._state.value]()
            except _MoreError:
                if not last and len(self._text) - self._at <= LONGEST:
                    return
                self._break("torn_event" if last else "broken_event")
            except _BrokenError:
                self._break("broken_event")

    def _start(self) -> None:
        if self._text[self._at] == "[":
            self._advance(self._at + 1, Level.STRUCTURE)
            self._state, self._listed = _State.EVENTS, True
            return
        if self._text[self._at] != "{":
            raise _BrokenError
        self._advance(self._at + 1, Level.CONTEXT)
        self._state = _State.MEMBERS

    def _member(self) -> None:
        if self._text[self._at] == "}":
            self._advance(self._at + 1, Level.STRUCTURE)
            self._state, self.ended = _State.END, True
            return
        key, end = self._decode(self._at)
        colon = _COLON.match(self._text, end)
        if not isinstance(key, str) or (colon is None and end < self._solid):
            raise _BrokenError
        if colon is None or colon.end() >= self._solid:
            raise _MoreError
        if key == _EVENTS and self._text[colon.end()] == "[":
            self._advance(colon.end() + 1, Level.STRUCTURE)
            self._state = _State.EVENTS
            return
        value, end = self._decode(colon.end())
        self._take_member(key, value)
        self._advance(end, Level.CONTEXT)

    def _event(self) -> None:
        if self._text[self._at] == "]":
            self._advance(self._at + 1, Level.STRUCTURE)
            self._state = _State.END if self._listed else _State.MEMBERS
            self.ended |= self._listed
            return
        event, end = self._decode(self._at)
        level = self._take_event(event, self._line)
        if isinstance(level, str):
            self._mark(level)
            level = Level.UNREAD
        self._advance(end, level)

    def _seek(self) -> None:
        """Look for the next event after a broken one."""
        found = _NEXT_EVENT.search(self._text, self._at)
        self._advance(found.start() if found else len(self._text), Level.UNREAD)
        if found:
            self._state = _State.EVENTS

    def _pass(self) -> None:
        self._advance(len(self._text), Level.UNREAD)

    def _decode(self, at: int) -> tuple[object, int]:
        try:
            return self._decoder.raw_decode(self._text, at)
        except json.JSONDecodeError as error:
            if error.pos >= self._solid or error.msg.startswith("Unterminated string"):
                raise _MoreError from error
            raise _BrokenError from error
        except (ValueError, RecursionError) as error:  # a number or a nesting beyond all bounds
            raise _BrokenError from error

    def _break(self, reason: str) -> None:
        """Reject what is here; go on with the next event, or not at all outside the events."""
        self._mark(reason)
        self._advance(self._at + 1, Level.UNREAD)
        self._state = _State.SEEK if self._state is _State.EVENTS else _State.LOST

    def _mark(self, reason: str) -> None:
        """Reject the line that begins here, or goes on here."""
        if self._level != _REJECT:
            self._level = _REJECT
            end = self._text.find("\n", self._at, self._at + TEXT_LIMIT)
            stop = self._at + TEXT_LIMIT if end < 0 else end
            self._reject = (reason, self._text[self._at : stop])

    def _advance(self, end: int, level: int) -> None:
        """Move on; the lines between are of this level."""
        lines = self._text.count("\n", self._at, end)
        if lines:
            self._close(max(self._level, level))
            self._counts[level] += lines - 1
            self._line += lines
            self._line_offset = self._base + self._text.rfind("\n", self._at, end) + 1
            self._level = _STRUCTURE if self._text[end - 1] == "\n" else level
        elif level > self._level:
            self._level = level
        self._at = end

    def _close(self, level: int) -> None:
        if level == _REJECT:
            reason, text = self._reject
            raw = text.rstrip("\r").encode("latin-1")
            self._ledger.reject(self._source_id, self._line, self._line_offset, reason, raw)
        else:
            self._counts[level] += 1

    def _report(self) -> None:
        """Tell the ledger what the lines were."""
        count = self._ledger.source(self._source_id)
        count.row_lines += self._counts[Level.ROW]
        count.context_lines += self._counts[Level.CONTEXT]
        for level, kind in _KINDS.items():
            count.pass_over(kind, self._counts[level])


def text_of(value: object) -> str | None:
    """Return a string of the document as text; None if it is no string."""
    if not isinstance(value, str):
        return None
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:  # one of U+0080 to U+00FF, written as an escape
        return value
    except UnicodeEncodeError:  # others, written as escapes
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
