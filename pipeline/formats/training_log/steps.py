"""Tell which steps a progress record covers, and what its time is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelake.kernels.numbers import Longs


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


@dataclass(frozen=True, slots=True)
class Times:
    """The times that neighbouring records print, and when; no date is NaT, no time 0."""

    at: npt.NDArray[np.datetime64]
    fine: npt.NDArray[np.bool_]
    time_ns: Longs
    resets: bool

    def __getitem__(self, part: slice) -> Times:
        return Times(self.at[part], self.fine[part], self.time_ns[part], self.resets)

    def of(self, place: int) -> Printed:
        """Return those of a record."""
        at, time_ns = self.at[place].item(), int(self.time_ns[place])
        return Printed(at, bool(self.fine[place]), time_ns, self.resets)


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

    def take_alike(self, steps: Longs, times: Times) -> dict[str, list[Any]]:
        """Return the same columns of records that go on as those before.

        They end before the first that does not, as a copy or one after a gap, which is to be taken
        alone. Of what the others say nothing but their times can change which steps they cover.
        """
        gap, covered = self._gap, self._covered
        count = 0
        if (
            gap is not None
            and covered == min(gap, self.interval or gap)
            and self._basis != "includes_first"
        ):
            goes_on = np.diff(steps, prepend=self.last) == gap
            if covered == gap and not times.resets:
                goes_on &= ~self._count_again(covered, times)
            count = steps.size if goes_on.all() else int(goes_on.argmin())
        if count:
            self._copy, self.last = 0, int(steps[count - 1])
            self._before = times.of(count - 1)
        return {
            "step": steps[:count].tolist(),
            "copy": [0] * count,
            "batches_covered": [covered] * count,
            "time_basis": [self._basis] * count,
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
        earlier, both = known * before.time_ns / 1e9, own * (covered + known) / covered
        if second:
            off_own, off_both = abs(between - own), abs(between + earlier - both)
            differs = abs(both - earlier - own) > 0.01 * own
            return differs and not (off_own < off_both and off_own <= 0.02 * between + (not fine))
        return bool(_is_mean_of_both(between, own, earlier, both, not fine))

    def _count_again(self, covered: int, times: Times) -> npt.NDArray[np.bool_]:
        """Tell the same of each of several records, none of which is the second of a job."""
        before = self._before
        at = np.concatenate([np.array([before.at], times.at.dtype), times.at])
        time_ns = np.concatenate([[before.time_ns or 0], times.time_ns])
        fine = np.concatenate([[before.fine], times.fine])
        timed = ~np.isnat(at) & (time_ns > 0)
        between = np.diff(at).astype(np.int64) / 1e6
        each = covered * time_ns / 1e9
        own, earlier, coarse = each[1:], each[:-1], ~(fine[1:] & fine[:-1])
        of_both = _is_mean_of_both(between, own, earlier, 2 * own, coarse)
        counts: npt.NDArray[np.bool_] = timed[1:] & timed[:-1] & of_both
        return counts


def _is_mean_of_both(between: Any, own: Any, earlier: Any, both: Any, coarse: Any) -> Any:
    """Tell whether the mean of a record is that of its steps and those of the record before.

    Args:
        between: Seconds from that record to this one.
        own, earlier: Seconds that the steps of each took, if either mean is of its steps alone.
        both: Those of all these steps, if it is not.
        coarse: Dates are in whole seconds.
    """
    differs = abs(both - earlier - own) > 0.01 * own  # else the steps before were as fast
    both_fit = abs(between + earlier - both) <= 0.005 * both + coarse
    return differs & both_fit & (abs(between - own) > 0.05 * between + 2 * coarse)
