"""Read the progress bars of Lightning 2 and torchtune, which count whole seconds within an epoch.

Those of Lightning count batches, and those of torchtune steps. The time of either is a mean over as
many as take half a minute. What the bars of NeMo say beside that is read by `bars`.
"""

from __future__ import annotations

import re

from tracelake.formats.readers import number
from tracelake.formats.training_log.elapsed import SECOND_NS, Elapsed, clock_ns
from tracelake.formats.training_log.values import PRINTED, StepLines, StepValues

# Before version 2 it also counted batches of evaluations.
_BAR = (
    r"\bEpoch (\d{1,6}): +\d{1,3}%\|[^|]*\| *(\d{1,9})/(\d{1,9}) \[(?:(\d{1,5}):)?(\d\d):(\d\d)<"
    r"[^\[\]]*(?:it/s|s/it), v_num=[^\[\]]*\]"
)
# With the epoch, the step and the loss of that.
_TUNE_BAR = (
    rf"\b(\d{{1,6}})\|(\d{{1,9}})\|Loss: ({PRINTED}): +\d{{1,3}}%\|[^|]*\|"
    r" *(\d{1,9})/(\d{1,9}) \[(?:(\d{1,5}):)?(\d\d):(\d\d)<"
)
_LINE = re.compile(rf".*{_BAR}.*", re.ASCII)
_TUNE_LINE = re.compile(_TUNE_BAR, re.ASCII)
# Lightning fills short numbers with zeros, also `nan.0`.
_LOSS = re.compile(rf", (?:train[_/])?loss(?:_step)?=({PRINTED})(?:\.0*)?(?=[],])")


class Epochs(StepLines):
    """Reads the bars of one file, in order: a step is a batch, and none says how many there are."""

    LINES = rf".*(?:{_BAR}|{_TUNE_BAR}).*"
    HEADS = ((b", v_num=", _BAR.encode()), (b"|Loss: ", _TUNE_BAR.encode()))

    def __init__(self) -> None:
        self._elapsed = Elapsed(SECOND_NS)

    def read(self, text: str) -> list[StepValues]:
        """Return loss and time of the batches that a bar ends."""
        if "|Loss: " in text and (found := _TUNE_LINE.search(text)):
            return self._tune(*found.groups())
        if ", v_num=" not in text or ", global_step=" in text:
            return []
        found = _LINE.fullmatch(text)
        if found is None:
            return []
        epoch, done, of = (int(found[place]) for place in (1, 2, 3))
        self.done = epoch * of + done
        time = self._elapsed.take(self.done, clock_ns(found[4], found[5], found[6]))
        if time is None:
            return []
        loss = _LOSS.search(text)
        return [(self.done, None, {"loss": number(loss[1])}), time] if loss else [time]

    def _tune(
        self, epoch: str, step: str, loss: str, count: str, of: str, *clock: str | None
    ) -> list[StepValues]:
        """Return loss and time of a step of torchtune.

        It draws a bar twice per step, first with the step before, which is no record.
        """
        if int(step) != (int(epoch) - 1) * int(of) + int(count):
            return []
        self.done = int(step)
        record: StepValues = (self.done, None, {"loss": number(loss)})
        time = self._elapsed.take(self.done, clock_ns(*clock))
        return [record, time] if time else [record]
