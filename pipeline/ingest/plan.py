"""Group candidates into runs and compare them with the lake."""

from __future__ import annotations

import enum
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pipeline.formats import FileFacts, Format, Run
from pipeline.ingest.find import Candidate, Findings
from pipeline.ingest.identity import (
    content_hash,
    feeding_order,
    first_source,
    group_of,
    packed_hashes,
    run_id_of,
)
from pipeline.ingest.memory import (
    ID_BYTES,
    Memory,
    Remembered,
    base_name,
    label_of,
    place_record,
)
from pipeline.ingest.options import Options
from pipeline.ingest.streams import Entry
from pipeline.ingest.twins import fold_twins
from pipeline.lake import RunEntry


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
        twins: Duplicates: further inputs with the content of a source.
        duplicate_of: By source index, an earlier input with the same content under another name.
        replaces: Committed runs that this run replaces.
        missing: Labels of inputs that those runs had and no planned run has.
    """

    run_id: str
    group: str
    sources: tuple[Candidate, ...]
    twins: tuple[tuple[Candidate, int], ...] = ()
    duplicate_of: Mapping[int, str] = field(default_factory=dict)
    replaces: tuple[RunEntry, ...] = ()
    missing: tuple[str, ...] = ()
    status: Status = Status.NEW

    @property
    def inputs(self) -> tuple[Candidate, ...]:
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


def plan_runs(findings: Findings, options: Options, memory: Memory) -> list[RunPlan]:
    """Return runs of the inputs in order of their first source, each compared with the lake."""
    return _Planner(findings, options, memory).plans()


class _Planner:
    def __init__(self, findings: Findings, options: Options, memory: Memory) -> None:
        self._options = options
        self._memory = memory
        self._contents: dict[int, str | None] = {}
        self._found = findings.candidates
        self._candidates = [
            [self._settle(c) for c in candidates] for candidates in findings.candidates
        ]
        self._duplicates = self._find_duplicates()

    def plans(self) -> list[RunPlan]:
        groups = list(self._groups())
        covered = {c.entry.label for group in groups for c in group}
        by_id: dict[str, list[tuple[Candidate, ...]]] = defaultdict(list)
        for group in groups:
            by_id[run_id_of(group, first_source(group).head_hash)].append(group)
        planned = []
        for run_id, found in by_id.items():
            runs = list(fold_twins(found, self._content))
            for sources, twins in runs:
                name = run_id if len(runs) == 1 else None
                planned.append(self._plan(name, sources, twins, covered))
        return planned

    # --- one input ------------------------------------------------------------------------

    def _settle(self, candidate: Candidate) -> Candidate:
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

    def _content(self, candidate: Candidate) -> str | None:
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

    def _find_duplicates(self) -> dict[str, str]:
        """Return label -> label of an earlier input with the same content; committed ones first."""
        alike: dict[str, list[Candidate]] = defaultdict(list)
        for candidates in self._candidates:
            for candidate in candidates:
                alike[candidate.head_hash].append(candidate)
        duplicates: dict[str, str] = {}
        for head_hash, group in alike.items():
            firsts = {
                r.record["content_hash"]: label_of(r.record)
                for r in self._memory.headed(head_hash)
                if r.record["duplicate_of"] is None
            }
            if len(group) == 1 and not firsts:
                continue
            labels = {c.entry.label for c in group} | set(firsts.values())
            if len(labels) == 1:
                continue
            for candidate in sorted(group, key=lambda c: c.entry.label):
                content = self._content(candidate)
                if content is not None:
                    first = firsts.setdefault(content, candidate.entry.label)
                    if first != candidate.entry.label:
                        duplicates[candidate.entry.label] = first
        return duplicates

    # --- one run --------------------------------------------------------------------------

    def _groups(self) -> Iterator[tuple[Candidate, ...]]:
        for candidates in self._candidates:
            by_format: dict[str, list[Candidate]] = defaultdict(list)
            for candidate in candidates:
                by_format[candidate.format.name].append(candidate)
            for members in by_format.values():
                facts = [c.facts._replace(key=key) for key, c in enumerate(members)]
                for files in members[0].format.group(facts, self._options.run_gap_seconds):
                    sources = [members[file.key]._replace(facts=file) for file in files]
                    yield tuple(sorted(sources, key=feeding_order))

    def _plan(
        self,
        run_id: str | None,
        sources: tuple[Candidate, ...],
        twins: tuple[tuple[Candidate, int], ...],
        covered: set[str],
    ) -> RunPlan:
        known = self._predecessors(sources)
        replaces = {name: run for name, run in known.items() if name not in self._memory.dropped}
        if known and not replaces:
            (name, run), *_ = known.items()
            return RunPlan(name, run.group, sources, twins, status=Status.DROPPED)
        if run_id is None or (run_id in self._memory.runs and run_id not in replaces):
            whole = hashlib.sha256("".join(self._content(c) or "" for c in sources).encode())
            run_id = run_id_of(sources, whole.hexdigest())
        missing = tuple(self._missing(replaces.values(), sources, covered)) if replaces else ()
        group = next((run.group for run in replaces.values()), None) or group_of(run_id, sources)
        own = {twin.entry.label for twin, _ in twins}
        duplicates = {
            i: first
            for i, c in enumerate(sources)
            if (first := self._duplicates.get(c.entry.label)) is not None and first not in own
        }
        plan = RunPlan(run_id, group, sources, twins, duplicates, tuple(replaces.values()), missing)
        return self._judge(plan)

    def _missing(
        self, replaces: Iterable[RunEntry], sources: Iterable[Candidate], covered: set[str]
    ) -> Iterator[str]:
        """Yield labels of inputs that earlier runs had and no planned run has, under any name."""
        by_name: dict[str, list[Candidate]] = defaultdict(list)
        for source in sources:
            by_name[base_name(source.entry.label)].append(source)
        for run in replaces:
            for record in run.sources:
                label = label_of(record)
                if label not in covered and not any(
                    self._continues(source, Remembered(run, record))
                    for source in by_name[base_name(label)]
                ):
                    yield label

    def _judge(self, plan: RunPlan) -> RunPlan:
        inputs = plan.inputs
        unread = all(c.known is not None for c in inputs)
        shaping = self._options.shaping(plan.format)
        shaped_alike = (
            len(plan.replaces) == 1
            and unread
            and plan.replaces[0].options == shaping
            and all(c.known and c.known.record["place"] == place_record(c.place) for c in inputs)
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

    def _predecessors(self, sources: Iterable[Candidate]) -> dict[str, RunEntry]:
        """Return committed runs with an earlier state of one of these inputs."""
        found: dict[str, RunEntry] = {}
        for source in sources if self._memory.runs else ():
            label = source.entry.label
            if source.known is not None:
                found[source.known.run.run_id] = source.known.run
                continue
            here = self._memory.at(label)
            named = self._memory.named(label, source.head_hash)
            for known in [*here, *named]:
                if known.run.run_id not in found and self._continues(source, known):
                    found[known.run.run_id] = known.run
        return dict(sorted(found.items()))

    def _continues(self, source: Candidate, known: Remembered) -> bool:
        """Return whether the input equals the earlier one, perhaps with more at its end."""
        record = known.record
        if label_of(record) == source.entry.label and record["head_hash"] == source.head_hash:
            return True
        small = record["bytes"] < ID_BYTES
        if record["head_hash"] != source.head_hash and not small:
            return False
        return bool(record["content_hash"] == content_hash(source.entry, record["bytes"]))


def _same_stat(entry: Entry, known: Remembered) -> bool:
    stat = (entry.size, entry.mtime_ns, entry.inode)
    return stat == tuple(known.record[name] for name in ("size", "mtime_ns", "inode"))
