"""What an ingest did: run by run, and in a few lines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pipeline.faults import Fault
from pipeline.ingest.memory import Record
from pipeline.ingest.plan import Status
from pipeline.ingest.work import RunResult
from pipeline.text import counted


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What became of one run. The figures are of this ingest: 0 for a run that was not read."""

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
    faults: dict[Fault, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What an ingest did, run by run, and what it passed over."""

    runs: tuple[RunOutcome, ...]
    skips: tuple[Record, ...]

    @property
    def written(self) -> int:
        """Runs whose rows were written."""
        return sum(run.status in (Status.NEW, Status.UPDATED) for run in self.runs)

    @property
    def bytes(self) -> int:
        """Decompressed bytes that were read."""
        return sum(run.bytes for run in self.runs)

    @property
    def rejected(self) -> int:
        """Lines that were not understood."""
        return sum(run.rejected for run in self.runs)

    def told(self) -> list[str]:
        """The report in a few lines for people."""
        by_status = Counter(run.status for run in self.runs)
        states = ", ".join(f"{by_status[s]:,} {s}" for s in Status if by_status[s])
        told = [f"{counted(len(self.runs), 'run')}: {states}"]
        if self.written:
            lines = sum(run.lines for run in self.runs)
            told.append(
                f"read {self.bytes / 1e6:,.1f} MB, {lines:,} lines, {self.rejected:,} rejected"
            )
        else:
            told.append("nothing to write: the lake holds all of this already")
        by_reason = Counter(skip["reason"] for skip in self.skips)
        if by_reason:
            reasons = ", ".join(f"{n:,} {reason}" for reason, n in sorted(by_reason.items()))
            told.append(
                f"passed over {counted(len(self.skips), 'input')}: {reasons} (table skipped)"
            )
        return told


def outcome_of(result: RunResult, status: Status, missing: tuple[str, ...] = ()) -> RunOutcome:
    """The outcome of a run that was parsed."""
    return RunOutcome(
        result.plan.run_id,
        result.plan.format.name,
        status,
        len(result.entry.sources),
        result.bytes,
        result.lines.lines,
        result.lines.rows,
        result.lines.rejected,
        result.bad_ratio,
        result.complete,
        missing,
        dict(result.faults),
    )
