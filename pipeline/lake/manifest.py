"""Represent a lake's manifests: committed runs and their part files."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tracelake.base.errors import too_new
from tracelake.base.packing import spans_of
from tracelake.lake.layout import names_runs, table_of_part
from tracelake.schema.tables import SCHEMA_VERSION, tables

MANIFEST_VERSION = 2
READ_VERSIONS = (1, MANIFEST_VERSION)
"""Version 1 names parts of one run only."""
_HALF_DIGITS = 16
# Options that say by what a run was read, and nothing about it.
_READ_BY = ("parser", "schema")

RunsOf = Mapping[str, tuple[str, ...]]
"""Part file, relative to the lake's root -> the runs whose rows it has, in order."""


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A committed run.

    Attributes:
        group: Stem of the manifest that names it.
        generation: Changes whenever the run's rows do.
        parts: Part files with its rows by table, posix, relative to the lake's root.
        sources: The record of each input, by source_id; see `tracelake.ingest.sniff`.
        options: The options of its ingest.
    """

    run_id: str
    group: str
    generation: str
    parts: Mapping[str, tuple[str, ...]]
    sources: tuple[Mapping[str, Any], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, group: str, run_id: str, entry: Mapping[str, Any]) -> Self:
        """Return the run of an entry in a group's manifest.

        Raises:
            LakeError: A newer tracelake wrote its part files.
        """
        schema = entry["options"].get("schema", SCHEMA_VERSION)
        if schema > SCHEMA_VERSION:
            path = f"_manifest/{group}.json"
            raise too_new(
                f"wrote run {run_id}", "its tables have version", schema, SCHEMA_VERSION, path
            )
        return cls(
            run_id,
            group,
            entry["generation"],
            {table: tuple(parts) for table, parts in entry["parts"].items()},
            tuple(entry["sources"]),
            entry["options"],
        )

    @property
    def all_parts(self) -> Iterator[str]:
        """Return its part files, table by table."""
        return itertools.chain.from_iterable(self.parts.values())

    @property
    def text_bytes(self) -> int:
        """Bytes of its inputs, decompressed."""
        return sum(source["bytes"] for source in self.sources)

    @property
    def is_current(self) -> bool:
        """Tell whether its part files are of this version of the schemas."""
        return bool(self.options.get("schema", SCHEMA_VERSION) == SCHEMA_VERSION)

    @property
    def rows(self) -> tuple[object, ...]:
        """Return what changes when its rows do, or their place."""
        return self.group, self.generation, self.parts

    def to_json(self) -> dict[str, Any]:
        """Return the entry as its manifest stores it."""
        return {
            "generation": self.generation,
            "parts": {table: list(parts) for table, parts in sorted(self.parts.items())},
            "options": dict(self.options),
            "sources": [dict(source) for source in self.sources],
        }


@dataclass(frozen=True, slots=True)
class Group:
    """The content of a group's manifest.

    Attributes:
        runs: Run -> its entry as JSON, in order.
        runs_of: The runs that parts were written with: those that were replaced or dropped since
            are still among them, and no longer name the part.
    """

    runs: Mapping[str, Mapping[str, Any]]
    runs_of: RunsOf

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return the group of a manifest; one without runs if it does not exist."""
        runs_of = from_spans(content.get("parts", {}), content.get("listed", ()))
        return cls(content.get("runs", {}), runs_of)

    def to_json(self) -> dict[str, Any] | None:
        """Return the manifest; None without runs, which need none."""
        if not self.runs:
            return None
        tables = itertools.chain.from_iterable(run["parts"].values() for run in self.runs.values())
        named = set(itertools.chain.from_iterable(tables))
        listed, parts = to_spans({p: runs for p, runs in self.runs_of.items() if p in named})
        return {
            "version": MANIFEST_VERSION,
            "runs": self.runs,
            "listed": listed,
            "parts": parts,
        }


def to_spans(runs_of: RunsOf) -> tuple[list[str], dict[str, list[tuple[int, int]]]]:
    """Return all runs in order, and per part first and last of each sequence of them."""
    named = sorted({run for runs in runs_of.values() for run in runs})
    place = {run: number for number, run in enumerate(named)}
    places = {part: [place[run] for run in runs] for part, runs in sorted(runs_of.items())}
    return named, {part: list(spans_of(numbers)) for part, numbers in places.items()}


def from_spans(
    parts: Mapping[str, Sequence[Sequence[int]]], named: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the runs of parts; see `to_spans`."""
    return {
        part: tuple(run for first, last in spans for run in named[first : last + 1])
        for part, spans in parts.items()
    }


def runs_by_part(entries: Iterable[RunEntry]) -> dict[str, tuple[str, ...]]:
    """Return the parts that entries name, each with these runs."""
    found: dict[str, list[str]] = {}
    for entry in sorted(entries, key=lambda entry: entry.run_id):
        for part in entry.all_parts:
            found.setdefault(part, []).append(entry.run_id)
    return {part: tuple(runs) for part, runs in found.items()}


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of one group in a commit.

    Attributes:
        entries: Runs that are added or that replace others.
        staged: Final path, relative to the lake's root -> staged file.
        drop: Runs that the entries supersede; those of other groups are dropped after this group
            has been committed.
        over: The entries that the new ones are made from; if a run has changed since, its new entry
            is left out. None takes all entries.
        runs_of: The runs of parts that have rows of others than the entries.
    """

    group: str
    entries: Sequence[RunEntry]
    staged: Mapping[str, Path]
    drop: Collection[str] = ()
    over: Collection[RunEntry] | None = None
    runs_of: RunsOf = field(default_factory=dict)

    def taken(self, committed: Mapping[str, RunEntry]) -> dict[str, dict[str, Any]]:
        """Return the entries that are taken over what is committed."""
        entries = {entry.run_id: entry for entry in self.entries}
        for run in self.over or ():
            if run.run_id not in committed or committed[run.run_id].rows != run.rows:
                entries.pop(run.run_id, None)
        return {run_id: entry.to_json() for run_id, entry in entries.items()}

    def listed(self, before: RunsOf) -> RunsOf:
        """Return the runs of the group's parts, of those whose rows name their run.

        Args:
            before: Those of the parts that it had.
        """
        named = runs_by_part(self.entries).items()
        return {**{p: runs for p, runs in named if names_runs(p)}, **before, **self.runs_of}


@dataclass(frozen=True)
class Snapshot:
    """One consistent read of all manifests.

    Attributes:
        skipped: Part files with the rows of `skipped`.
        runs_of: See `Group`; parts whose rows do not name their run are not among them.
        twice: Runs that two groups name, each with the group that lost.
    """

    runs: Mapping[str, RunEntry]
    skipped: tuple[str, ...]
    runs_of: RunsOf = field(default_factory=dict)
    twice: tuple[tuple[str, str], ...] = ()

    @functools.cached_property
    def stamp(self) -> str:
        """Return a hash of everything committed and its place: equal stamps, equal lakes."""
        digest = hashlib.sha256()
        for run_id, entry in self.runs.items():
            parts = sorted(entry.parts.items())
            digest.update(f"{run_id}\0{entry.generation}\0{parts}\n".encode())
        digest.update(repr(self.skipped).encode())
        return digest.hexdigest()

    def sharers(self, part: str) -> int:
        """Return how many runs have rows in a part file."""
        return len(self.runs_of.get(part, (part,)))

    def parts_by_table(self, run_ids: Iterable[str] | None = None) -> dict[str, list[str]]:
        """Return part files by table, of all runs or of some, in order of name."""
        chosen = None if run_ids is None else runs_by_part(self.runs[run_id] for run_id in run_ids)
        found: dict[str, list[str]] = {name: [] for name in tables()}
        for part in sorted(self.living if chosen is None else chosen):
            found[table_of_part(part)].append(part)
        if chosen is None:
            found["skipped"] += self.skipped
        return found

    @functools.cached_property
    def living(self) -> RunsOf:
        """Return every part that runs name, with these runs."""
        return runs_by_part(self.runs.values())

    @functools.cached_property
    def dead(self) -> Mapping[str, frozenset[str]]:
        """Return parts with outdated rows, each with their runs: these were replaced or dropped."""
        outdated = {
            part: frozenset(self.runs_of.get(part, ())).difference(runs)
            for part, runs in self.living.items()
        }
        return {part: runs for part, runs in outdated.items() if runs}

    @functools.cached_property
    def older(self) -> frozenset[str]:
        """Part files of an earlier version of the schemas, which may lack columns."""
        return frozenset(
            part for entry in self.runs.values() if not entry.is_current for part in entry.all_parts
        )

    @functools.cached_property
    def all_parts(self) -> frozenset[str]:
        """Return every part file that has rows of a run, or of skipped inputs."""
        return frozenset(self.skipped).union(*(run.all_parts for run in self.runs.values()))


def group_name(names: Iterable[str]) -> str:
    """Return the name of a group of several runs: a hash of their ids, or of their parts."""
    return f"runs-{hashlib.sha256(' '.join(sorted(names)).encode()).hexdigest()[:12]}"


def generation_of(options: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the generation of a run.

    It is a hash of what the run has, and one of how its files are named and by what they were read.
    """
    ours = [(name, value) for name, value in sorted(options.items()) if name not in _READ_BY]
    content = hashlib.sha256(repr(ours).encode())
    names = hashlib.sha256(repr([options.get(name) for name in _READ_BY]).encode())
    for row in rows:
        content.update(repr([row[name] for name in ("content_hash", "host", "device")]).encode())
        names.update(repr([row[name] for name in ("path", "member", "duplicate_of")]).encode())
    return content.hexdigest()[:_HALF_DIGITS] + names.hexdigest()[:_HALF_DIGITS]


def content_in(generation: str) -> str:
    """Return the part of a generation that stays where files are moved or read anew."""
    return generation[:_HALF_DIGITS]


def label_of(source: Mapping[str, Any]) -> str:
    """Return path and member of a remembered input as one posix path."""
    member = source["member"]
    return str(source["path"]) if member is None else f"{source['path']}/{member}"
