"""Read timers of training jobs: those of one rank, over ranks, and reports of slow ranks."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from tracelake.formats.ledger import Fault
from tracelake.formats.readers import rounded_ns, whole
from tracelake.formats.training_log.steps import Steps
from tracelake.formats.training_log.values import TIMER_END, whole_fields

Row = tuple[str | Fault, dict[str, Any]]
"""A table, and a row of it."""

_ACROSS = re.compile(r".*?(\(min, max\) time|max time|times) across ranks \(ms\):.*", re.ASCII)
_MIN_MAX = re.compile(r"\s*(\S+?) ?\.*: \(([0-9.]+), ([0-9.]+)\)\s*", re.ASCII)
_MAX = re.compile(r"\s*(\S+) \.+: ([0-9.]+)\s*", re.ASCII)
_ALL_NAME = re.compile(r"  ([\w/().+-]+):\s*", re.ASCII)
_ALL_RANK = re.compile(r"\s+rank +(\d+): ([0-9.]+)\s*", re.ASCII)
_WHOLE_STEP = "sum(1f1b+optim)"
_ECHO = re.compile(r"rank_id: (\d+), ([\w()+]+) time: ([0-9.]+)", re.ASCII)
_REPORT = re.compile(r".*=== Straggler Report at Step (\d+).*", re.ASCII)
_REPORTED = re.compile(r"\s*(?:.* )?Rank (\d+): ([0-9.]+) ?ms\b.*", re.ASCII)
_SPREAD = re.compile(r"(Mn|Mx)(\w+)/Rnk: ([0-9.]+)ms/(\d+)", re.ASCII)


class Timers:
    """Reads the timers of one file, which are of the steps of the latest record.

    Attributes:
        copies: How many ranks timed each step as a whole, by step.
    """

    def __init__(self, steps: Steps) -> None:
        """Begin with the records of the file, which count its steps."""
        self.copies: Counter[int] = Counter()
        self._steps = steps
        self._mode = ""
        self._name = ""
        self._report = 0
        self._times: Counter[tuple[int, str]] = Counter()

    def _timing(
        self, name: str, statistic: str, time: str, rank: int | None = None, step: int = 0
    ) -> Row:
        row = {
            "rank": rank,
            "first_step": step or self._steps.first,
            "last_step": step or max(self._steps.last, 0) or None,
            "name": name,
            "statistic": statistic,
            "duration_ns": rounded_ns(time, 6),
            "clock": "barrier" if self._mode and not step else "host",
        }
        return "timings", row

    def own(self, text: str) -> list[Row]:
        """Return the timers of one rank, between bars."""
        parts = (field.rpartition(":") for field in whole_fields(text, TIMER_END))
        return [
            self._timing(name.strip(), "own", time.strip())
            for name, colon, time in parts
            if colon and time.strip()
        ]

    def read(self, text: str) -> list[Row]:
        """Return the timers over ranks of a line, or the times of ranks that it names.

        Raises:
            BadValueError: A column cannot hold a value.
        """
        return self._across(text) or self._reports(text)

    def _across(self, text: str) -> list[Row]:
        """Return the timers over ranks of a line."""
        if "across ranks" in text and (across := _ACROSS.fullmatch(text)):
            self._mode = "all" if across[1] == "times" else "min_max"
        elif ": (" in text and (found := _MIN_MAX.fullmatch(text)):
            return [
                self._timing(found[1], "min", found[2]),
                self._timing(found[1], "max", found[3]),
            ]
        elif self._mode == "min_max" and (found := _MAX.fullmatch(text)):
            return [self._timing(found[1], "max", found[2])]
        elif self._mode == "all":
            if found := _ALL_NAME.fullmatch(text):
                self._name = found[1]
            elif self._name and (found := _ALL_RANK.fullmatch(text)):
                return [self._timing(self._name, "own", found[2], whole(found[1], 31))]
        return []

    def _reports(self, text: str) -> list[Row]:
        """Return the times of ranks that a line names."""
        rows = []
        for rank, name, time in _ECHO.findall(text):
            key = whole(rank, 31), name
            step = self._times[key] + 1
            rows.append(self._timing(name, "own", time, key[0], step))
            if name == _WHOLE_STEP:
                rows.append(self._step_of_rank(key[0], step, time))
            self._times[key] = step
        for bound, name, time, rank in _SPREAD.findall(text):
            rows.append(
                self._timing(name, "min" if bound == "Mn" else "max", time, whole(rank, 31))
            )
        if found := _REPORT.fullmatch(text):
            self._report = whole(found[1], 31)
        elif self._report and (found := _REPORTED.fullmatch(text)):
            rank = whole(found[1], 31)
            rows.append(self._timing("straggler_report", "own", found[2], rank, self._report))
        return rows

    def _step_of_rank(self, rank: int, step: int, time: str) -> Row:
        """Return the row of a step that a rank of Echo's jobs timed; other ranks are copies."""
        row = {"step": step, "copy": self.copies[step], "batches_covered": 1, "rank": rank}
        self.copies[step] += 1
        return "train_steps", {**row, "time_basis": "own", "step_time_ns": rounded_ns(time, 6)}
