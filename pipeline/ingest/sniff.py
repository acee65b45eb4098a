"""Sniff the files of the inputs: decide the format of each, and read the facts in name and head."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from tracelake.formats import HEAD_BYTES, Claim, FileFacts, Format, format_named, formats
from tracelake.formats.unread import reason_of
from tracelake.ingest.fence import PARSER_FAILED, Fence, ParserFailedError, ParserFailure
from tracelake.ingest.hosts import Place
from tracelake.ingest.known_inputs import ID_BYTES, KnownInput, KnownInputs, Record, known_formats
from tracelake.ingest.options import Options
from tracelake.ingest.overrides import Overrides
from tracelake.inputs.ahead import prefetch, read_ahead
from tracelake.inputs.archives import Head, open_heads
from tracelake.inputs.discover import Root, Skip, location_of
from tracelake.inputs.sources import open_entry
from tracelake.inputs.streams import (
    DECODE_ERRORS,
    Begun,
    Copies,
    FileRef,
    first_bytes,
    strip_suffix,
)
from tracelake.storage.objects import WIDTH
from tracelake.storage.store_path import is_uri

# What a record says of the file itself.
_OF_FILE = ("path", "member", "size", "mtime_ns", "inode", "weight", "position", "packed")
# What a record keeps of the parse.
_FOUND = ("bytes", "lines", "content_hash", "duplicate_of")
# Sizes of the beginnings whose hashes tell whether a file has become shorter, or was overwritten.
_BEGINNINGS = (64, 128, 256, 512, 1024, 2048, ID_BYTES, HEAD_BYTES)
_BEGINNING_DIGITS = 8
_BLOCK_BYTES = 1 << 20
# Names of documents and sources, which may quote what a job printed.
_QUOTING = (
    ".md", ".rst", ".tex", ".html", ".htm", ".ipynb", ".py", ".pyi", ".c", ".cpp", ".cu",
    ".h", ".hpp", ".rs", ".go", ".java", ".js", ".ts",
)  # fmt: skip
# NCCL prints megabytes for the ranks of a large job, before it trains.
_PREAMBLE_BLOCKS = 32


class InputFile(NamedTuple):
    """An input with a format.

    Attributes:
        base: Facts as the format read them.
        facts: The same with `--run-pattern`, `--hosts` and `--set` applied.
        head_hash: SHA-256 of the first 4 KiB.
        beginnings: See `_beginnings_of`; empty in records of earlier versions.
        place: Host of its rank from `--hosts`.
        members: Number of inputs in its file.
        known: The committed source that it equals, if that is known without reading it.
    """

    entry: FileRef
    format: Format
    base: FileFacts
    facts: FileFacts
    head_hash: str
    beginnings: str = ""
    place: Place | None = None
    members: int = 1
    known: KnownInput | None = None

    def record(self, found: Record) -> Record:
        """Return its record in a manifest, which the next ingest compares it with.

        Args:
            found: Results of the parse, by column of `sources`; an earlier record is accepted.
        """
        return {
            **_stat_record(self.entry),
            "members": self.members,
            "head_hash": self.head_hash,
            "beginnings": self.beginnings,
            "facts": _facts_record(self.base),
            "place": place_record(self.place),
            **({"beside": True} if self.base.beside else {}),
            **{name: found[name] for name in _FOUND},
        }


@dataclass(slots=True)
class Sniffed:
    """Hold what the inputs gave: files with a format, root by root, and skipped ones.

    Attributes:
        covered: Locations of the folders and files that were looked at, as `location_of` has them.
        failures: What code of a format failed on; these files are among the skipped ones.
    """

    files: list[list[InputFile]] = field(default_factory=list)
    skips: list[Record] = field(default_factory=list)
    covered: list[str] = field(default_factory=list)
    failures: list[ParserFailure] = field(default_factory=list)


def sniff(roots: Iterable[Root], options: Options, known: KnownInputs, copies: Copies) -> Sniffed:
    """Sniff the files of the roots, each once; unchanged files are not opened.

    Args:
        copies: Of small files of stores; they must be there until the files are parsed.

    Raises:
        UsageError: The forced format or the run pattern is unusable.
    """
    sniffer = _Sniffer(options, known, copies)
    seen: set[tuple[bool, str]] = set()
    for root in roots:
        sniffer.add_root(root, _once(root, seen))
    return sniffer.sniffed


def _once(root: Root, seen: set[tuple[bool, str]]) -> Iterator[FileRef | Skip]:
    """Yield inputs of a root, except those that were already seen under another name."""
    for item in root.found:
        # A file that is skipped in a folder may be named as an input too.
        if isinstance(item, Skip):
            key = True, location_of(root.base, item.path)
        else:
            key = False, item[1]
        if key not in seen:
            seen.add(key)
            yield item if isinstance(item, Skip) else item[0]


class _Sniffer:
    def __init__(self, options: Options, known: KnownInputs, copies: Copies) -> None:
        self.sniffed = Sniffed()
        self._base = ""
        self._named = False
        self._known = known
        self._copies = copies
        self._verify = options.verify
        self._overrides = Overrides(options)
        self._forced = None if options.input_format is None else format_named(options.input_format)

    def add_root(self, root: Root, found: Iterable[FileRef | Skip]) -> None:
        """Sniff the inputs of a root; those of a store are opened ahead."""
        self.sniffed.files.append([])
        self.sniffed.covered.extend(root.covered)
        self._base = root.base
        self._named = root.covered != (root.base,)
        items = ((item, self._unchanged(item)) for item in found)
        if not root.stored:
            for (item, known), head in read_ahead(items, _head):
                self._add(item, known, head=head)
            return
        for (item, known), begun in prefetch(items, self._begin, WIDTH):
            self._add(item, known, begun.result if begun else None)

    def _begin(
        self, found: tuple[FileRef | Skip, Sequence[KnownInput | Record]]
    ) -> Callable[[], Begun] | None:
        """Return the function that begins to read an input of a store."""
        item, known = found
        return None if isinstance(item, Skip) or known else partial(self._copies.begin, item)

    def _unchanged(self, item: FileRef | Skip) -> Sequence[KnownInput | Record]:
        if isinstance(item, Skip) or self._verify:
            return []
        return self._known.unchanged(item, self._forced)

    def _add(
        self,
        item: FileRef | Skip,
        known: Sequence[KnownInput | Record],
        begun: Callable[[], Begun] | None = None,
        head: bytes | None = None,
    ) -> None:
        if isinstance(item, Skip):
            self._skip(item)
        elif known:
            self._recall(item, known)
        else:
            found = [self._sniff(one) for one in open_heads(item, begun, head)]
            for one in found:
                if isinstance(one, Skip):
                    self._skip(one, item, len(found))
                else:
                    member = one if len(found) == 1 else one._replace(members=len(found))
                    self.sniffed.files[-1].append(member)

    def _sniff(self, item: Head | Skip) -> InputFile | Skip:
        """Decide on an input, which may be a member of an archive, by its first bytes."""
        if isinstance(item, Skip):
            return item
        entry, head = item
        try:
            fmt, claim = (self._forced, Claim.YES) if self._forced else _choose(entry, head)
            if isinstance(fmt, str):
                return Skip(entry.path, entry.member, fmt)
            if self._forced is None and self._may_quote(entry):
                if claim is Claim.BESIDE:
                    return Skip(entry.path, entry.member, "no_format")
                return Skip(entry.path, entry.member, "quoted", lasting=False)
            text = head
            longer = len(head) == HEAD_BYTES and not entry.packed
            if self._forced is None and fmt.preamble_of and longer:
                fmt, text = _past_preamble(entry, head, fmt)
            with Fence(fmt, [entry]):
                base = fmt.facts(strip_suffix(entry.label), text)
                if not (isinstance(base, FileFacts) and isinstance(base.stamp, datetime | None)):
                    raise TypeError(f"facts() gave {base!r:.80}, no FileFacts with its stamp")
            base = base._replace(beside=claim is Claim.BESIDE)
        except ParserFailedError as error:
            self.sniffed.failures.append(error.failure)
            return Skip(entry.path, entry.member, PARSER_FAILED, lasting=False)
        facts, place = self._overrides.apply(base)
        head_hash = hashlib.sha256(head[:ID_BYTES]).hexdigest()
        return InputFile(entry, fmt, base, facts, head_hash, _beginnings_of(head), place)

    def _may_quote(self, entry: FileRef) -> bool:
        """Return whether a file that nobody has named is a document or source by its name."""
        if not strip_suffix(entry.label).lower().endswith(_QUOTING):
            return False
        named = self._named and entry.member is None
        return not (named or self._known.at(entry.label))

    def _skip(self, skip: Skip, entry: FileRef | None = None, members: int = 1) -> None:
        lasting = skip.lasting and self._forced is None
        location = location_of(self._base, skip.path)
        record = _skip_record(skip, location, entry if lasting else None, members)
        self.sniffed.skips.append(record)

    def _recall(self, entry: FileRef, known: Sequence[KnownInput | Record]) -> None:
        """Add what an unchanged file was found to be before."""
        for item in known:
            if not isinstance(item, KnownInput):
                location = location_of(self._base, entry.path)
                self.sniffed.skips.append({**item, "location": location})
                continue
            record = item.record
            member = entry
            if record["member"] is not None:
                same = ("member", "weight", "position", "packed")
                member = entry._replace(**{name: record[name] for name in same})
            fmt = format_named(item.run.options["format"])
            base = _facts_of(record)
            facts, place = self._overrides.apply(base)
            head_hash, beginnings = record["head_hash"], record.get("beginnings", "")
            self.sniffed.files[-1].append(
                InputFile(member, fmt, base, facts, head_hash, beginnings, place, len(known), item)
            )


def _head(found: tuple[FileRef | Skip, Sequence[KnownInput | Record]]) -> bytes | None:
    """Return the first bytes of a file that is to be sniffed; None if they cannot be read."""
    item, known = found
    if isinstance(item, Skip) or known:
        return None
    try:
        return first_bytes(item.location)
    except OSError:
        return None


def _choose(entry: FileRef, head: bytes) -> tuple[Format | str, Claim]:
    """Return the format whose files begin so, else the one with the strongest claim.

    Returns:
        The format, or a key of `skip_reasons` where there is none; and its claim.

    Raises:
        ParserFailedError: A format failed on the head.
    """
    begun = [fmt for fmt in formats().values() if fmt.begins(head)]
    if begun:
        return begun[0] if len(begun) == 1 else "ambiguous", Claim.YES
    claims: dict[str, Claim] = {}
    for fmt in formats().values():
        with Fence(fmt, [entry]):
            claims[fmt.name] = fmt.sniff(head)
    best = max(claims.values())
    if best < Claim.MAYBE and ((reason := reason_of(head)) != "no_format" or best is Claim.NO):
        return reason, best
    strongest = {name: formats()[name] for name, claim in claims.items() if claim is best}
    chosen = [fmt for fmt in strongest.values() if strongest.keys().isdisjoint(fmt.preamble_of)]
    return chosen[0] if len(chosen) == 1 else "ambiguous", best


def _past_preamble(entry: FileRef, head: bytes, fmt: Format) -> tuple[Format, bytes]:
    """Return the format of what follows a preamble, with the text in which it begins.

    If nothing follows, that of the preamble with the head.

    Raises:
        ParserFailedError: The format failed on the text.
    """
    before = b""
    with contextlib.suppress(*DECODE_ERRORS), open_entry(entry) as (stream, _):
        for block in islice(iter(partial(stream.read, _BLOCK_BYTES), b""), _PREAMBLE_BLOCKS):
            for follows in map(format_named, fmt.preamble_of):
                with Fence(follows, [entry]):
                    if follows.sniff(before[-HEAD_BYTES:] + block) is Claim.YES:
                        return follows, head + before[-HEAD_BYTES:] + block
            before = block
    return fmt, head


def skips_of(
    inputs: Iterable[InputFile], reason: str, *, lasting: bool = False
) -> Iterator[Record]:
    """Yield the records of inputs that are left out.

    Args:
        reason: A key of `skip_reasons`.
        lasting: It holds until the file or a format changes; else the next ingest reads them.
    """
    for entry in (one.entry for one in inputs):
        folder, name = os.path.split(entry.location)
        location = location_of(folder if is_uri(folder) else os.path.realpath(folder), name)
        skip = Skip(entry.path, entry.member, reason)
        yield _skip_record(skip, location, entry if lasting and entry.member is None else None)


def _stat_record(entry: FileRef) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in _OF_FILE}


def _skip_record(skip: Skip, location: str, entry: FileRef | None, members: int = 1) -> Record:
    """Return the record of a skipped input.

    Args:
        location: Of the file, see `location_of`: another ingest may give it another path.
        entry: The file, if the reason holds until it or a format changes; None to sniff again.
    """
    state: dict[str, Any] = {}
    if entry:
        state = {**_stat_record(entry), "members": members, "formats": known_formats()}
    return {
        **state,
        "path": skip.path,
        "member": skip.member,
        "reason": skip.reason,
        "location": location,
    }


def _beginnings_of(head: bytes) -> str:
    """Return short hashes of the beginnings of a file, as far as it goes, in one text.

    The text of a file that has lost its end is the beginning of its earlier text, and the earlier
    text that of a file that has grown.
    """
    return "".join(
        hashlib.sha256(head[:size]).hexdigest()[:_BEGINNING_DIGITS]
        for size in _BEGINNINGS
        if size <= len(head)
    )


def _facts_record(facts: FileFacts) -> dict[str, Any]:
    """Return facts as a source's record stores them."""
    stamp = None if facts.stamp is None else facts.stamp.isoformat()
    known = {name: getattr(facts, name) for name in ("path", "stem", "rank", "host", "device")}
    return {**known, "stamp": stamp, "topology": dict(facts.topology)}


def _facts_of(record: Record) -> FileFacts:
    facts = dict(record["facts"])
    stamp = facts.pop("stamp")
    date = None if stamp is None else datetime.fromisoformat(stamp)
    return FileFacts(**facts, stamp=date, beside=record.get("beside", False))


def place_record(place: Place | None) -> list[str | None] | None:
    """Return host and device as a source's record stores them."""
    return None if place is None else [place.host, place.device]
