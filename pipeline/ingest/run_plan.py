"""Define what is to be done for a run."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tracelake.formats import FileFacts, Format, Run
from tracelake.ingest.sniff import InputFile
from tracelake.lake.manifest import RunEntry


class Status(enum.StrEnum):
    """The action of an ingest for a run."""

    NEW = "new"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    REFRESHED = "refreshed"  # same content, another file date: recorded, not parsed
    KEPT = "kept"  # the input has less than the lake
    DROPPED = "dropped"  # was dropped from the lake on purpose

    @property
    def is_read(self) -> bool:
        """Tell whether the input is parsed."""
        return self in (Status.NEW, Status.UPDATED)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run to be ingested.

    Attributes:
        sources: In feeding order: index = source_id.
        duplicates: Further inputs with the content of a source, each with that source's index:
            the run or a file of it found again.
        replaces: Committed runs this one is the new version of.
        missing: Labels of inputs that those runs had and no planned run has.
        together: Whether its rows are written with those of other runs of its batch and group.
    """

    run_id: str
    group: str
    sources: tuple[InputFile, ...]
    duplicates: tuple[tuple[InputFile, int], ...] = ()
    replaces: tuple[RunEntry, ...] = ()
    missing: tuple[str, ...] = ()
    status: Status = Status.NEW
    together: bool = False

    @property
    def inputs(self) -> tuple[InputFile, ...]:
        """Sources and their duplicates."""
        return (*self.sources, *(copy for copy, _ in self.duplicates))

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
        return Run(tuple(source.facts for source in self.sources), named, given, self.together)

    @property
    def weight(self) -> int:
        """Bytes to be read, as far as known."""
        return sum(source.entry.weight for source in self.sources)
