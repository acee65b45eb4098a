"""Tell the time of steps from lines that print how many are done, and the time since the start."""

from __future__ import annotations

from tracelake.formats.training_log.values import StepValues

SECOND_NS, MILLISECOND_NS = 1_000_000_000, 1_000_000
UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
"""Seconds of each."""
_PAUSES = 3  # that a job may have in its first steps
_TICKS = 30  # of the printed time, so that what it leaves out is at most 3 % of an interval


class Elapsed:
    """Keeps what one file printed of a job: steps done, and the time since the start.

    A line that repeats the step of the line before shows a pause, as for an evaluation: its time is
    that of no step. It is no pause where lines are printed within steps, or by several processes
    that began at different times: then most steps have one. It is one where another loop printed in
    between.
    """

    def __init__(self, tick_ns: int) -> None:
        self._tick_ns = tick_ns
        self._done = self._since = 0  # steps at the latest line, and at the latest interval's end
        self._at_ns = self._from_ns = 0  # the time then
        self._paused_ns = 0  # since the latest interval's end
        self._pauses = self._steps = 0  # of the file

    def take(
        self, done: int, at_ns: int, *, waited: bool = True, aside: bool = False
    ) -> list[StepValues]:
        """Return the mean time of the steps of an interval that ends here.

        Nothing while it is too short for the ticks of the printed time. The first interval of a job
        begins with its first line that has a step: what was before it is unknown.

        Args:
            done: Steps done.
            at_ns: The printed time.
            waited: Nothing was trained since the line before, if that has the same step.
            aside: Another loop printed since then.
        """
        again = done == self._done and self._since > 0
        # Another process may have begun a moment later.
        if done < self._done or at_ns < self._at_ns - self._tick_ns or not self._since:
            self._end(done, at_ns)  # a job begins
        else:
            at_ns = max(at_ns, self._at_ns)
            if not again:
                self._steps += done - self._done
            elif (waited or aside) and at_ns > self._at_ns:
                self._paused_ns += at_ns - self._at_ns
                self._pauses += not aside
        self._done, self._at_ns = done, at_ns
        paused_ns = 0 if self._pauses > max(_PAUSES, self._steps / 2) else self._paused_ns
        steps, time_ns = done - self._since, at_ns - self._from_ns - paused_ns
        if again or not steps or time_ns < _TICKS * self._tick_ns:
            return []
        self._end(done, at_ns)
        return [(done, steps, {"step_time_ns": round(time_ns / steps)})]

    def begin(self, done: int, at_ns: int) -> None:
        """Begin an interval, of a clock that begins anew."""
        self._end(done, at_ns)
        self._done, self._at_ns = done, at_ns

    def _end(self, done: int, at_ns: int) -> None:
        """End an interval, so that the next one begins."""
        self._since, self._from_ns, self._paused_ns = done, at_ns, 0


def clock_ns(*parts: str | None) -> int:
    """Return a printed time of days, hours, minutes and seconds, or of the last of these.

    Example:
        >>> clock_ns(None, "1", "02") // SECOND_NS
        62
    """
    pairs = zip(reversed(parts), UNITS.values(), strict=False)
    return sum(int(part or 0) * unit for part, unit in pairs) * SECOND_NS
