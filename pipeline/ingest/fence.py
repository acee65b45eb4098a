"""Fence formats: an error that the code of one raises costs its own run and no other."""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

from tracelake.base.errors import ContractError, InputError, TracelakeError
from tracelake.base.text import counted
from tracelake.formats import Chunk, Format, Parser, RunFacts
from tracelake.formats.ledger import Ledger
from tracelake.inputs.streams import FileRef
from tracelake.schema.format_names import installed_formats
from tracelake.schema.tables import tables

if TYPE_CHECKING:
    from tracelake.ingest.run_plan import RunPlan

PARSER_FAILED = "parser_failed"
"""The reason of an input that is skipped for it."""

_NAMED = 5
# Letters of an error and of its traceback that are kept: it may quote a line of megabytes.
_ERROR, _TRACE = 200, 10_000
# Errors that mean the job and not the input. An OSError of the system has a number; one of a
# library that does not understand the input has none.
_OF_THE_JOB = (TracelakeError, CancelledError, MemoryError)
# A panic in the Rust code of a library is no Exception.
_PANIC = ("pyo3_runtime", "PanicException")


@dataclass(frozen=True, slots=True)
class ParserFailure:
    """A run, or files of no run yet, that are left out because code of their format failed.

    Attributes:
        run_id: None for files that were not yet told apart into runs.
        input: The file that was read, or the first of several.
        more_inputs: How many further files it may have been.
        error: Type and text of the error, in one line.
        place: Line of the code that raised it.
        trace: The traceback.
    """

    run_id: str | None
    format: str
    input: str
    more_inputs: int
    error: str
    place: str
    trace: str


class ParserFailedError(Exception):
    """Code of a format raised an error; carries the failure from a fence to who leaves it out."""

    def __init__(self, failure: ParserFailure) -> None:
        super().__init__(failure.error)
        self.failure = failure


@dataclass(slots=True)
class Fence:
    """Raises `ParserFailedError` for every unexpected error of a format's code inside.

    Errors of tracelake, of the operating system and of memory, and interrupts, stay what they are,
    but for `ContractError`: a format breaks its contract.
    A class is faster than a generator: each format looks at each file inside a fence.

    Attributes:
        inputs: The files that it is about; looked at only for an error.
    """

    format: Format
    inputs: Iterable[FileRef]
    run_id: str | None = None

    def __enter__(self) -> None:
        """Enter the fence."""

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not _unexpected(error):
            return
        text = f"{type(error).__name__}: {error}".partition("\n")[0]
        at = traceback.extract_tb(trace)[-1]
        labels = [entry.label for entry in self.inputs]
        failure = ParserFailure(
            self.run_id,
            self.format.name,
            labels[0],
            len(labels) - 1,
            _cut(text, _ERROR),
            f"{'/'.join(Path(at.filename).parts[-2:])}:{at.lineno}",
            _cut("".join(traceback.format_exception(error)), _TRACE),
        )
        raise ParserFailedError(failure) from error


class FencedParser:
    """The parser of a run inside a fence: `ParserFailedError` stands for unexpected errors."""

    def __init__(self, plan: RunPlan, ledger: Ledger) -> None:
        self._plan = plan
        self._ledger = ledger
        self._read: Sequence[int] = ()  # sources of the last chunk; none for the run as a whole

    @functools.cached_property
    def _parser(self) -> Parser:
        return self._plan.format.parser(self._plan.run, self._ledger)

    def feed(self, chunk: Chunk) -> None:
        """Parse a chunk."""
        self._read = [span.source_id for span in chunk.spans]
        with self.fence():
            self._parser.feed(chunk)

    def drain(self) -> Mapping[str, Iterable[pa.RecordBatch]]:
        """Return rows ready so far by table."""
        with self.fence():
            ready = self._parser.drain()
            return {
                table: self.fenced(
                    map(functools.partial(checked, self._plan.format, table), batches)
                )
                for table, batches in ready.items()
            }

    def finish(self) -> RunFacts:
        """End the run."""
        self._read = ()
        with self.fence():
            return self._parser.finish()

    def fenced(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches that a parser makes one by one; what takes them is outside the fence."""
        with self.fence():
            rest = iter(batches)
        while True:
            with self.fence():
                batch = next(rest, None)
            if batch is None:
                return
            yield batch

    @classmethod
    def prepare(cls, parsers: Sequence[FencedParser]) -> None:
        """Let formats do at once what the parsers of several runs would do one by one.

        If that fails, each does it by itself, and the run that it fails for is left out.
        """
        by_format: dict[str, list[FencedParser]] = defaultdict(list)
        for parser in parsers:
            by_format[parser._plan.format.name].append(parser)
        for some in by_format.values():
            if prepare := some[0]._plan.format.prepare:
                with contextlib.suppress(ParserFailedError), some[0].fence():
                    prepare([parser._parser for parser in some])

    def fence(self) -> Fence:
        """Fence code of the format about what was read last."""
        every = range(len(self._plan.sources))
        read = (self._plan.sources[i].entry for i in self._read or every)
        return Fence(self._plan.format, read, self._plan.run_id)


def checked(fmt: Format, table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows that a format gives for a table.

    Raises:
        ValueError: They are not of a table of the format, or lack a value that it requires.
    """
    if table not in fmt.tables:
        raise ValueError(f"rows of {table}, which is none of the format's tables")
    known = tables()[table]
    if not batch.schema.equals(known.storage_schema):
        raise ValueError(f"the columns of the rows are not those of the table {table}")
    if lacking := sorted(name for name in known.required if batch[name].null_count):
        raise ValueError(f"rows of {table} without {', '.join(lacking)}")
    return batch


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[:letters]} ..."


def parsers_failed(failures: Sequence[ParserFailure]) -> InputError | None:
    """Return the error for what is left out because code of a format failed; None for nothing."""
    if not failures:
        return None
    named = [
        f"\n  {one.input}{f' and {one.more_inputs} more' if one.more_inputs else ''}"
        f" ({one.format}{f', run {one.run_id}' if one.run_id else ''}): {one.error},"
        f" in {one.place}"
        for one in failures[:_NAMED]
    ]
    more = f"\n  ... and {len(failures) - _NAMED:,} more" if len(failures) > _NAMED else ""
    runs = sum(one.run_id is not None for one in failures)
    files = sum(1 + one.more_inputs for one in failures if one.run_id is None)
    left = [counted(n, what) for n, what in ((runs, "run"), (files, "file")) if n]
    makers = {point.name: point.dist.name for point in installed_formats() if point.dist}
    others = {makers.get(one.format, "") for one in failures}
    reader, whom = "tracelake's reader of the format", ""
    if all(others):
        reader, whom = f"the reader of the format in {', '.join(sorted(others))}", " to its makers"
    error = InputError(
        f"{' and '.join(left)} left out, because {reader}"
        f" failed; this is a fault of the reader, not of the input{''.join(named)}{more}",
        hint=f"report it{whom} with these lines and, if you may, the file (TRACELAKE_TRACEBACK=1"
        " prints the traceback); all other runs are in the lake, and the next ingest tries again",
    )
    for one in failures[:_NAMED]:
        error.add_note(one.trace)
    return error


def _unexpected(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno is None
    if isinstance(error, Exception):
        return isinstance(error, ContractError) or not isinstance(error, _OF_THE_JOB)
    return (type(error).__module__, type(error).__name__) == _PANIC
