"""What jobs still owe of the runs in a lake, remembered in the lake until it is done.

`LAKE/_run/owed.json` holds the runs, with their generations, that jobs have seen in the warehouse,
and per duty those that it is still owed for. A job compares the warehouse with it after each build,
so it does not matter who brought a run in, or what died before it was reported. Each duty is struck
out only when it is done: what is interrupted is done again. Without the file, what the warehouse
holds when a job starts is taken to be done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from pipeline.errors import ChangedError, LakeError
from pipeline.lake import Lake
from pipeline.models.state import recorded_state

VERSION = 1


class Duty(StrEnum):
    """What jobs owe a run."""

    PAGE = "page"  # to be on one with --since
    GATES = "gates"  # to be judged by those of --fail-on
    LINES = "lines"  # to be judged by --max-bad-ratio


@dataclass(slots=True)
class _Record:
    """The file's content.

    Attributes:
        seen: Generation by run.
        owed: Runs by duty; a duty begins when a job first has it.
        page: The last page with --since.
        day: When it was written.
        paged: Runs that had come in when it was written.
    """

    seen: dict[str, str]
    owed: dict[str, list[str]] = field(default_factory=dict)
    page: str | None = None
    day: str | None = None
    paged: list[str] = field(default_factory=list)


class Owed:
    """The record of one lake; hold the job's lock."""

    def __init__(self, lake: Lake, name: str, record: _Record) -> None:
        self._lake = lake
        self._name = name
        self._record = record

    @classmethod
    def open(
        cls, lake: Lake, name: str, duties: Iterable[Duty], warn: Callable[[str], None]
    ) -> Self:
        """The lake's record, begun if there is none; call it before anything is ingested.

        Raises:
            LakeError: A newer tracelake wrote it.
        """
        record = _read(lake.root / name, warn)
        owed = cls(lake, name, record or _Record(_done_before(lake)))
        begun: dict[str, list[str]] = {duty: [] for duty in duties if duty not in owed._record.owed}
        owed._record.owed |= begun
        if record is None or begun:
            owed._write()
        return owed

    def of(self, duty: Duty) -> tuple[str, ...]:
        """Runs that the duty is owed for."""
        return tuple(self._record.owed.get(duty, ()))

    def arrive(self) -> None:
        """Adds the runs that the warehouse has new or changed since jobs last looked."""
        state = recorded_state(self._lake.warehouse)
        if state is None or state.runs == self._record.seen:
            return
        seen, now = self._record.seen, dict(state.runs)
        arrived = [run_id for run_id in now if now[run_id] != seen.get(run_id)]
        for duty, runs in self._record.owed.items():
            there = [run_id for run_id in runs if run_id in now]
            self._record.owed[duty] = list(dict.fromkeys([*there, *arrived]))
        self._record.seen = now
        self._write()

    def settle(self, *duties: Duty) -> None:
        """Strikes out what has been done of these."""
        done = [duty for duty in duties if self._record.owed.get(duty)]
        if done:
            self._record.owed |= {duty: [] for duty in done}
            self._write()

    def for_page(self, page: Path, day: str) -> tuple[str, ...]:
        """Runs that a page must be about, whatever their date.

        A page that is written again on the same day keeps those that it had.
        """
        again = (self._record.page, self._record.day) == (str(page), day)
        before = self._record.paged if again else []
        return tuple(dict.fromkeys([*before, *self.of(Duty.PAGE)]))

    def paged(self, page: Path, day: str) -> None:
        """The page is in place."""
        record = self._record
        now = (str(page), day, list(self.for_page(page, day)))
        if now != (record.page, record.day, record.paged) or self.of(Duty.PAGE):
            record.page, record.day, record.paged = now
            record.owed[Duty.PAGE] = []
            self._write()

    def _write(self) -> None:
        content = json.dumps({"version": VERSION, **asdict(self._record)})
        try:
            self._lake.put(self._name, f"{content}\n".encode())
        except ChangedError as error:
            raise LakeError(
                "a run on another machine is at work on this lake",
                path=self._lake.name,
                hint="let it end and run again: what was ingested and built is in the lake",
            ) from error


def _read(path: Path, warn: Callable[[str], None]) -> _Record | None:
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        version = content.pop("version")
        if version == VERSION:
            return _Record(**content)
        if isinstance(version, int) and version > VERSION:
            raise LakeError(
                f"a newer tracelake wrote the record of jobs: its version is {version}, this"
                f" tracelake knows {VERSION}",
                path=path,
                hint="use that tracelake, or a newer one",
            )
        trouble = f"it has version {version}"
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        trouble = str(error)
    warn(f"{path} is begun anew, runs that an earlier job left may be missed: {trouble}")
    return None


def _done_before(lake: Lake) -> dict[str, str]:
    """Runs of a lake without a record that count as done: those that its warehouse has."""
    if not lake.warehouse.is_file():
        return {}
    state = recorded_state(lake.warehouse)
    if state is not None:
        return dict(state.runs)
    return {run_id: entry.generation for run_id, entry in lake.snapshot().runs.items()}
