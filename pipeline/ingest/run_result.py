"""Define what was done for a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracelake.formats.ledger import Fault
from tracelake.ingest.fence import ParserFailure
from tracelake.ingest.run_plan import RunPlan, Status
from tracelake.lake.manifest import RunEntry


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of one run. Figures are of this ingest: 0 for a run that was not read.

    Attributes:
        files: Inputs of the run.
        lines, rows, rejected: Over all sources.
        bad_ratio: Rejected / (record lines + rejected); 0 without either.
        missing: Inputs that the run in the lake has, or had with more lines.
        usable: Whether the run has anything of its format. Rejected lines count, unless the format
            was forced on the input.
        foreign: Its file is of something else: it need not be read again.
        entry: The run to commit; None once that is done, or if there is nothing to commit.
        staged: Final path, relative to the lake -> staged file.
        failure: Why the run is left out as a whole; None for every other run.
    """

    run_id: str
    format: str
    status: Status
    files: int
    bytes: int = 0
    lines: int = 0
    rows: int = 0
    rejected: int = 0
    bad_ratio: float = 0.0
    complete: bool | None = None
    missing: tuple[str, ...] = ()
    faults: Mapping[Fault, int] = field(default_factory=dict)
    usable: bool = True
    foreign: bool = False
    entry: RunEntry | None = None
    staged: Mapping[str, Path] = field(default_factory=dict)
    failure: ParserFailure | None = None

    @classmethod
    def of(cls, plan: RunPlan, **found: Any) -> RunResult:
        """Return the result of the run with this plan."""
        return cls(plan.run_id, plan.format.name, plan.status, len(plan.inputs), **found)
