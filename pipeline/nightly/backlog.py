"""Record the backlog: what jobs still have to do for the runs of a lake.

`LAKE/_run/owed.json` has the runs, with their generations, that jobs have seen in the warehouse,
and per duty the runs for which it is not done. A job compares the warehouse with it after each
build. So it does not matter which command ingested a run, or which command died before it was
reported. A duty is removed only when it is done: interrupted duties are done again. Without the
file, everything in the warehouse at the start of a job counts as done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any, Self

from tracelake.base.errors import ChangedError, LakeError, next_step, too_new
from tracelake.lake.manifest import content_in
from tracelake.lake.store import Lake
from tracelake.models.state import recorded

VERSION = 2
# Version 1 has no incidents.
_READABLE = (1, VERSION)


class Duty(StrEnum):
    """Lists what jobs must do for a run."""

    PAGE = "page"  # to be in a report with --since
    GATES = "gates"  # to be judged by the gates of --fail-on
    LINES = "lines"  # to be judged by --max-bad-ratio


@dataclass(slots=True)
class _Record:
    """The file's content.

    Attributes:
        seen: Generation by run.
        owed: Runs by duty; a duty starts with the first job that has it.
        page: The last report with --since.
        day: When it was written.
        paged: Runs that had arrived when it was written.
        incidents: Open incidents of the last message; see `Backlog.incidents`.
    """

    seen: dict[str, str]
    owed: dict[str, list[str]] = field(default_factory=dict)
    page: str | None = None
    day: str | None = None
    paged: list[str] = field(default_factory=list)
    incidents: list[str] = field(default_factory=list)


class Backlog:
    """The backlog of one lake; the caller holds the job's lock."""

    def __init__(self, lake: Lake, name: str, record: _Record) -> None:
        self._lake = lake
        self._name = name
        self._record = record

    @classmethod
    def open(
        cls, lake: Lake, name: str, duties: Iterable[Duty], warn: Callable[[str], None]
    ) -> Self:
        """Return the lake's backlog, started if there is none; call it before any ingest.

        Raises:
            LakeError: A newer tracelake wrote it, or it cannot be read.
        """
        record = _read(lake.root / name, warn)
        owed = cls(lake, name, record or _Record(_done_before(lake)))
        begun: dict[str, list[str]] = {duty: [] for duty in duties if duty not in owed._record.owed}
        owed._record.owed |= begun
        if record is None or begun:
            owed._write()
        return owed

    def of(self, duty: Duty) -> tuple[str, ...]:
        """Return runs for which the duty is not done."""
        return tuple(self._record.owed.get(duty, ()))

    def arrive(self) -> None:
        """Add the runs that are new or changed in the warehouse since the last job.

        A run whose files were only moved or renamed, or read again by another version, is neither.
        One whose job may still run is new to the next job, changed or not.
        """
        record = recorded(self._lake.warehouse)
        state = record.state
        if state is None or state.runs == self._record.seen:
            return
        seen, now = self._record.seen, dict(state.runs)
        contents = {content_in(generation) for generation in seen.values()}
        for duty, runs in self._record.owed.items():
            done = contents - {content_in(seen[run_id]) for run_id in runs if run_id in seen}
            self._record.owed[duty] = [r for r in now if content_in(now[r]) not in done]
        self._record.seen = {run_id: now[run_id] for run_id in now if run_id not in record.running}
        self._write()

    def settle(self, *duties: Duty) -> None:
        """Remove what has been done of these."""
        done = [duty for duty in duties if self._record.owed.get(duty)]
        if done:
            self._record.owed |= {duty: [] for duty in done}
            self._write()

    def for_page(self, page: Path, day: str) -> tuple[str, ...]:
        """Return runs that a report must cover, whatever their date.

        A report that is written again on the same day has the same runs.
        """
        again = (self._record.page, self._record.day) == (str(page), day)
        before = self._record.paged if again else []
        return tuple(dict.fromkeys([*before, *self.of(Duty.PAGE)]))

    def paged(self, page: Path, day: str) -> None:
        """Record that the report is in place."""
        record = self._record
        now = (str(page), day, list(self.for_page(page, day)))
        if now != (record.page, record.day, record.paged) or self.of(Duty.PAGE):
            record.page, record.day, record.paged = now
            record.owed[Duty.PAGE] = []
            self._write()

    @property
    def incidents(self) -> frozenset[str]:
        """Return the incidents that were open in the last message: ids, and subjects in runs.

        An id is that of the first run. Where that is dropped, the subject in a later run is known.
        """
        return frozenset(self._record.incidents)

    def sent(self, incidents: Iterable[Mapping[str, Any]]) -> None:
        """Record the incidents that are open in a message that was sent."""
        now = sorted(
            known
            for row in incidents
            for known in (
                row["incident"],
                f"{row['incident']} {row['subject']} in {row['latest_run']}",
            )
        )
        if now != self._record.incidents:
            self._record.incidents = now
            self._write()

    def _write(self) -> None:
        content = json.dumps({"version": VERSION, **asdict(self._record)})
        try:
            self._lake.small.put(self._name, f"{content}\n".encode())
        except ChangedError as error:
            raise LakeError(
                "a run on another machine is working on this lake",
                path=self._lake.name,
                hint="wait until it has ended and run again; the new runs are in the lake",
            ) from error


def _read(path: Path, warn: Callable[[str], None]) -> _Record | None:
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        version = content.pop("version")
        if version in _READABLE:
            record = _Record(**content)
            runs = chain(record.paged, record.incidents, *record.owed.values())
            if not all(isinstance(run, str) for run in chain(dict(record.seen), runs)):
                raise TypeError("a run id is not a text")
            return record
        if isinstance(version, int) and version > VERSION:
            wrote = "wrote the backlog of jobs"
            raise too_new(wrote, "its version is", version, VERSION, path)
        trouble = f"it has version {version}"
    except FileNotFoundError:
        return None
    except OSError as error:
        message = f"the backlog of jobs cannot be read: {error}"
        raise LakeError(message, path=path, hint=next_step(error)) from error
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        trouble = str(error)
    warn(
        f"{path} is started again; runs that an earlier job did not report may be missed: {trouble}"
    )
    return None


def _done_before(lake: Lake) -> dict[str, str]:
    """Return runs of a lake without a backlog that count as done: those of its warehouse."""
    if not lake.warehouse.is_file():
        return {}
    state = recorded(lake.warehouse).state
    if state is not None:
        return dict(state.runs)
    return {run_id: entry.generation for run_id, entry in lake.snapshot().runs.items()}
