"""Read loops that print their place, their loss and a date, and no time that is fine enough.

They are DiT and what came of it (SiT, LlamaGen, BAGEL), ESPnet2, icefall and WeNet. The time of a
step is a mean over as many as take half a minute by these dates, with all that came in between but
what is between two epochs. Epochs have as many steps as were printed.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from tracelake.formats.readers import number
from tracelake.formats.training_log.elapsed import SECOND_NS, Elapsed
from tracelake.formats.training_log.values import (
    PRINTED,
    StepLines,
    StepValues,
    logged_at,
    numbers_in,
)

_PLACE = r"(?P<epoch>\d{1,6})"
# A word of each, its line, and the number of the first step.
_LOOPS = (
    (
        "Train Steps/Sec: ",
        # BAGEL has several losses.
        rf"\(step=(?P<at>\d{{1,9}})\) Train Loss(?: \w+: |: (?P<loss>{PRINTED}),)",
        1,
    ),
    (
        "epoch:train:",
        rf"\b{_PLACE}epoch:train:\d+-(?P<at>\d{{1,9}})batch: "
        rf"(?:[^\n]*?\bloss=(?P<loss>{PRINTED}))?",
        1,
    ),
    (
        ", tot_loss[",
        rf"\bEpoch {_PLACE}, batch (?P<at>\d{{1,9}}), [^\n]*?\bloss\[(?:[^\]]*, )?"
        rf"loss=(?P<loss>{PRINTED}),",
        0,
    ),
    (
        "TRAIN ",
        rf"\bTRAIN (?:\| steps/sec [0-9.]+\| )?Batch {_PLACE}/(?P<at>\d{{1,9}}) loss"
        rf" (?P<loss>{PRINTED})\s",
        0,
    ),
)
_LINES = [(word, re.compile(line, re.ASCII), first) for word, line, first in _LOOPS]
_VALUES = (
    ("lr", re.compile(rf"(?:\b|_)lr(?:_?0)?(?:=|:? )({PRINTED})", re.ASCII)),
    ("grad_norm", re.compile(rf"\bgrad_norm=({PRINTED})", re.ASCII)),
)


class Dated(StepLines):
    """Reads the lines of one file, in order."""

    LINES = r".*(?:\(step=\d+\) Train Loss|\d+epoch:train:|, tot_loss\[|\bTRAIN .*Batch \d+/).*"
    HEADS = tuple((word.encode(), line.encode()) for word, line, _ in _LOOPS)

    def __init__(self) -> None:
        self._elapsed = Elapsed(SECOND_NS)
        self._before: dict[str | None, int] = {None: 0}  # steps before each epoch
        self._epoch: str | None = None  # of the latest line

    def read(self, text: str) -> list[StepValues]:
        """Return the loss of a step, and the time of those that it ends."""
        for word, line, first in _LINES:
            if word in text and (found := line.search(text)):
                fields = found.groupdict()
                epoch = fields.get("epoch")
                before = self._before.setdefault(epoch, self.done or 0)
                self.done = before + int(fields["at"]) + 1 - first
                values = numbers_in(text, _VALUES)
                if fields["loss"]:
                    values["loss"] = number(fields["loss"])
                return [(self.done, None, values), *self._time(epoch, text)]
        return []

    def _time(self, epoch: str | None, text: str) -> list[StepValues]:
        """Return the time of the steps that a line ends; those of its epoch alone."""
        at, _ = logged_at(text)
        if at is None or self.done is None:
            return []
        at_ns = (at - datetime.min) // timedelta(microseconds=1) * 1000
        if epoch != self._epoch:
            self._elapsed.begin(self.done, at_ns)
            self._epoch = epoch
        return self._elapsed.take(self.done, at_ns, waited=False)
