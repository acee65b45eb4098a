"""What a lake's manifests say: committed runs and their part files."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pipeline.errors import LakeError
from pipeline.schema import PARTITION_KEY, SCHEMA_VERSION

# Hive's own spelling of NULL in a partition folder: the rows of `skipped` belong to no run.
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A committed run.

    Attributes:
        group: Stem of the manifest that names it.
        generation: Changes whenever the run's rows do.
        parts: Part files by table, posix, relative to the lake's root.
        sources: What was remembered of each input, by source_id; see `pipeline.ingest.work`.
        options: The options that shaped it.
    """

    run_id: str
    group: str
    generation: str
    parts: Mapping[str, tuple[str, ...]]
    sources: tuple[Mapping[str, Any], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, group: str, run_id: str, entry: Mapping[str, Any]) -> Self:
        """The run that an entry of a group's manifest tells of.

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

    def to_json(self) -> dict[str, Any]:
        """The entry as it stands in its manifest."""
        return {
            "generation": self.generation,
            "parts": {table: list(parts) for table, parts in sorted(self.parts.items())},
            "options": dict(self.options),
            "sources": [dict(source) for source in self.sources],
        }


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of a group in a commit.

    Attributes:
        entries: Runs that are added, or replaced by these.
        staged: Final path, relative to the lake's root -> staged file.
        drop: Runs that the entries supersede -> their group; those of other groups are dropped
            after this group has been committed.
    """

    group: str
    entries: Sequence[RunEntry]
    staged: Mapping[str, Path]
    drop: Mapping[str, str]


@dataclass(frozen=True)
class Snapshot:
    """One consistent reading of all manifests."""

    runs: Mapping[str, RunEntry]
    skipped: tuple[str, ...]

    @functools.cached_property
    def stamp(self) -> str:
        """Hash of everything committed: equal stamps, equal lakes."""
        digest = hashlib.sha256()
        for run_id, entry in self.runs.items():
            digest.update(f"{run_id}\0{entry.generation}\0{sorted(entry.parts.items())}\n".encode())
        digest.update(repr(self.skipped).encode())
        return digest.hexdigest()

    def parts(self, table: str, run_ids: Collection[str] | None = None) -> list[str]:
        """Part files of a table, of all runs or of some, in order of run."""
        if table == "skipped":
            return list(self.skipped) if run_ids is None else []
        chosen = self.runs.values() if run_ids is None else map(self.runs.__getitem__, run_ids)
        return sorted(part for entry in chosen for part in entry.parts.get(table, ()))

    @functools.cached_property
    def older(self) -> frozenset[str]:
        """Part files that an earlier version of the schemas wrote: they may lack columns."""
        return frozenset(
            part
            for entry in self.runs.values()
            if entry.options.get("schema", SCHEMA_VERSION) != SCHEMA_VERSION
            for parts in entry.parts.values()
            for part in parts
        )

    @functools.cached_property
    def all_parts(self) -> frozenset[str]:
        """Every part file that a manifest names."""
        named = {p for e in self.runs.values() for parts in e.parts.values() for p in parts}
        return frozenset(named.union(self.skipped))


def part_folder(table: str, run_id: str | None) -> str:
    """Folder of a run's part files, relative to the lake's root."""
    return f"{table}/{PARTITION_KEY}={NULL_PARTITION if run_id is None else run_id}"
