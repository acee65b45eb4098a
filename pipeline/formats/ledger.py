"""Count what became of every line of a file, and the faults that were tolerated.

A parser classifies each physical line exactly once, as a row line, a context line, irrelevant (by
kind) or rejected, and reports it to the run's `Ledger`. The reader counts lines on its own, so that
`lines = row + context + irrelevant + rejected` is a check and not an identity.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tracelake.schema.tables import tables

TEXT_LIMIT = 4096
_REJECT_CHUNK = 4096


class Severity(enum.StrEnum):
    """The cost of a fault.

    INCOMPLETE says that the input has other rows than it declares; the fault's text says how many.
    """

    INFO = "info"
    NOTICE = "notice"
    INCOMPLETE = "incomplete"
    DATA_LOSS = "data_loss"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault that is tolerated and counted.

    Attributes:
        doc: What was seen and what to do about it.
    """

    name: str
    severity: Severity
    doc: str


# Faults of any format; a format adds its own in its FORMAT constant.
TRUNCATED_COMPRESSION = Fault(
    "truncated_compression",
    Severity.DATA_LOSS,
    "The compressed stream ends early or is damaged; what was decoded is stored. Copy the file"
    " again.",
)
EXPANDED_TOO_FAR = Fault(
    "expanded_too_far",
    Severity.ERROR,
    "The input decompresses to more than --max-expand allows; what came before is stored. If it is "
    "not a compression bomb, give a higher limit together with --verify.",
)
LINE_TOO_LONG = Fault(
    "line_too_long",
    Severity.DATA_LOSS,
    "A line is longer than a block can hold; it is rejected with its first 4 KiB.",
)
NOT_UTF8 = Fault(
    "not_utf8",
    Severity.NOTICE,
    "A stored value has bytes that are not UTF-8; they are stored as \\xNN.",
)
BYTE_ORDER_MARK = Fault(
    "byte_order_mark",
    Severity.INFO,
    "The file starts with a UTF-8 byte order mark; it was skipped.",
)
CHANGED_WHILE_READ = Fault(
    "changed_while_read",
    Severity.NOTICE,
    "The file changed while it was read; the next run reads it again.",
)
READ_ERROR = Fault(
    "read_error",
    Severity.ERROR,
    "The operating system failed to read on; what was read before is stored. Check the disk.",
)
# Of formats whose files are read while they are being written.
UNFINISHED = Fault(
    "unfinished",
    Severity.NOTICE,
    "The last line breaks off: the file is still being written. The next run reads it again.",
)
UNFINISHED_LINE = "Last line, without a newline and not understood: the file is being written."
# Of logs that several jobs write, one after the other.
SIZES_CHANGED = Fault(
    "sizes_changed",
    Severity.NOTICE,
    "From this line on the records are of a job of other sizes, another one or a restart. No size"
    " holds for all records of the file, so none is kept. Cut the file where that job begins.",
)
COMMON_FAULTS = (
    READ_ERROR,
    TRUNCATED_COMPRESSION,
    EXPANDED_TOO_FAR,
    LINE_TOO_LONG,
    NOT_UTF8,
    BYTE_ORDER_MARK,
    CHANGED_WHILE_READ,
)

# Reject reasons of any format, with their docs; a format adds its own.
COMMON_REJECTS = {"line_too_long": "The line is longer than a block can hold."}


def escape(raw: bytes) -> str:
    r"""Return bytes as text without loss: double backslashes, and `\\xNN` for non-UTF-8 bytes."""
    return raw.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


@dataclass(slots=True)
class SourceCount:
    """Counts of the lines of one source. `rows` counts stored rows, over all tables of records."""

    row_lines: int = 0
    context_lines: int = 0
    rejected: int = 0
    rows: int = 0
    irrelevant: dict[str, int] = field(default_factory=dict)

    @property
    def lines(self) -> int:
        """Number of lines counted."""
        return self.row_lines + self.context_lines + self.rejected + sum(self.irrelevant.values())

    def pass_over(self, kind: str, lines: int = 1) -> None:
        """Count irrelevant lines of a kind."""
        if lines:
            self.irrelevant[kind] = self.irrelevant.get(kind, 0) + lines


class Ledger:
    """Line counts, rejects and faults of one run; the parser fills them, ingest stores them.

    Attributes:
        sources: Accounts by source_id.
        rejected: Lines rejected so far, over all sources.
    """

    def __init__(self) -> None:
        self.sources: defaultdict[int, SourceCount] = defaultdict(SourceCount)
        self.rejected = 0
        self._rejects: list[tuple[int, int, int, str, str]] = []
        self._packed: list[pa.RecordBatch] = []
        self._faults: dict[tuple[int, str], tuple[Fault, int, int | None, str | None]] = {}

    def source(self, source_id: int) -> SourceCount:
        """Return the counts of a source, to be added to."""
        return self.sources[source_id]

    def reject(self, source_id: int, line: int, byte_offset: int, reason: str, raw: bytes) -> None:
        """Count one physical line as rejected and store it; call once per line."""
        self.source(source_id).rejected += 1
        self.rejected += 1
        text = escape(raw[:TEXT_LIMIT])
        self._rejects.append((source_id, line, byte_offset, reason, text))
        if len(self._rejects) == _REJECT_CHUNK:
            self._pack()

    def fault(
        self,
        source_id: int,
        fault: Fault,
        *,
        line: int | None = None,
        raw: bytes = b"",
        count: int = 1,
    ) -> None:
        """Count a tolerated fault; the first line and its text are stored."""
        key = source_id, fault.name
        known = self._faults.get(key) or (fault, 0, line, escape(raw[:TEXT_LIMIT]) or None)
        _, seen, first, text = known
        self._faults[key] = fault, seen + count, first, text

    def unfinished(self, source_id: int, line: int, raw: bytes) -> None:
        """Count a last line without its end: any value in it may be cut."""
        self.source(source_id).pass_over(UNFINISHED.name)
        self.fault(source_id, UNFINISHED, line=line, raw=raw)

    def drain_rejects(self, *, everything: bool = False) -> Iterator[pa.RecordBatch]:
        """Return the rejects so far as batches of the `rejects` table, of bounded size."""
        if everything and self._rejects:
            self._pack()
        packed, self._packed = self._packed, []
        yield from packed

    def _pack(self) -> None:
        """Convert the rejects to Arrow, which takes a tenth of the memory of Python objects."""
        self._packed.append(_batch(tables()["rejects"].storage_schema, self._rejects))
        self._rejects = []

    def fault_totals(self) -> dict[Fault, int]:
        """Return how often each fault was seen, over all sources."""
        totals: Counter[Fault] = Counter()
        for fault, count, _, _ in self._faults.values():
            totals[fault] += count
        return dict(totals)

    def fault_batches(self) -> list[pa.RecordBatch]:
        """Return all faults as one batch of the `faults` table, by source and name, if any."""
        if not self._faults:
            return []
        rows = [
            (source_id, line, fault.name, str(fault.severity), count, text)
            for (source_id, _), (fault, count, line, text) in sorted(self._faults.items())
        ]
        return [_batch(tables()["faults"].storage_schema, rows)]


def _batch(schema: pa.Schema, rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
