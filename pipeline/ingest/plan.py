"""Group candidates into runs and compare them with the lake."""

from __future__ import annotations

import enum
import functools
import hashlib
import itertools
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tracelake.formats import FileFacts, Format, Run
from tracelake.ingest.find import Findings, InputFile
from tracelake.ingest.identity import (
    content_hash,
    feeding_order,
    first_source,
    group_of,
    packed_hashes,
    run_id_of,
)
from tracelake.ingest.known_inputs import (
    ID_BYTES,
    KnownInput,
    KnownInputs,
    Record,
    base_name,
    place_record,
)
from tracelake.ingest.options import Options
from tracelake.ingest.twins import fold_twins
from tracelake.inputs.streams import FileRef
from tracelake.lake import RunEntry, label_of


class Status(enum.StrEnum):
    """The action of an ingest for a run."""

    NEW = "new"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    REFRESHED = "refreshed"  # same content, another file date: recorded, not parsed
    KEPT = "kept"  # the input has less than the lake
    DROPPED = "dropped"  # was dropped from the lake on purpose


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run to be ingested.

    Attributes:
        sources: In feeding order: index = source_id.
        twins: Further inputs with the content of a source, each with that source's index: the run
            or a file of it found again.
        replaces: Committed runs this one is the new version of.
        missing: Labels of inputs that those runs had and no planned run has.
    """

    run_id: str
    group: str
    sources: tuple[InputFile, ...]
    twins: tuple[tuple[InputFile, int], ...] = ()
    replaces: tuple[RunEntry, ...] = ()
    missing: tuple[str, ...] = ()
    status: Status = Status.NEW

    @property
    def inputs(self) -> tuple[InputFile, ...]:
        """Sources and their duplicates."""
        return (*self.sources, *(twin for twin, _ in self.twins))

    @property
    def format(self) -> Format:
        """Format of all its sources."""
        return self.sources[0].format

    @property
    def run(self) -> Run:
        """The run as the parser gets it."""
        named: dict[str, int] = {}
        given: dict[str, int] = {}
        before: FileFacts | None = None
        for facts in (source.facts for source in self.sources):
            # Names of a run are mostly equal and then share one mapping.
            if before is None or facts.topology is not before.topology:
                named = {**facts.topology, **named}
            if before is None or facts.given is not before.given:
                given = {**facts.given, **given}
            before = facts
        return Run(tuple(source.facts for source in self.sources), named, given)

    @property
    def weight(self) -> int:
        """Bytes to be read, as far as known."""
        return sum(source.entry.weight for source in self.sources)


def plan_runs(findings: Findings, options: Options, memory: KnownInputs) -> list[RunPlan]:
    """Return runs of the inputs in order of their first source, each compared with the lake."""
    return _Planner(findings, options, memory).plans()


class _Planner:
    def __init__(self, findings: Findings, options: Options, memory: KnownInputs) -> None:
        self._options = options
        self._memory = memory
        self._contents: dict[int, str | None] = {}
        # Further files with the content of one of a run, by identity of that one's entry.
        self._copies: dict[int, list[InputFile]] = defaultdict(list)
        self._found = findings.candidates
        self._candidates = [
            [self._settle(c) for c in candidates] for candidates in findings.candidates
        ]
        self._labels = {c.entry.label for candidates in self._candidates for c in candidates}

    def plans(self) -> list[RunPlan]:
        groups = list(self._groups())
        by_id: dict[str, list[tuple[InputFile, ...]]] = defaultdict(list)
        for group in groups:
            first = first_source(group)
            content = self._content(first) if first.format.named_by == "content" else None
            by_id[run_id_of(group, content or first.head_hash)].append(group)
        planned = []
        for run_id, found in by_id.items():
            runs = list(fold_twins(found, self._content))
            for sources, twins in runs:
                name = run_id if len(runs) == 1 else None
                members = [*((c, i) for i, c in enumerate(sources)), *twins]
                copies = ((copy, i) for c, i in members for copy in self._copies[id(c.entry)])
                planned.append(self._plan(name, sources, (*twins, *copies)))
        return planned

    # --- one input ------------------------------------------------------------------------

    def _settle(self, candidate: InputFile) -> InputFile:
        """Recognise a file whose date changed but not its content."""
        if candidate.known is not None or candidate.entry.packed:
            return candidate
        for known in self._memory.at(candidate.entry.label):
            record = known.record
            same = (record["size"], record["head_hash"]) == (
                candidate.entry.size,
                candidate.head_hash,
            )
            if same and record["content_hash"] == self._content(candidate):
                return candidate._replace(known=known)
        return candidate

    def _content(self, candidate: InputFile) -> str | None:
        if candidate.known is not None:
            return str(candidate.known.record["content_hash"])
        key = id(candidate.entry)
        if key not in self._contents and candidate.entry.packed:
            self._contents |= self._packed_contents(candidate.entry.location)
        elif key not in self._contents:
            self._contents[key] = content_hash(candidate.entry)
        return self._contents[key]

    def _packed_contents(self, location: str) -> dict[int, str | None]:
        """Return hashes of all candidates of a tar, by identity of their entries, in one pass."""
        entries = [c.entry for found in self._found for c in found if c.entry.location == location]
        hashes = packed_hashes(entries)
        return {id(entry): hashes[entry.position] for entry in entries}

    # --- one run --------------------------------------------------------------------------

    def _groups(self) -> Iterator[tuple[InputFile, ...]]:
        for candidates in self._candidates:
            by_format: dict[str, list[InputFile]] = defaultdict(list)
            for candidate in candidates:
                by_format[candidate.format.name].append(candidate)
            for found in by_format.values():
                members = self._without_copies(found)
                facts = [c.facts._replace(key=key) for key, c in enumerate(members)]
                for files in members[0].format.group(facts, self._options.run_gap_seconds):
                    sources = [members[file.key]._replace(facts=file) for file in files]
                    yield tuple(sorted(sources, key=feeding_order))

    def _without_copies(self, found: Sequence[InputFile]) -> list[InputFile]:
        """Keeps one of the files of a rank, stamp and folder that have the same content."""
        alike: dict[tuple[object, ...], list[InputFile]] = defaultdict(list)
        for candidate in found:
            facts = candidate.facts
            key = (posixpath.dirname(facts.path), facts.stem, facts.stamp, facts.rank)
            # Files of no rank are told apart by the rest of the plan.
            alike[key if facts.rank is not None else (id(candidate),)].append(candidate)
        copies: set[int] = set()
        for candidates in alike.values():
            if len(candidates) > 1:
                copies.update(self._fold_copies(candidates))
        return [c for c in found if id(c.entry) not in copies]

    def _fold_copies(self, candidates: Iterable[InputFile]) -> Iterator[int]:
        """Notes which candidates are copies of the first with their content."""
        firsts: dict[str, InputFile] = {}
        for candidate in sorted(candidates, key=lambda c: c.entry.label):
            content = self._content(candidate)
            if content is None:
                continue
            first = firsts.setdefault(content, candidate)
            if first is not candidate:
                self._copies[id(first.entry)].append(candidate)
                yield id(candidate.entry)

    def _plan(
        self,
        run_id: str | None,
        sources: tuple[InputFile, ...],
        twins: tuple[tuple[InputFile, int], ...],
    ) -> RunPlan:
        known = self._predecessors([*sources, *(twin for twin, _ in twins)])
        replaces = {name: run for name, run in known.items() if name not in self._memory.dropped}
        if known and not replaces:
            (name, run), *_ = known.items()
            return RunPlan(name, run.group, sources, twins, status=Status.DROPPED)
        if run_id is None or (run_id in self._memory.runs and run_id not in replaces):
            whole = hashlib.sha256("".join(self._content(c) or "" for c in sources).encode())
            run_id = run_id_of(sources, whole.hexdigest())
        missing = tuple(self._missing(replaces)) if replaces else ()
        group = next((run.group for run in replaces.values()), None) or group_of(run_id, sources)
        plan = RunPlan(run_id, group, sources, twins, tuple(replaces.values()), missing)
        return self._judge(plan)

    def _missing(self, replaces: Mapping[str, RunEntry]) -> Iterator[str]:
        """Labels of inputs that runs had and no planned run has, under that name or another."""
        for run in replaces.values():
            for record in run.sources:
                label = label_of(record)
                if label not in self._labels and not any(
                    self._continues(c, KnownInput(run, record))
                    for c in self._alike(record)
                    if c.known is None or c.known.run.run_id in replaces
                ):
                    yield label

    def _alike(self, record: Record) -> Iterator[InputFile]:
        """Returns inputs that may be a remembered one: by name, or by their first bytes."""
        by_name, by_head = self._indexes
        yield from by_name.get(base_name(label_of(record)), ())
        yield from by_head.get(record["head_hash"], ())

    @functools.cached_property
    def _indexes(self) -> tuple[dict[str, list[InputFile]], dict[str, list[InputFile]]]:
        """All inputs by base name, and by the hash of their first bytes."""
        by_name: dict[str, list[InputFile]] = defaultdict(list)
        by_head: dict[str, list[InputFile]] = defaultdict(list)
        for candidate in itertools.chain.from_iterable(self._candidates):
            by_name[base_name(candidate.entry.label)].append(candidate)
            by_head[candidate.head_hash].append(candidate)
        return by_name, by_head

    def _judge(self, plan: RunPlan) -> RunPlan:
        inputs = plan.inputs
        unread = all(c.known is not None for c in inputs)
        shaping = self._options.shaping(plan.format)
        shaped_alike = (
            len(plan.replaces) == 1
            and unread
            and plan.replaces[0].options == shaping
            and all(
                c.known and c.known.record.get("place") == place_record(c.place) for c in inputs
            )
            and plan.replaces[0].run_id not in self._memory.lost
        )
        if shaped_alike:
            (run,) = plan.replaces
            same = {c.entry.label for c in inputs} == {label_of(r) for r in run.sources}
            if same or plan.missing:
                fresh = all(c.known and _same_stat(c.entry, c.known) for c in inputs)
                status = Status.UNCHANGED if fresh or plan.missing else Status.REFRESHED
                return replace(plan, run_id=run.run_id, status=status)
        if plan.missing and not self._options.replace:
            return replace(plan, run_id=plan.replaces[0].run_id, status=Status.KEPT)
        return replace(plan, status=Status.UPDATED if plan.replaces else Status.NEW)

    def _predecessors(self, sources: Iterable[InputFile]) -> dict[str, RunEntry]:
        """Return committed runs with an earlier state of one of these inputs."""
        found: dict[str, RunEntry] = {}
        for source in sources if self._memory.runs else ():
            label = source.entry.label
            if source.known is not None:
                found[source.known.run.run_id] = source.known.run
                continue
            here = self._memory.at(label)
            named = self._memory.named(label, source.head_hash)
            renamed = (
                known
                for known in self._memory.filed(source.entry)
                if label_of(known.record) not in self._labels
            )
            for known in [*here, *named, *renamed]:
                if known.run.run_id not in found and self._continues(source, known):
                    found[known.run.run_id] = known.run
        return dict(sorted(found.items()))

    def _continues(self, source: InputFile, known: KnownInput) -> bool:
        """Return whether the input equals the earlier one, perhaps with more or less at its end."""
        record = known.record
        if label_of(record) == source.entry.label and record["head_hash"] == source.head_hash:
            return True
        shorter = source.entry.weight < record["weight"] and source.beginnings
        if shorter and label_of(record) == source.entry.label:
            return bool(record.get("beginnings", "").startswith(source.beginnings))
        small = record["bytes"] < ID_BYTES
        if record["head_hash"] != source.head_hash and not small:
            return False
        return bool(record["content_hash"] == content_hash(source.entry, record["bytes"]))


def _same_stat(entry: FileRef, known: KnownInput) -> bool:
    stat = (entry.size, entry.mtime_ns, entry.inode)
    return stat == tuple(known.record[name] for name in ("size", "mtime_ns", "inode"))
