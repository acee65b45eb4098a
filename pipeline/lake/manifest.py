"""Represent a lake's manifests: committed runs and their part files."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tracelake.base.errors import LakeError
from tracelake.lake.packs import Packs
from tracelake.schema.tables import PARTITION_KEY, SCHEMA_VERSION

# Hive's own spelling of NULL in a partition folder: the rows of `skipped` belong to no run.
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A committed run.

    Attributes:
        group: Stem of the manifest that names it.
        generation: Changes whenever the run's rows do.
        parts: Part files by table, posix, relative to the lake's root, as they were committed;
            `Snapshot.parts_of` says where the rows are.
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
            raise LakeError(
                f"a newer tracelake wrote run {run_id}: its tables have version {schema}, this"
                f" tracelake knows {SCHEMA_VERSION}",
                path=f"_manifest/{group}.json",
                hint="use that tracelake, or a newer one",
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
    def is_current(self) -> bool:
        """Tell whether its part files are of this version of the schemas."""
        return bool(self.options.get("schema", SCHEMA_VERSION) == SCHEMA_VERSION)

    def to_json(self) -> dict[str, Any]:
        """Return the entry as its manifest stores it."""
        return {
            "generation": self.generation,
            "parts": {table: list(parts) for table, parts in sorted(self.parts.items())},
            "options": dict(self.options),
            "sources": [dict(source) for source in self.sources],
        }


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of one group in a commit.

    Attributes:
        entries: Runs that are added or that replace others.
        staged: Final path, relative to the lake's root -> staged file.
        drop: Runs that the entries supersede -> their group; those of other groups are dropped
            after this group has been committed.
        over: Run -> the generation that its entry is made from; an entry whose run has another one
            by now is left out. None takes all entries.
    """

    group: str
    entries: Sequence[RunEntry]
    staged: Mapping[str, Path]
    drop: Mapping[str, str]
    over: Mapping[str, str] | None = None

    def taken(self, committed: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """The entries that are taken over what the group's manifest has."""
        return {
            entry.run_id: entry.to_json()
            for entry in self.entries
            if self.over is None
            or committed.get(entry.run_id, {}).get("generation") == self.over[entry.run_id]
        }


@dataclass(frozen=True)
class Snapshot:
    """One consistent read of all manifests."""

    runs: Mapping[str, RunEntry]
    skipped: tuple[str, ...]
    packs: Packs = field(default_factory=Packs)

    @functools.cached_property
    def stamp(self) -> str:
        """Return a hash of everything committed and its place: equal stamps, equal lakes."""
        digest = hashlib.sha256()
        for run_id, entry in self.runs.items():
            parts = sorted(self.parts_of(run_id).items())
            digest.update(f"{run_id}\0{entry.generation}\0{parts}\n".encode())
        digest.update(repr(self.skipped).encode())
        return digest.hexdigest()

    def parts_of(self, run_id: str) -> Mapping[str, tuple[str, ...]]:
        """Return part files that have a run's rows, by table: its own, or packs instead."""
        entry = self.runs[run_id]
        if self.packs.generations.get(run_id) != entry.generation:
            return entry.parts
        return {**entry.parts, **self.packs.by_run[run_id]}

    def sharers(self, part: str) -> int:
        """Return how many runs have rows in a part file."""
        return len(self.packs.runs.get(part, (part,)))

    def parts(self, table: str, run_ids: Collection[str] | None = None) -> list[str]:
        """Return part files of a table, of all runs or of some, in order of name."""
        if table == "skipped":
            return list(self.skipped) if run_ids is None else []
        chosen = self.runs if run_ids is None else run_ids
        return sorted({part for run_id in chosen for part in self.parts_of(run_id).get(table, ())})

    @functools.cached_property
    def dead(self) -> frozenset[str]:
        """Return runs whose rows in packs are outdated: they were replaced or dropped."""
        return frozenset(
            run_id
            for run_id, generation in self.packs.generations.items()
            if run_id not in self.runs or self.runs[run_id].generation != generation
        )

    @functools.cached_property
    def older(self) -> frozenset[str]:
        """Part files of an earlier version of the schemas, which may lack columns."""
        return frozenset(
            part
            for run_id, entry in self.runs.items()
            if not entry.is_current
            for parts in self.parts_of(run_id).values()
            for part in parts
        )

    @functools.cached_property
    def all_parts(self) -> frozenset[str]:
        """Return every part file that has rows of a run, or that the list of packs names."""
        named = {p for run in self.runs for parts in self.parts_of(run).values() for p in parts}
        return frozenset(named.union(self.skipped, self.packs.runs))


def generation_of(options: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> str:
    """Returns the generation of a run: a hash of its options and of its rows of `sources`."""
    digest = hashlib.sha256(repr(sorted(options.items())).encode())
    names = ("path", "member", "content_hash", "duplicate_of", "host", "device")
    for row in rows:
        digest.update(repr([row[name] for name in names]).encode())
    return digest.hexdigest()[:32]


def label_of(source: Mapping[str, Any]) -> str:
    """Returns path and member of a remembered input as one posix path."""
    member = source["member"]
    return str(source["path"]) if member is None else f"{source['path']}/{member}"


def part_folder(table: str, run_id: str | None) -> str:
    """Return folder of a run's part files, relative to the lake's root."""
    return f"{table}/{PARTITION_KEY}={NULL_PARTITION if run_id is None else run_id}"
