"""Tell which steps a progress record covers, and what its time is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Printed:
    """The time that a record prints, and when.

    Attributes:
        at: Date and time of the record.
        fine: `at` has fractions of a second. Megatron-LM prints them since it also prints the first
            step of a job, without a reset of its timer.
        time_ns: Time of a step.
        resets: The trainer resets its timer with every record.
    """

    at: datetime | None = None
    fine: bool = False
    time_ns: int | None = None
    resets: bool = False


class Steps:
    """The records of one file, in order."""

    def __init__(self) -> None:
        self.last = -1  # step of the latest record, -1 before the first
        self.interval: int | None = None  # steps between records, where the job prints it
        self._covered: int | None = None
        self._basis = "own"
        self._copy = 0
        self._gap: int | None = None  # the smallest seen between records
        self._records = 0  # since the job began, or began again
        self._before = Printed()

    @property
    def first(self) -> int | None:
        """The first step that the latest record covers."""
        return self.last - (self._covered or 1) + 1 if self.last > 0 else None

    @property
    def usual(self) -> int:
        """Steps from one record to the next."""
        return max(self.interval or 1, self._gap or 1)

    def take(self, step: int, printed: Printed) -> dict[str, int | str | None]:
        """Return the columns that say which steps a record covers."""
        if step == self.last:
            self._copy += 1
        else:
            self._next(step, printed)
        return {
            "step": step,
            "copy": self._copy,
            "batches_covered": self._covered,
            "time_basis": self._basis,
        }

    def _next(self, step: int, printed: Printed) -> None:
        gap = step - self.last if step > self.last >= 0 else None
        if gap is None:
            self._records, self._gap = 0, None
        covered = self._steps_covered(step, gap, printed)
        if gap is not None and not printed.resets and self._counts_again(gap, covered, printed):
            self._basis = "includes_first"
        else:
            self._basis = "own" if covered == 1 else "mean"
        self._records += 1
        if gap is not None and (gap == 1 or self._records > 2):
            self._gap = min(gap, self._gap or gap)
        self._copy, self.last, self._covered, self._before = 0, step, covered, printed

    def _steps_covered(self, step: int, gap: int | None, printed: Printed) -> int | None:
        if gap is not None:  # larger than usual where records are lost
            return min(gap, self.interval or self._gap or gap)
        if step == 1:
            return 1
        if self.interval is None or self.interval > step:
            return None
        return 1 if printed.fine and not printed.resets else self.interval

    def _counts_again(self, gap: int, covered: int | None, printed: Printed) -> bool:
        """Tell whether the mean counts the steps of the record before once more.

        Since 2026 that is so of the second record of a job. Where both records have dates, the time
        between them decides.
        """
        before, known = self._before, self._covered
        second = self._records == 1 and (printed.fine or (gap > 1 and self.last == 1))
        if before.at is None or printed.at is None or not before.time_ns or not printed.time_ns:
            return second
        if covered is None or self._basis == "includes_first" or covered != gap:
            return second
        between = (printed.at - before.at).total_seconds()
        own = covered * printed.time_ns / 1e9
        fine = before.fine and printed.fine
        if known is None:  # the log begins within its job
            return second and not (fine and abs(between - own) <= 0.01 * own)
        earlier = known * before.time_ns / 1e9
        both = own * (covered + known) / covered
        if abs(both - earlier - own) <= 0.01 * own:
            return False  # the steps before were as fast: it makes no difference
        unit = 0.0 if fine else 1.0
        off_own, off_both = abs(between - own), abs(between + earlier - both)
        if second:
            return not (off_own < off_both and off_own <= 0.02 * between + unit)
        return off_both <= 0.005 * both + unit and off_own > 0.05 * between + 2 * unit
