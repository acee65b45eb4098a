"""The frame of formats whose files are documents: read whole, not line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from tracelake.formats import Chunk, Run, RunFacts
from tracelake.formats.ledger import Ledger
from tracelake.schema.tables import tables


class BadDocumentError(Exception):
    """A document cannot be read; `reason` is a reject reason of the format.

    Attributes:
        foreign: It is a document of something else; `reason` is then an irrelevant kind.
    """

    def __init__(self, reason: str, *, foreign: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.foreign = foreign


Documents = Mapping[int, bytes]
"""Bytes of the run's files by source_id."""
Tables = Mapping[str, Mapping[str, Sequence[object]]]
"""Columns of the rows by table; a column that is not named is NULL."""
Read = Callable[[Run, Documents], tuple[RunFacts, Tables]]


class DocumentParser:
    """Gathers the files of a run, and reads them when they have ended.

    All lines of a file count as row lines where the run has rows, else as context; one that cannot
    be read is rejected with its first bytes.
    """

    def __init__(self, read: Read, run: Run, ledger: Ledger) -> None:
        self._read = read
        self._run = run
        self._ledger = ledger
        self._parts: dict[int, list[bytes]] = {}
        self._lines: dict[int, int] = {}
        self._ready: dict[str, list[pa.RecordBatch]] = {}

    def feed(self, chunk: Chunk) -> None:
        """Keep the bytes of a chunk."""
        for block in chunk.blocks():
            data = block.data.tobytes()
            lines = data.count(b"\n") + (data[-1:] not in (b"", b"\n"))
            self._parts.setdefault(block.source_id, []).append(data)
            self._lines[block.source_id] = self._lines.get(block.source_id, 0) + lines

    def drain(self) -> Mapping[str, Sequence[pa.RecordBatch]]:
        """Return the rows, after `finish`."""
        ready, self._ready = self._ready, {}
        return ready

    def finish(self) -> RunFacts:
        """Read the documents."""
        documents = {source: b"".join(self._parts.pop(source)) for source in [*self._parts]}
        try:
            facts, found = self._read(self._run, documents)
        except BadDocumentError as error:
            for source, data in documents.items():
                if error.foreign:
                    self._ledger.source(source).pass_over(error.reason, self._lines[source])
                elif self._lines[source]:
                    self._ledger.reject(source, 1, 0, error.reason, data[:64])
                    self._ledger.source(source).pass_over("unread", self._lines[source] - 1)
            return RunFacts(foreign=error.foreign and len(documents) == 1)
        rows = Counter(dict.fromkeys(documents, 0))
        for table, columns in found.items():
            batch = tables()[table].batch(columns)
            self._ready.setdefault(table, []).append(batch)
            rows.update(batch["source_id"].to_pylist())
        for source, count in rows.items():
            account = self._ledger.source(source)
            account.rows += count
            if count:
                account.row_lines += self._lines[source]
            else:
                account.context_lines += self._lines[source]
        return facts
