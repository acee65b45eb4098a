"""Describe the result of an ingest: run by run, and in a few lines."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tracelake.base.errors import InputError
from tracelake.base.figures import amount, count
from tracelake.base.text import counted, printable, some
from tracelake.formats import Format
from tracelake.formats.ledger import EXPANDED_TOO_FAR
from tracelake.ingest.fence import PARSER_FAILED, ParserFailure
from tracelake.ingest.hosts import Hosts
from tracelake.ingest.known_inputs import Record
from tracelake.ingest.options import Options
from tracelake.ingest.run_plan import RunPlan, Status
from tracelake.ingest.run_result import RunResult
from tracelake.ingest.sniff import InputFile
from tracelake.lake.manifest import label_of
from tracelake.schema.tables import skip_reasons, tables

_UNREADABLE = "unreadable"
# Files with a finding.
_LOST = (_UNREADABLE, PARSER_FAILED)
_FORMATS = "list the known formats with: tracelake formats"
_NAMED = 3
_PLANNED = ("status", "format", "run_id", "files")
_READ = (*_PLANNED, "bytes", "lines", "rows", "rejected", "complete")
_TYPES = {"complete": pa.bool_(), **dict.fromkeys(_READ[3:-1], pa.int64())}
_TABLE = pa.schema([(n, _TYPES.get(n, pa.string())) for n in (*_READ, "path", "reason")])


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The result of an ingest.

    Attributes:
        skips: Inputs of no run, or of one that is left out.
        notes: Sentences about options that the inputs do not fit.
        failures: What is left out because code of its format failed on it.
    """

    runs: tuple[RunResult, ...]
    skips: tuple[Record, ...]
    notes: tuple[str, ...] = ()
    failures: tuple[ParserFailure, ...] = ()

    @property
    def changed(self) -> tuple[str, ...]:
        """Runs whose rows were written."""
        return tuple(run.run_id for run in self.runs if run.status.is_read)

    @property
    def cut(self) -> tuple[str, ...]:
        """Runs of inputs that expand further than allowed."""
        return tuple(run.run_id for run in self.runs if EXPANDED_TOO_FAR in run.faults)

    @property
    def too_far(self) -> tuple[str, ...]:
        """Inputs that were skipped because they expand further than allowed."""
        return tuple(sorted(label_of(s) for s in self.skips if s["reason"] == "expands_too_far"))

    @property
    def bytes(self) -> int:
        """Decompressed bytes that were read."""
        return sum(run.bytes for run in self.runs)

    @property
    def rejected(self) -> int:
        """Lines that were rejected."""
        return sum(run.rejected for run in self.runs)

    @property
    def amounts(self) -> dict[str, int]:
        """Count what was read and written, by column of `tracelake_runs`."""
        written = [run for run in self.runs if run.status.is_read]
        return {
            "runs_found": len(self.runs),
            "runs_written": len(written),
            "files_read": sum(run.files for run in written),
            "bytes_read": self.bytes,
            "lines_read": sum(run.lines for run in self.runs),
            "rows_written": sum(run.rows for run in written),
            "lines_rejected": self.rejected,
            "inputs_skipped": len(self.skips),
        }

    def table(self) -> pa.Table:
        """Return a row per run and per skipped input, with figures of runs that were read."""
        return _table(self.runs, self.skips, _READ)

    def as_lines(self) -> list[str]:
        """Return the report in a few lines for people."""
        by_status = Counter(run.status for run in self.runs)
        states = ", ".join(f"{count(by_status[s])} {s}" for s in Status if by_status[s])
        lines = [f"{counted(len(self.runs), 'run')}: {states}"]
        if self.changed:
            read = sum(run.lines for run in self.runs)
            lines.append(
                f"read {amount(self.bytes)}, {count(read)} lines, {count(self.rejected)} rejected"
            )
        elif not self.failures:
            lines.append("nothing to write: the lake already has all of this")
        lines.extend(self._skipped(reason for reason in skip_reasons() if reason != _UNREADABLE))
        return lines

    def unreadable(self) -> list[str]:
        """Return a warning that names files that cannot be read; nothing without such files."""
        return self._skipped([_UNREADABLE])

    def skipped_files(self, limit: int) -> list[dict[str, str]]:
        """Return path and reason of the first inputs that were skipped, unreadable ones first."""
        files = [{"path": label_of(skip), "reason": skip["reason"]} for skip in self.skips]
        files.sort(key=lambda file: (file["reason"] not in _LOST, file["path"]))
        return files[:limit]

    def _skipped(self, reasons: Iterable[str]) -> list[str]:
        """Return a line per reason that names the first files that were skipped for it."""
        lines = []
        for reason in reasons:
            names = sorted(label_of(skip) for skip in self.skips if skip["reason"] == reason)
            if names:
                first = printable(some(names, _NAMED))
                files = skip_reasons()[reason].files.format(s="" if len(names) == 1 else "s")
                lines.append(f"skipped {count(len(names))} {files}: {first}")
        return lines


def planned_table(plans: Iterable[RunPlan], skips: Iterable[Record]) -> pa.Table:
    """Return what an ingest would do, with the columns of `IngestReport.table`."""
    return _table(map(RunResult.of, sorted(plans, key=lambda plan: plan.run_id)), skips, _PLANNED)


def _table(runs: Iterable[RunResult], skips: Iterable[Record], read: Sequence[str]) -> pa.Table:
    """Return a row per run and skipped input; `read` are the columns of runs that are read."""
    found = [
        {name: getattr(run, name) for name in (read if run.status.is_read else _PLANNED)}
        for run in runs
    ]
    found += [
        {"status": "skipped", "path": label_of(skip), "reason": skip["reason"]} for skip in skips
    ]
    return pa.Table.from_pylist(found, schema=_TABLE)


def notes_on(plans: Iterable[RunPlan], options: Options) -> list[str]:
    """Return sentences about options that the inputs do not fit."""
    inputs = [file for plan in plans for file in plan.inputs]
    return [*_unmatched(inputs, options.run_pattern), *_unplaced(inputs, options.hosts)]


def _unmatched(inputs: Sequence[InputFile], pattern: str | None) -> list[str]:
    """Return a sentence about a `--run-pattern` that no input matches."""
    if pattern is None or not inputs or any(re.search(pattern, c.base.path) for c in inputs):
        return []
    return [
        f"--run-pattern {pattern} matches none of {counted(len(inputs), 'input')}: it is searched"
        f" in paths below the folder that is named, such as {inputs[0].base.path}"
    ]


def _unplaced(inputs: Sequence[InputFile], hosts: Hosts | None) -> list[str]:
    """Return a sentence for each kind of input that `--hosts` does not cover."""
    if hosts is None:
        return []
    fitting = [hosts.runs_of(file.facts.path) for file in inputs]
    missed = [c for c, fits in zip(inputs, fitting, strict=True) if c.place is None and fits]
    mixed = [c for c in missed if c.facts.rank is None and _has_ranks(c.format)]
    unlisted = [c for c in missed if c.facts.rank is not None]
    met = {run for fits in fitting for run in fits}
    idle = sorted(line for run, line in hosts.runs.items() if run not in met)
    notes = []
    if mixed:
        notes.append(f" gives no host for {_some(mixed)}: not the records of one known rank")
    if unlisted:
        notes.append(f" gives no host for {_some(unlisted)}: rank not listed")
    if idle:
        lines = ", ".join(map(str, idle[:3]))
        notes.append(
            f": no input matches {counted(len(idle), 'glob')} of its column run (line {lines})"
        )
    if not notes and not any(c.place for c in inputs):
        notes.append(
            f" gives a host for none of {counted(len(inputs), 'input')}: no records of ranks"
        )
    return [f"--hosts {hosts.path}{sentence}" for sentence in notes]


def _has_ranks(fmt: Format) -> bool:
    return any(column.name == "rank" for name in fmt.tables for column in tables()[name].columns)


def _some(inputs: Sequence[InputFile]) -> str:
    count = counted(len(inputs), "input")
    return f"{count} ({inputs[0].entry.label}{', ...' if len(inputs) > 1 else ''})"


def nothing_usable(inputs: Sequence[str], skips: Sequence[Record], options: Options) -> InputError:
    """Return the error of an ingest that has no run, with the reasons."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for skip in skips:
        reasons[skip["reason"]].append(label_of(skip))
    found = "; ".join(f"{name}: {some(labels, 1)}" for name, labels in sorted(reasons.items()))
    if not reasons:
        hint = "name a folder that holds files, or see why the job has written none"
    elif options.input_format:
        hint = "drop --input-format, or list formats with: tracelake formats"
    else:
        steps = {name: reason.next or _FORMATS for name, reason in skip_reasons().items()}
        hint = "; ".join(dict.fromkeys(steps.get(name, _FORMATS) for name in sorted(reasons)))
    return InputError(f"nothing usable ({found or 'no files'})", path=", ".join(inputs), hint=hint)
