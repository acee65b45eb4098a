"""Group files into runs and compare them with the lake."""

from __future__ import annotations

import functools
import hashlib
import itertools
import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tracelake.formats import HEAD_BYTES
from tracelake.ingest.fence import PARSER_FAILED, Fence, ParserFailedError
from tracelake.ingest.identity import (
    RunOrder,
    content_hash,
    feeding_order,
    first_source,
    group_of,
    original_order,
    original_run_order,
    packed_hashes,
    run_id_of,
)
from tracelake.ingest.known_inputs import ID_BYTES, KnownInput, KnownInputs, Record, base_name
from tracelake.ingest.options import Options
from tracelake.ingest.run_plan import RunPlan, Status
from tracelake.ingest.sniff import InputFile, Sniffed, place_record, skips_of
from tracelake.inputs.streams import FileRef, strip_suffix
from tracelake.lake.manifest import RunEntry, label_of

_Sources = tuple[InputFile, ...]
_Duplicates = tuple[tuple[InputFile, int], ...]


def group(sniffed: Sniffed, options: Options, known: KnownInputs) -> list[RunPlan]:
    """Return runs of the inputs in order of their first source, each compared with the lake.

    Files that their format fails to tell apart are added to the skipped inputs and the failures.
    """
    return _Grouping(sniffed, options, known).plans()


class _Grouping:
    def __init__(self, sniffed: Sniffed, options: Options, known: KnownInputs) -> None:
        self._options = options
        self._known = known
        self._contents: dict[int, str | None] = {}
        self._kept_ids: set[str] = set()
        # Further files with the content of one of a run, by identity of that one's entry.
        self._copies: dict[int, list[InputFile]] = defaultdict(list)
        self._sniffed = sniffed
        # To settle a file, those beside it are looked at as they were sniffed.
        self._by_label = {c.entry.label: c for files in sniffed.files for c in files}
        self._files = [[self._settle(c) for c in files] for files in sniffed.files]
        self._by_label = {c.entry.label: c for files in self._files for c in files}

    def plans(self) -> list[RunPlan]:
        by_id: dict[str, list[_Sources]] = defaultdict(list)
        for sources in list(self._groups()):
            first = first_source(sources)
            content = self._content(first) if first.format.named_by == "content" else None
            by_id[run_id_of(sources, content or first.head_hash)].append(sources)
        planned = []
        for run_id, found in by_id.items():
            runs = list(_fold(found, self._content))
            for sources, duplicates in runs:
                name = run_id if len(runs) == 1 else None
                members = [*((c, i) for i, c in enumerate(sources)), *duplicates]
                copies = ((copy, i) for c, i in members for copy in self._copies[id(c.entry)])
                planned.append(self._plan(name, sources, (*duplicates, *copies)))
        return planned

    # --- one input ------------------------------------------------------------------------

    def _settle(self, file: InputFile) -> InputFile:
        """Recognise a file whose date changed but not its content."""
        if file.known is not None:
            return file
        for known in self._known.at(file.entry.label):
            record = known.record
            same = (record["size"], record["head_hash"]) == (file.entry.size, file.head_hash)
            if same and record["content_hash"] == self._content(file):
                return file._replace(known=known)
        return file

    def _content(self, file: InputFile) -> str | None:
        if file.known is not None:
            return str(file.known.record["content_hash"])
        key = id(file.entry)
        if key not in self._contents and file.entry.packed:
            self._contents |= self._packed_contents(file.entry.location)
        elif key not in self._contents:
            self._contents[key] = content_hash(file.entry)
        if self._contents[key] is None and (plain := self._being_compressed(file)):
            return self._content(plain)
        return self._contents[key]

    def _being_compressed(self, file: InputFile) -> InputFile | None:
        """Return the file of which a compressed one has the beginning so far, in the same place."""
        plain = self._by_label.get(strip_suffix(file.entry.label))
        if plain is None or plain is file:
            return None
        return plain if plain.beginnings.startswith(file.beginnings) else None

    def _packed_contents(self, location: str) -> dict[int, str | None]:
        """Return hashes of all files of a tar, by identity of their entries, in one pass."""
        entries = self._packed[location]
        hashes = packed_hashes(entries)
        return {id(entry): hashes[entry.position] for entry in entries}

    @functools.cached_property
    def _packed(self) -> Mapping[str, list[FileRef]]:
        """All files of tars, by the location of the tar."""
        by_location: dict[str, list[FileRef]] = defaultdict(list)
        for file in itertools.chain.from_iterable(self._sniffed.files):
            if file.entry.packed:
                by_location[file.entry.location].append(file.entry)
        return by_location

    # --- one run --------------------------------------------------------------------------

    def _groups(self) -> Iterator[_Sources]:
        for files in self._files:
            by_format: dict[str, list[InputFile]] = defaultdict(list)
            for file in files:
                by_format[file.format.name].append(file)
            for found in by_format.values():
                members = self._without_copies(found)
                facts = [c.facts._replace(key=key) for key, c in enumerate(members)]
                try:
                    with Fence(members[0].format, (c.entry for c in members)):
                        grouped = members[0].format.group(facts, self._options.run_gap_seconds)
                        runs = [one for one in grouped if one]
                        if sorted(f.key for one in runs for f in one) != [*range(len(facts))]:
                            raise ValueError("group() put a file into no run, or into several")
                except ParserFailedError as error:
                    self._sniffed.failures.append(error.failure)
                    self._sniffed.skips.extend(skips_of(found, PARSER_FAILED))
                    continue
                for one in runs:
                    if all(named.beside for named in one):
                        alone = [members[named.key] for named in one]
                        self._sniffed.skips.extend(skips_of(alone, "no_format"))
                        continue
                    sources = [members[named.key]._replace(facts=named) for named in one]
                    yield tuple(sorted(sources, key=feeding_order))

    def _without_copies(self, found: Sequence[InputFile]) -> list[InputFile]:
        """Keep one of the files of a rank, stamp and folder that have the same content."""
        alike: dict[tuple[object, ...], list[InputFile]] = defaultdict(list)
        for file in found:
            facts = file.facts
            key = (posixpath.dirname(facts.path), facts.stem, facts.stamp, facts.rank)
            # Files of no rank are told apart by the rest of the plan.
            alike[key if facts.rank is not None else (id(file),)].append(file)
        copies: set[int] = set()
        for files in alike.values():
            if len(files) > 1:
                copies.update(self._fold_copies(files))
        return [c for c in found if id(c.entry) not in copies]

    def _fold_copies(self, files: Iterable[InputFile]) -> Iterator[int]:
        """Note copies of the first file with their content, and yield them."""
        firsts: dict[str, InputFile] = {}
        for file in sorted(files, key=lambda c: original_order(c.entry.label)):
            content = self._content(file)
            if content is None:
                continue
            first = firsts.setdefault(content, file)
            if first is not file:
                self._copies[id(first.entry)].append(file)
                yield id(file.entry)

    def _plan(self, run_id: str | None, sources: _Sources, duplicates: _Duplicates) -> RunPlan:
        known = self._predecessors([*sources, *(copy for copy, _ in duplicates)])
        replaces = {name: run for name, run in known.items() if name not in self._known.dropped}
        if known and not replaces:
            (name, run), *_ = known.items()
            return RunPlan(name, run.group, sources, duplicates, status=Status.DROPPED)
        if run_id is None or (run_id in self._known.runs and run_id not in replaces):
            run_id = self._kept_id(replaces) or self._id_by_content(sources)
        missing = tuple(self._missing(replaces)) if replaces else ()
        group = next((run.group for run in replaces.values()), None) or group_of(run_id, sources)
        plan = RunPlan(run_id, group, sources, duplicates, tuple(replaces.values()), missing)
        return self._with_status(plan)

    def _kept_id(self, replaces: Mapping[str, RunEntry]) -> str | None:
        """Return the id of the one run that a run continues, if no other continues it too."""
        same = [name for name in replaces if name not in self._kept_ids]
        if len(same) != 1:
            return None
        self._kept_ids.update(same)
        return same[0]

    def _id_by_content(self, sources: _Sources) -> str:
        # A file that cannot be read to its end has its beginning and its name.
        content = "".join(self._content(c) or f"{c.beginnings}{c.entry.label}" for c in sources)
        name = run_id_of(sources, hashlib.sha256(content.encode()).hexdigest())
        if name in self._kept_ids:  # a copy with more lines by now has kept it
            content += sources[0].entry.label
            name = run_id_of(sources, hashlib.sha256(content.encode()).hexdigest())
        return name

    def _missing(self, replaces: Mapping[str, RunEntry]) -> Iterator[str]:
        """Yield labels of inputs that runs had and no planned run has, under any name."""
        for run in replaces.values():
            for record in run.sources:
                label = label_of(record)
                if label not in self._by_label and not any(
                    self._continues(c, KnownInput(run, record))
                    for c in self._alike(record)
                    if c.known is None or c.known.run.run_id in replaces
                ):
                    yield label

    def _alike(self, record: Record) -> Iterator[InputFile]:
        """Yield inputs that may be a remembered one: by name, or by their first bytes."""
        by_name, by_head = self._indexes
        yield from by_name.get(base_name(label_of(record)), ())
        yield from by_head.get(record["head_hash"], ())

    @functools.cached_property
    def _indexes(self) -> tuple[dict[str, list[InputFile]], dict[str, list[InputFile]]]:
        """All inputs by base name, and by the hash of their first bytes."""
        by_name: dict[str, list[InputFile]] = defaultdict(list)
        by_head: dict[str, list[InputFile]] = defaultdict(list)
        for file in itertools.chain.from_iterable(self._files):
            by_name[base_name(file.entry.label)].append(file)
            by_head[file.head_hash].append(file)
        return by_name, by_head

    def _with_status(self, plan: RunPlan) -> RunPlan:
        inputs = plan.inputs
        shaping = self._options.shaping(plan.format)
        shaped_alike = (
            len(plan.replaces) == 1
            and _shaped_by(plan.replaces[0].options, shaping)
            and all(
                c.known and c.known.record.get("place") == place_record(c.place) for c in inputs
            )
            and plan.replaces[0].run_id not in self._known.lost
        )
        if shaped_alike:
            (run,) = plan.replaces
            same = {c.entry.label for c in inputs} == {label_of(r) for r in run.sources}
            if same or (plan.missing and not self._options.replace):
                fresh = all(c.known and _same_stat(c.entry, c.known) for c in inputs)
                status = Status.UNCHANGED if fresh or plan.missing else Status.REFRESHED
                return replace(plan, run_id=run.run_id, status=status)
        if plan.missing and not self._options.replace:
            return replace(plan, run_id=plan.replaces[0].run_id, status=Status.KEPT)
        return replace(plan, status=Status.UPDATED if plan.replaces else Status.NEW)

    def _predecessors(self, sources: Iterable[InputFile]) -> dict[str, RunEntry]:
        """Return committed runs with an earlier state of one of these inputs."""
        found: dict[str, RunEntry] = {}
        for source in sources if self._known.runs else ():
            label = source.entry.label
            if source.known is not None:
                found[source.known.run.run_id] = source.known.run
                continue
            for known in self._known.near(label, source.head_hash, source.entry):
                if known.run.run_id in found:
                    continue
                # Names are compared first: to compare content reads files.
                elsewhere = label != label_of(known.record)
                if not (elsewhere and self._still_there(known)) and self._continues(source, known):
                    found[known.run.run_id] = known.run
        return dict(sorted(found.items()))

    def _still_there(self, known: KnownInput) -> bool:
        """Return whether the name of an earlier input has that input, not a later file."""
        file = self._by_label.get(label_of(known.record))
        return file is not None and self._continues(file, known)

    def _continues(self, source: InputFile, known: KnownInput) -> bool:
        """Return whether the input equals the earlier one, perhaps with more or less at its end."""
        record = known.record
        if label_of(record) == source.entry.label and record["head_hash"] == source.head_hash:
            return not _overwritten(source, known)
        shorter = source.entry.weight < record["weight"] and source.beginnings
        if shorter and label_of(record) == source.entry.label:
            return bool(record.get("beginnings", "").startswith(source.beginnings))
        small = record["bytes"] < ID_BYTES
        if not (
            _begin_alike(source, record) and (small or record["head_hash"] == source.head_hash)
        ):
            return False
        return bool(record["content_hash"] == content_hash(source.entry, record["bytes"]))


def _begin_alike(source: InputFile, record: Record) -> bool:
    """Return whether the first 64 KiB of an input may be those of the earlier one, and more."""
    before, now = record.get("beginnings", ""), source.beginnings
    return before.startswith(now) or now.startswith(before)


def _overwritten(source: InputFile, known: KnownInput) -> bool:
    """Return whether an input of the same name and first 4 KiB has another text after these.

    Jobs that write their logs under one name print the same arguments for longer than that. What is
    beyond the first 64 KiB is not read for it: there the first date in the text decides.
    """
    record, options = known.record, known.run.options
    decided_alike = (options["format"], options["parser"]) == (
        source.format.name,
        source.format.version,
    )
    if source.format.dated_by == "content" and decided_alike:
        before, now = record["facts"]["stamp"], source.base.stamp
        if before and now and before != now.isoformat():
            return True
    if not _begin_alike(source, record):
        return True
    if record["bytes"] > HEAD_BYTES or source.entry.weight < record["weight"]:
        return False
    # None for a file that cannot be read so far.
    return content_hash(source.entry, record["bytes"]) not in (None, record["content_hash"])


def _shaped_by(options: Record, shaping: Record) -> bool:
    """Return whether a run has these options; one that a later version has read may keep that."""
    parser = min(options["parser"], shaping["parser"])
    return {**options, "parser": parser} == shaping


def _same_stat(entry: FileRef, known: KnownInput) -> bool:
    stat = (entry.size, entry.mtime_ns, entry.inode)
    return stat == tuple(known.record[name] for name in ("size", "mtime_ns", "inode"))


def _fold(
    found: Sequence[_Sources], content_of: Callable[[InputFile], str | None]
) -> Iterator[tuple[_Sources, _Duplicates]]:
    """Return runs of one id; a run whose every input is in a larger one is a duplicate.

    Of equal runs one with a date is no duplicate, as in `tracelake.ingest.duplicates`.

    Args:
        content_of: Hash of an input's content, None if it cannot be read.
    """
    if len(found) == 1:
        yield found[0], ()
        return
    runs: list[tuple[_Sources, dict[str | None, int]]] = []
    duplicates: list[list[tuple[InputFile, int]]] = []
    holders: dict[str | None, list[int]] = defaultdict(list)
    for group in sorted(found, key=_original_order):
        contents = [content_of(c) for c in group]
        whole = (
            k
            for k in (holders[contents[0]] if None not in contents else ())
            if all(content in runs[k][1] for content in contents)
        )
        known = next(whole, None)
        if known is not None:
            index = runs[known][1]
            duplicates[known] += [(c, index[h]) for c, h in zip(group, contents, strict=True)]
            continue
        index = {content: i for i, content in reversed(list(enumerate(contents)))}
        for content in index:
            holders[content].append(len(runs))
        runs.append((group, index))
        duplicates.append([])
    for (group, _), folded in zip(runs, duplicates, strict=True):
        yield group, tuple(folded)


def _original_order(sources: _Sources) -> RunOrder:
    return original_run_order([c.entry.label for c in sources], (c.facts.stamp for c in sources))
