"""Summarise a job as one JSON document, for programs.

docs/nightly/summary.schema.json describes it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb

from tracelake import __version__
from tracelake.base.errors import expected
from tracelake.base.text import with_lake
from tracelake.ingest.report import IngestReport
from tracelake.ingest.run_plan import Status
from tracelake.models.failures import Failure as Failed
from tracelake.nightly.gates import GATES, NO_RUN, BadLines, Failure, Gate, failures
from tracelake.warehouse.headline import MOST_URGENT_FIRST
from tracelake.warehouse.values import Row, read_rows

VERSION = 1
# Files that were skipped and are named; `skipped` counts all of them.
_SKIPPED_FILES = 100
_ROWS = """
SELECT * EXCLUDE (not_computable)
FROM run_summary
WHERE run_id IN (SELECT unnest($1::VARCHAR[]))
ORDER BY run_date DESC NULLS LAST, run_id
"""
_INCIDENTS = f"""
WITH gone AS (
    -- Of incidents that have another id since their first run was dropped: what they were about.
    SELECT list(known[10:]) AS subjects
    FROM (SELECT unnest($1::VARCHAR[]) AS known)
    WHERE known[:8] NOT IN (SELECT incident FROM incidents)
)
SELECT
    i.* EXCLUDE (open, level, run_ids),
    NOT list_contains($1::VARCHAR[], incident) AND NOT coalesce(
        list_has_any(gone.subjects, [subject || ' in ' || run for run in run_ids]), false
    ) AS new
FROM incidents AS i, gone
WHERE open
ORDER BY new DESC, {MOST_URGENT_FIRST}
"""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The result of the gates."""

    run_ids: Sequence[str]
    gates: Sequence[Gate]
    failed: Sequence[Failure]
    bad: Sequence[BadLines]
    max_bad_ratio: float


@dataclass(slots=True)
class Account:
    """Hold what a job has done so far; None for a part that it did not reach.

    Attributes:
        late: Runs of the report not dated within --since that arrived since the last report.
        model_failures: Runs of the warehouse that a model fails on.
        page: Content of the report; see `read_page`.
        incidents: Open incidents of the lake; see `read_incidents`.
        report_url: Where people find the report.
    """

    lake: str
    inputs: Sequence[str]
    started: datetime
    ingested: IngestReport | None = None
    verdicts: Verdicts | None = None
    model_failures: Sequence[Failed] | None = None
    late: Sequence[str] = ()
    page: Mapping[str, Any] | None = None
    incidents: Sequence[Mapping[str, Any]] | None = None
    report: Path | None = None
    report_url: str | None = None
    latest: Path | None = None
    warehouse: str | None = None
    errors: list[BaseException] = field(default_factory=list)
    exit_code: int = 0

    def _named(self, incident: Mapping[str, Any]) -> dict[str, Any]:
        advice = incident["advice"]
        return {**incident, "advice": advice and with_lake(advice, self.lake)}

    def document(self, ended: datetime) -> str:
        """Return the document."""
        document = {
            "version": VERSION,
            "tracelake": __version__,
            "exit_code": self.exit_code,
            "errors": [_error(error, self.lake) for error in self.errors],
            "started": self.started.isoformat(timespec="seconds"),
            "ended": ended.isoformat(timespec="seconds"),
            "lake": self.lake,
            "inputs": list(self.inputs),
            "ingest": None if self.ingested is None else _ingest(self.ingested),
            "verdicts": None if self.verdicts is None else _verdicts(self.verdicts),
            "report": self.report and str(self.report.absolute()),
            "report_url": self.report and self.report_url,
            "latest": self.latest and str(self.latest.absolute()),
            "warehouse": self.warehouse,
            "model_failures": None
            if self.model_failures is None
            else [asdict(run) for run in self.model_failures],
            "late": list(self.late),
            "incidents": None if self.incidents is None else [*map(self._named, self.incidents)],
            **(self.page or {"attention": None, "runs": None}),
        }
        return json.dumps(document, indent=1, allow_nan=False) + "\n"


def read_page(con: duckdb.DuckDBPyConnection, run_ids: Sequence[str]) -> dict[str, Any]:
    """Return the findings of the report's runs, and the main figures of each run."""
    seen = {
        failure.gate.name: failure.seen
        for failure in failures(con, GATES.values(), run_ids, inputs=True)
    }
    return {
        "attention": [
            {
                "kind": name,
                "doc": gate.doc,
                "count": sum(map(len, seen.get(name, {}).values())),
                "runs": [run for run in seen.get(name, {}) if run != NO_RUN],
                "query": gate.query,
            }
            for name, gate in GATES.items()
        ],
        "runs": read_rows(con, _ROWS, [list(run_ids)]),
    }


def read_incidents(con: duckdb.DuckDBPyConnection, known: Collection[str]) -> list[Row]:
    """Return the open incidents of the lake, new ones first.

    Args:
        known: Incidents of the last message; see `Backlog.incidents`.
    """
    return read_rows(con, _INCIDENTS, [list(known)])


def _error(error: BaseException, lake: str) -> dict[str, str | None]:
    """Return an error as a dictionary with the fields of the printed block."""
    if isinstance(error, SystemExit | KeyboardInterrupt | BrokenPipeError):
        what, then = "interrupted before the end", "run it again: it continues where it was"
        return {"what": what, "where": None, "next": then}
    if known := expected(error):
        hint = known.hint and with_lake(known.hint, lake)
        return {"what": known.message, "where": known.location, "next": hint}
    what = f"a bug in tracelake: {type(error).__name__}: {error}"
    return {"what": what, "where": None, "next": "see standard error"}


def _ingest(done: IngestReport) -> dict[str, Any]:
    by_status = Counter(run.status for run in done.runs)
    return {
        "runs": {str(status): by_status[status] for status in Status},
        "files": sum(run.files for run in done.runs),
        "bytes": done.bytes,
        "lines": sum(run.lines for run in done.runs),
        "rows": sum(run.rows for run in done.runs),
        "rejects": done.rejected,
        "skipped": dict(sorted(Counter(skip["reason"] for skip in done.skips).items())),
        "skipped_files": done.skipped_files(_SKIPPED_FILES),
        "changed": list(done.changed),
    }


def _verdicts(verdicts: Verdicts) -> dict[str, Any]:
    return {
        "runs": list(verdicts.run_ids),
        "gates": [gate.name for gate in verdicts.gates],
        "failed": [
            {
                "gate": failure.gate.name,
                "doc": failure.gate.doc,
                "runs": [{"run_id": run, "seen": list(seen)} for run, seen in failure.seen.items()],
                "query": failure.gate.query,
            }
            for failure in verdicts.failed
        ],
        "max_bad_ratio": verdicts.max_bad_ratio,
        "bad_lines": [bad._asdict() for bad in verdicts.bad],
    }
