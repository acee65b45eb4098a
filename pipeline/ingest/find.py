"""Walk the inputs and sniff each: its format, and the facts in its name and head."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from tracelake.base.errors import UsageError
from tracelake.formats import FileFacts, Format, format_named, formats
from tracelake.ingest.host_map import Place
from tracelake.ingest.known_inputs import (
    KnownInput,
    KnownInputs,
    Record,
    facts_of,
    judgement,
    location_of,
    skip_record,
)
from tracelake.ingest.options import Options
from tracelake.ingest.run_pattern import TEXT_GROUPS, compile_pattern
from tracelake.ingest.sniff import Judged, Verdict, judge, judge_file
from tracelake.inputs.discover import Root, Skip, discover
from tracelake.inputs.heads import open_heads
from tracelake.inputs.prefetch import ahead
from tracelake.inputs.stored_inputs import StoredRoot
from tracelake.inputs.streams import FileRef, open_begun
from tracelake.schema.tables import SCHEMA_VERSION
from tracelake.schema.topology import LARGEST
from tracelake.storage import WIDTH


class InputFile(NamedTuple):
    """An input with a format.

    Attributes:
        base: Facts as the format read them.
        facts: The same with `--run-pattern`, `--hosts` and `--set` applied.
        place: Host of its rank from `--hosts`.
        head_hash: SHA-256 of the first 4 KiB.
        members: Number of inputs in its file.
        beginnings: See `beginnings_of`; empty in records of earlier versions.
        known: The committed source that it equals, if that is known without reading it.
    """

    entry: FileRef
    format: Format
    base: FileFacts
    facts: FileFacts
    head_hash: str
    members: int
    place: Place | None = None
    beginnings: str = ""
    known: KnownInput | None = None


@dataclass(slots=True)
class Findings:
    """Everything the inputs gave: candidates by root, and what was passed over.

    Attributes:
        covered: Locations of the folders and files that were looked at, as `location_of` has them.
    """

    candidates: list[list[InputFile]] = field(default_factory=list)
    skips: list[Record] = field(default_factory=list)
    covered: list[str] = field(default_factory=list)


def find(
    roots: Iterable[Root | StoredRoot], options: Options, memory: KnownInputs, lake: str
) -> Findings:
    """Walk the roots and sniff each input; unchanged inputs are not opened.

    Args:
        lake: Real path or URI of the lake.

    Raises:
        UsageError: The forced format or the run pattern is unusable.
    """
    judge = _Judge(options, memory)
    seen: set[str] = set()
    for root in roots:
        judge.begin(root)
        found = _once(discover(root, lake=lake, expansion=options.max_expand), seen)
        if isinstance(root, StoredRoot):
            judge.all_stored(found)
        else:
            judge.all(found)
    return judge.findings


def _once(found: Iterable[tuple[FileRef, str] | Skip], seen: set[str]) -> Iterator[FileRef | Skip]:
    """Yield inputs, except those that were already seen under another name."""
    for item in found:
        if isinstance(item, Skip):
            yield item
        elif item[1] not in seen:
            seen.add(item[1])
            yield item[0]


class _Judge:
    """Collects candidates and skips; the last list of candidates is the current root's."""

    def __init__(self, options: Options, memory: KnownInputs) -> None:
        self.findings = Findings()
        self._base = ""
        self._options = options
        self._memory = memory
        self._pattern = compile_pattern(options.run_pattern)
        self._forced = None if options.input_format is None else format_named(options.input_format)

    def begin(self, root: Root | StoredRoot) -> None:
        """Notes the root that the next inputs are of, and what it covers."""
        self.findings.candidates.append([])
        names = ["."]
        if isinstance(root, StoredRoot):
            self._base = root.folder.uri
            if not root.walked:
                names = [file.name for file in root.files]
        else:
            self._base = os.path.realpath(root.folder)
            if root.files is not None:
                names = [os.path.relpath(file, root.folder) for file in root.files]
        self.findings.covered.extend(location_of(self._base, name) for name in names)

    def all(self, found: Iterable[FileRef | Skip]) -> None:
        """Sniff the inputs found."""
        for item in found:
            self._take(item, self._known(item))

    def all_stored(self, found: Iterable[FileRef | Skip]) -> None:
        """Sniff the inputs of a store; the heads of the next ones are prefetched."""
        items = ((item, self._known(item)) for item in found)
        for (item, known), opening in ahead(items, _opening, WIDTH):
            self._take(item, known, opening.result if opening else None)

    def _take(
        self,
        item: FileRef | Skip,
        known: Sequence[KnownInput | Record],
        opened: Callable[[], io.RawIOBase] | None = None,
    ) -> None:
        if isinstance(item, Skip):
            self.pass_over(item)
        elif known:
            self._recall(item, known)
        elif opened is None and (verdict := judge_file(item, self._forced)):
            self._add_all(item, [(item, verdict)])
        else:
            self._open(item, opened)

    def _known(self, item: FileRef | Skip) -> Sequence[KnownInput | Record]:
        """Return the records of an unchanged file, if the sniffers have not changed either."""
        if isinstance(item, Skip) or self._options.verify:
            return []
        known = self._memory.unchanged(item)
        return known if known and self._still_holds(known) else []

    def pass_over(self, skip: Skip, entry: FileRef | None = None, members: int = 1) -> None:
        lasting = entry is not None and skip.lasting and self._forced is None
        judged = judgement(entry, members, _known_formats()) if entry and lasting else None
        location = location_of(self._base, skip.path)
        record = skip_record(skip.path, skip.member, skip.reason, location, judged)
        self.findings.skips.append(record)

    def _still_holds(self, known: Sequence[KnownInput | Record]) -> bool:
        """Return whether the earlier decision would be the same now."""
        if any(isinstance(k, KnownInput) and not _current(k) for k in known):
            return False
        if self._forced is None:
            return all(
                not k.run.options["forced"]
                if isinstance(k, KnownInput)
                else k["formats"] == _known_formats()
                for k in known
            )
        return all(
            isinstance(k, KnownInput) and k.run.options["format"] == self._forced.name
            for k in known
        )

    def _recall(self, entry: FileRef, known: Sequence[KnownInput | Record]) -> None:
        for item in known:
            if not isinstance(item, KnownInput):
                location = location_of(self._base, entry.path)
                self.findings.skips.append({**item, "location": location})
                continue
            record = item.record
            same = ("member", "weight", "position", "packed")
            member = entry._replace(**{name: record[name] for name in same})
            fmt = format_named(item.run.options["format"])
            base = facts_of(record)
            facts, place = self._apply(base)
            self._add(
                InputFile(
                    member,
                    fmt,
                    base,
                    facts,
                    record["head_hash"],
                    len(known),
                    place,
                    record.get("beginnings", ""),
                    known=item,
                )
            )

    def _open(self, entry: FileRef, opened: Callable[[], io.RawIOBase] | None = None) -> None:
        self._add_all(
            entry,
            [
                (entry, item) if isinstance(item, Skip) else (item.entry, judge(item, self._forced))
                for item in open_heads(entry, opened)
            ],
        )

    def _add_all(self, entry: FileRef, judged: Sequence[tuple[FileRef, Judged]]) -> None:
        """Add the inputs of a file: itself, or the members of an archive."""
        members = len(judged)
        for member, verdict in judged:
            if isinstance(verdict, Verdict):
                facts, place = self._apply(verdict.base)
                self._add(
                    InputFile(member, *verdict[:2], facts, verdict[2], members, place, verdict[3])
                )
        for _, verdict in judged:
            if isinstance(verdict, Skip):
                self.pass_over(verdict, entry, members)

    def _add(self, candidate: InputFile) -> None:
        self.findings.candidates[-1].append(candidate)

    def _apply(self, base: FileFacts) -> tuple[FileFacts, Place | None]:
        """Return facts with the user's values over `--run-pattern` over the format's facts."""
        if not (self._pattern or self._options.hosts or self._options.given):
            return base, None
        matched = self._pattern.search(base.path) if self._pattern else None
        groups = {k: v for k, v in matched.groupdict().items() if v is not None} if matched else {}
        try:
            numbers = {k: int(v) for k, v in groups.items() if k not in TEXT_GROUPS}
        except ValueError as error:
            raise UsageError(
                f"--run-pattern on {base.path}: {error}", hint="let the group match digits only"
            ) from None
        least = {"rank": 0}
        if out := [f"{k}={v}" for k, v in numbers.items() if not least.get(k, 1) <= v <= LARGEST]:
            raise UsageError(
                f"--run-pattern on {base.path}: {out[0]:.40} is out of range",
                hint=f"a rank is from 0, a size from 1 to {LARGEST}",
            )
        rank = numbers.pop("rank", base.rank)
        hosts = self._options.hosts
        place = None if hosts is None or rank is None else hosts.place(base.path, rank)
        if place is not None:
            groups |= {k: v for k, v in (("host", place.host), ("device", place.device)) if v}
        facts = base._replace(
            rank=rank,
            run=groups.get("run"),
            host=groups.get("host", base.host),
            device=groups.get("device", base.device),
            stem=groups.get("run", base.stem),
            given={**numbers, **self._options.given},
        )
        return facts, place


def _opening(
    found: tuple[FileRef | Skip, Sequence[KnownInput | Record]],
) -> Callable[[], io.RawIOBase] | None:
    """Return the function that opens an input."""
    item, known = found
    return None if isinstance(item, Skip) or known else partial(open_begun, item.location)


def _known_formats() -> str:
    """Return names and versions of all formats; a different set may decide differently."""
    return " ".join(f"{fmt.name}:{fmt.version}" for fmt in formats().values())


def _current(known: KnownInput) -> bool:
    """Return whether the stored facts are those that this version would read."""
    options = known.run.options
    now = formats().get(options["format"])
    return now is not None and (options["parser"], options["schema"]) == (
        now.version,
        SCHEMA_VERSION,
    )
