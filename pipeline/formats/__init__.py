"""Define the contract of a format, and the registry: every module here that ends in `FORMAT`.

A format is one file here and one folder in `tests/formats/`; `tracelake.formats.lines` has the
frame of formats whose lines are told apart by expressions. Another distribution brings a format as
an entry point of the group `tracelake.formats`. Ingest drives it in this order::

    begin, sniff(head)               does this file belong to me?
    facts(path, head) per file       what do name and first bytes say?
    group(all my files, gap)         which files are one run?
    parser(run, ledger)              then, per source in order: feed(chunk)..., at the end finish()

`drain()` is called between feeds and after `finish()`; its result is written and released, so
memory stays bounded by the chunk size.
"""

from __future__ import annotations

import enum
import functools
import importlib
import itertools
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracelake.base.errors import ContractError, UsageError
from tracelake.formats.ledger import COMMON_FAULTS, COMMON_REJECTS, Fault, Ledger
from tracelake.schema.format_names import installed_formats, own_formats
from tracelake.schema.tables import tables
from tracelake.schema.topology import resolve

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

HEAD_BYTES = 64 * 1024

Volume = Literal["ordinary", "large", "document"]
NamedBy = Literal["head", "content"]


class Places(NamedTuple):
    """Hosts and devices of ranks.

    Attributes:
        world_size: Ranks of the job that they are of.
        by_rank: Host and device.
    """

    world_size: int
    by_rank: Mapping[int, tuple[str, str]]


class Claim(enum.IntEnum):
    """A format's answer to `sniff`; the highest wins, a tie of YES is an error of the formats.

    `BESIDE` is for files that say something of a run only beside its other files, such as what a
    job printed to its error stream: `group` gives them to these, and alone they are skipped.
    """

    NO = 0
    BESIDE = 1
    MAYBE = 2
    YES = 3


def first_text(head: bytes) -> bytes:
    """Return the first bytes of a file behind its byte order mark and blanks."""
    return head.removeprefix(BOM_UTF8).lstrip()


def unclaimed(head: bytes) -> Claim:
    """Claim nothing: the sniff of formats that are told by how their files begin."""
    del head
    return Claim.NO


# The name is that of a folder and a value in SQL.
_NAME = re.compile(r"[A-Za-z0-9_-]+")
# What tracelake itself writes down of runs and their inputs.
_OWN_TABLES = frozenset({"runs", "sources", "rejects", "faults", "skipped"})
_NO_SIZES: Mapping[str, int] = MappingProxyType({})


class FileFacts(NamedTuple):
    """The facts in a file's name, folder and first bytes, before it is parsed.

    Attributes:
        path: Relative to the input root, posix; a member of an archive as `archive/member`. Without
            the suffix of a compression.
        stem: Readable run name: the base name without rank, date and suffix.
        rank: Rank of the file's records, if name or head give it.
        device: Device of that rank on its host.
        run: Value that files of one run share, from `--run-pattern`.
        stamp: Date in the name, local time of the cluster.
        topology: Sizes in the name, by key of `tracelake.schema.topology.KEYS`.
        given: Sizes from `--set` and `--run-pattern`.
        beside: The file is no run by itself, see `Claim`.
        key: Distinguishes the files of one call of `group`, which must not change it.
    """

    path: str
    stem: str
    rank: int | None = None
    host: str | None = None
    device: str | None = None
    run: str | None = None
    stamp: datetime | None = None
    topology: Mapping[str, int] = _NO_SIZES
    given: Mapping[str, int] = _NO_SIZES
    beside: bool = False
    key: int = 0

    @property
    def order(self) -> tuple[bool, bool, int]:
        """Sort the files of a run: those that are a run by themselves first, then by rank."""
        return self.beside, self.rank is None, self.rank or 0

    def __reduce__(self) -> tuple[type[FileFacts], tuple[object, ...]]:
        """Pickle with plain dictionaries, because read-only ones cannot be pickled."""
        return FileFacts, tuple(dict(v) if isinstance(v, Mapping) else v for v in self)


def one_run_per_file(files: Sequence[FileFacts], gap_seconds: float) -> list[list[FileFacts]]:
    """Return each file as a run: the grouping rule of single-file formats."""
    del gap_seconds
    return [[file] for file in files]


@dataclass(frozen=True, slots=True)
class Run:
    """The files of one run, in the order in which they are fed: index = source_id.

    `named` and `given` are the topology of names and of `--set`, merged over the files. `together`
    says that its rows are written with those of other small runs: its parser may hold them back.
    """

    sources: tuple[FileFacts, ...]
    named: Mapping[str, int] = field(default_factory=dict)
    given: Mapping[str, int] = field(default_factory=dict)
    together: bool = False

    def sizes(self, printed: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes of the job; `printed` are those that its lines say."""
        sizes, _ = resolve(printed=printed, named=self.named, given=self.given)
        return sizes


class Span(NamedTuple):
    """The position of one source's lines in a chunk: `data[start:stop]`.

    Attributes:
        line: Number of the first line, from 1.
        offset: Byte offset of the first byte in the decompressed file.
        last: No more lines of this source; exactly one span per source says so, perhaps empty.
        compressed: The source is compressed, so that nobody is still writing at its end.
    """

    source_id: int
    start: int
    stop: int
    line: int
    offset: int
    last: bool
    compressed: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    r"""Consecutive lines of one source; the attributes are those of `Span` and `Chunk`."""

    source_id: int
    data: npt.NDArray[np.uint8]
    line: int
    offset: int
    last: bool
    compressed: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    r"""Whole lines of one or more sources, in the order in which they are to be read.

    Attributes:
        data: uint8, 1-d, contiguous, writable (one type for compiled kernels). Valid only during
            `feed`: the buffer is reused. Lines end in `\n`, perhaps `\r\n`. Only the last line
            of a source may lack its end; then a `\n` outside the span follows it.
            The reader rejects lines longer than a chunk, so they never arrive, unless the format
            takes `long_lines`: then a span may end within a line, and the next one goes on in it.
        ends: int64, index of every `\n` in the data.
        firsts: int64, for each span the index in `ends` of its first line.
        spans: The sources, one span each.
    """

    data: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int64]
    firsts: npt.NDArray[np.int64]
    spans: tuple[Span, ...]

    def lines(self) -> Iterator[tuple[Span, npt.NDArray[np.int64]]]:
        """Yield each span with the indices of the newlines behind its lines."""
        bounds = [*self.firsts.tolist(), self.ends.size]
        for span, (first, last) in zip(self.spans, itertools.pairwise(bounds), strict=True):
            yield span, self.ends[first:last]

    def blocks(self) -> Iterator[Block]:
        """Yield the spans one by one, for parsers that read each source by itself."""
        for s in self.spans:
            data = self.data[s.start : s.stop]
            yield Block(s.source_id, data, s.line, s.offset, s.last, s.compressed)


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of a small run whose columns are made later, for many runs at once.

    To make a column costs as much for a hundred rows as for thousands.

    Attributes:
        rows: How many by table, none of which `drain()` has returned rows of.
        content: The rows as the format keeps them.
        make: Makes the rows of such contents by table, one after the other. What is wrong with a
            row must already be in the ledger.
    """

    rows: Mapping[str, int]
    content: Any
    make: Callable[[Sequence[Any]], Mapping[str, pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts in the lines about the run as a whole.

    Attributes:
        topology: Sizes that the lines print, by key of `tracelake.schema.topology.KEYS`.
        ranks: Ranks with at least one record; None for formats without ranks.
        ranks_expected: Ranks of a complete input, as far as known.
        ended: Every rank and step seen has its end; None if that has no meaning.
        signature: dtype and shape of an activation or message, part of what makes runs comparable.
        held: The rows that are not made yet, of a run that is `together`.
        foreign: The file is of something else altogether, whatever comes beside it later.
    """

    topology: Mapping[str, int] = field(default_factory=dict)
    ranks: frozenset[int] | None = None
    ranks_expected: int | None = None
    ended: bool | None = None
    simulated: bool | None = None
    profiled: bool | None = None
    model: str | None = None
    params: int | None = None
    signature: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    held: Held | None = None
    foreign: bool = False


class Parser(Protocol):
    """Converts the chunks of one run into rows; reports every physical line to the ledger once."""

    def feed(self, chunk: Chunk) -> None:
        """Parse a chunk. Never raise on content: lines that are not understood go to the ledger."""

    def drain(self) -> Mapping[str, Iterable[pa.RecordBatch]]:
        """Return rows ready so far by table, in its storage schema, in order of source and line.

        The batches of a table are taken once, before the next call.
        """

    def finish(self) -> RunFacts:
        """End the run; held rows become ready. Called once, after the last chunk."""


@dataclass(frozen=True, slots=True)
class Format:
    """One input format.

    Attributes:
        doc: One line for `tracelake formats`.
        version: Increased when the parser gives other rows for the same bytes.
        tables: Base tables it fills.
        sniff: Judges the first `HEAD_BYTES` bytes of the decompressed file.
        begin: Matches how files of this format begin and no others do, behind a byte order mark and
            blanks. Such a file is of this format, and no format is asked for more of its bytes.
        facts: Reads name and head; `path` as in `FileFacts.path`.
        group: Splits all files of this format into runs and may fill in their hosts; the gap is in
            seconds between stamps.
        rejects: Reject reason -> doc, in addition to the common ones.
        irrelevant: Kind of irrelevant line -> doc.
        volume: How much text there is of it. A large format, whose files may be of any size, owes
            a bench with peers and is fuzzed; an ordinary one owes golden cases alone. A document
            has no lines: its files are read whole, see `tracelake.formats.documents`.
        named_by: What the digits of a run id are the hash of: the first 4 KiB of its first file,
            or the whole file, where files of one name begin alike.
        long_lines: A line longer than a chunk comes in pieces, as it is read. Else it is rejected.
        places: Reads the lines of a file for the hosts of ranks, which files beside it may lack.
        dated_by: Where the stamp of the facts comes from: the name, or the first bytes.
        preamble_of: Names of formats of which this is often the preamble: a file that has both is
            of that one.
        clock_tick_ns: Resolution of its times; None where that is not known.
        earlier: SQL of columns that parts of earlier versions lack, by table and column.
        prepare: Called with the parsers of several small runs, which all have their chunks, before
            they are finished one by one: does at once what each would do by itself.
    """

    name: str
    doc: str
    version: int
    tables: tuple[str, ...]
    facts: Callable[[str, bytes], FileFacts]
    parser: Callable[[Run, Ledger], Parser]
    group: Callable[[Sequence[FileFacts], float], Sequence[Sequence[FileFacts]]] = one_run_per_file
    sniff: Callable[[bytes], Claim] = unclaimed
    begin: re.Pattern[bytes] | None = None
    rejects: Mapping[str, str] = field(default_factory=dict)
    irrelevant: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    volume: Volume = "ordinary"
    named_by: NamedBy = "head"
    dated_by: Literal["name", "content"] = "name"
    long_lines: bool = False
    places: Callable[[Iterable[bytes]], Places] | None = None
    preamble_of: tuple[str, ...] = ()
    clock_tick_ns: int | None = None
    earlier: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    prepare: Callable[[Sequence[Any]], None] | None = None

    def __post_init__(self) -> None:
        """Raise `ContractError` for a name or tables that no format can have."""
        if not _NAME.fullmatch(self.name):
            raise ContractError(
                f"format {self.name!r}: the name has other signs than letters, digits, _ and -",
                hint="give it another name",
            )
        if own := sorted(_OWN_TABLES.intersection(self.tables)):
            raise ContractError(
                f"format {self.name}: no format fills {', '.join(own)}; tracelake does",
                hint="see schemas/ for the other tables",
            )

    def begins(self, head: bytes) -> bool:
        """Return whether a file with these first bytes begins as only files of this format do."""
        return self.begin is not None and self.begin.match(first_text(head)) is not None

    def __reduce__(self) -> tuple[Callable[[str], Format], tuple[str]]:
        """Pickle as its name, because another process has the format too."""
        return format_named, (self.name,)


@functools.cache
def formats() -> Mapping[str, Format]:
    """Return every format by name: those of this folder, and what is installed beside it.

    Raises:
        ContractError: A `FORMAT` is no format or not of its module's name, or a format of another
            distribution cannot be used.
    """
    found = {name: _own(name) for name in own_formats()}
    for point in installed_formats():
        if point.name in found:
            raise _unusable(point, ": there is another format of this name")
        found[point.name] = _installed(point)
    return found


def _own(name: str) -> Format:
    declared = importlib.import_module(f"{__name__}.{name}").FORMAT
    if not isinstance(declared, Format) or declared.name != name:
        raise ContractError(
            f"pipeline/formats/{name}.py must end in FORMAT = Format(name={name!r}, ...)"
        )
    return declared


def _installed(point: EntryPoint) -> Format:
    try:
        declared = point.load()
    except (Exception, SystemExit) as error:  # whatever its author did wrong
        reason = f"{type(error).__name__}: {error}"
        raise _unusable(point, f" cannot be imported: {reason}") from error
    if not isinstance(declared, Format) or declared.name != point.name:
        raise _unusable(point, f" is not a Format with name={point.name!r}")
    return declared


def _unusable(point: EntryPoint, reason: str) -> ContractError:
    """Return the error of a format that cannot be used, with what to do about it."""
    name = point.dist.name if point.dist else point.value
    return ContractError(
        f"format {point.name} of the entry point {point.value}{reason}",
        hint=f"repair or uninstall the distribution {name}",
    )


def describe(name: str | None = None) -> pa.Table:
    """Return the formats, or everything that one of them can report about a line or a file.

    Returns:
        Without a name: format, reads, tables. With one: kind (table, reject, irrelevant or fault),
        name, doc.

    Raises:
        UsageError: There is no format of that name.
    """
    if name is None:
        rows = [(f.name, f.doc, ", ".join(f.tables)) for f in formats().values()]
        return _text_table(("format", "reads", "tables"), rows)
    fmt = format_named(name)
    rows = [
        *(("table", table, tables()[table].doc) for table in fmt.tables),
        *(("reject", *item) for item in sorted({**COMMON_REJECTS, **fmt.rejects}.items())),
        *(("irrelevant", *item) for item in sorted(fmt.irrelevant.items())),
        *(
            ("fault", fault.name, f"{fault.severity}: {fault.doc}")
            for _, fault in sorted(faults_of(name).items())
        ),
    ]
    return _text_table(("kind", "name", "doc"), rows)


def faults_of(name: str) -> dict[str, Fault]:
    """Return the faults that files of a format can have, by name.

    Of a format that is not installed these are the common ones.
    """
    own = formats()[name].faults if name in formats() else ()
    return {fault.name: fault for fault in (*COMMON_FAULTS, *own)}


def _text_table(names: Sequence[str], rows: Sequence[tuple[str, ...]]) -> pa.Table:
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})


def format_named(name: str) -> Format:
    """Return the format of that name.

    Raises:
        UsageError: There is none.
    """
    try:
        return formats()[name]
    except KeyError:
        raise UsageError(
            f"unknown format {name!r}", hint=f"use one of {', '.join(formats())}"
        ) from None
