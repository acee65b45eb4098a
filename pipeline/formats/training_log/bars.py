"""Read the progress bars of NeMo, Lightning 2, torchtune, llama-recipes and Ultralytics.

tqdm, which draws those of NeMo, rounds a number to three digits where that is shorter: step 1000.0
is `1e+3`, 1006.0 stays. The count of the bar says which step it is. Lightning draws the bar twice
per step, first with the values of the step before.

The others count seconds within an epoch: those of Lightning and Ultralytics (YOLO) per batch, the
others per step. The time of either is a mean over as many as take half a minute.
"""

from __future__ import annotations

import re
from typing import Any

from tracelake.formats.readers import number, rounded_ns, whole
from tracelake.formats.training_log.elapsed import SECOND_NS, Elapsed, clock_ns
from tracelake.formats.training_log.values import PRINTED, StepLines, StepValues, value_of

_BAR = re.compile(
    r".*, global_step=(\d+\.?\d*(?:e\+\d+)?),.*\btrain_step_timing in s=[0-9.]+[],].*", re.ASCII
)
_COUNT = re.compile(r"\b(\d{1,9})(?:/(?:\d+|\?)|it) \[", re.ASCII)
_KEYS = re.compile(r"(\w[\w ]*?)=([0-9.eE+-]+|-?(?:nan|inf)[.0]*)(?=[],])", re.ASCII)
_WHOLE = re.compile(r"(\d+|-?nan|-?inf)\.0*", re.ASCII)  # Lightning fills with zeros


class Bars:
    """The progress bars of one file, in order."""

    def __init__(self) -> None:
        self._values: list[tuple[str, str]] = []
        self._done = 0  # count of the latest bar
        self._before = 0  # steps before the first that its count counts

    def read(self, text: str) -> tuple[int, dict[str, Any]] | None:
        """Return step and values of a bar; nothing of one that says nothing new.

        Raises:
            BadValueError: A column cannot hold a value.
        """
        found = _BAR.fullmatch(text) if "train_step_timing in s=" in text else None
        if found is None or (values := _KEYS.findall(text)) == self._values:
            return None
        self._values = values
        counted = _COUNT.search(text)
        step = self._step(found[1], int(counted[1]) if counted else None)
        if step is None:
            return None
        columns: dict[str, Any] = {}
        for key, printed in values:
            exact = _WHOLE.fullmatch(printed)
            if "e+" not in printed:
                columns |= value_of(key.strip(), exact[1] if exact else printed)
        return step, columns

    def _step(self, printed: str, count: int | None) -> int | None:
        """Return the step, which the bar counts from 0; nothing if only its rounding is known."""
        exact = _WHOLE.fullmatch(printed)
        if count is None:
            return whole(exact[1], 31) + 1 if exact else None
        # A count that begins anew is that of another epoch.
        before = self._before + (self._done if count < self._done else 0)
        step = whole(exact[1], 31) + 1 if exact else count + before
        if not exact and f"{step - 1:.2e}" != f"{float(printed):.2e}":
            return None
        self._done, self._before = count, step - count
        return step


# Before version 2 it also counted batches of evaluations. Of data without a length it knows no
# total: `5/?`, or `5it` before 2.1.
_EPOCH_BAR = (
    r"\bEpoch (\d{1,6}):(?: +\d{1,3}%| *:)? *(?:\|[^|]*\| *)?(\d{1,9})(?:/(\d{1,9}|\?)|it)"
    r" \[(?:(\d{1,5}):)?(\d\d):(\d\d)[<,][^\[\]]*(?:it/s|s/it), v_num=[^\[\]]*\]"
)
# With the epoch, the step and the loss of that.
_TUNE_BAR = (
    rf"\b(\d{{1,6}})\|(\d{{1,9}})\|Loss: ({PRINTED}): +\d{{1,3}}%\|[^|]*\|"
    r" *(\d{1,9})/(\d{1,9}) \[(?:(\d{1,5}):)?(\d\d):(\d\d)<"
)
# Of llama-recipes and what came of it: with the batch, of which a step may have several.
_RECIPES_BAR = (
    r"\bTraining Epoch: (\d{1,6})/(\d{1,6}), (?:step|batch) (\d{1,9})/(\d{1,9}) completed"
    rf" \(loss: ({PRINTED})\)?: +\d{{1,3}}%\|[^|]*\|"
    r" *(\d{1,9})/(\d{1,9}) \[(?:(\d{1,5}):)?(\d\d):(\d\d)<"
)
# Of YOLO, behind memory, losses, objects and size of images. Since August 2025 it draws bars of its
# own, with the seconds of the first minute alone.
_YOLO_BAR = (
    r"\b(\d{1,6})/\d{1,6} +[0-9.]+[GM](?: +[0-9.naif]+){2,12}: +\d{1,3}%"
    r"(?:\|[^|]*\|| [^0-9:]{1,99}) *(\d{1,9})/(\d{1,9}) (?:\[(?:(\d{1,5}):)?(\d\d):(\d\d)<"
    r"|[0-9.]+(?:it/s|s/it) (?:(?:(\d{1,5}):)?(\d\d?):)?([0-9.]+))"
)
_LINE = re.compile(rf".*{_EPOCH_BAR}.*", re.ASCII)
_TUNE_LINE = re.compile(_TUNE_BAR, re.ASCII)
_RECIPES_LINE = re.compile(_RECIPES_BAR, re.ASCII)
_YOLO_LINE = re.compile(_YOLO_BAR, re.ASCII)
# Lightning fills short numbers with zeros, also `nan.0`.
_LOSS = re.compile(rf", (?:train[_/])?loss(?:_step)?=({PRINTED})(?:\.0*)?(?=[],])")


class Epochs(StepLines):
    """Reads the bars of one file, in order: a step is a batch, and most do not say how many."""

    LINES = rf".*(?:{_EPOCH_BAR}|{_TUNE_BAR}|{_RECIPES_BAR}|{_YOLO_BAR}).*"
    HEADS = (
        (b", v_num=", _EPOCH_BAR.encode()),
        (b"|Loss: ", _TUNE_BAR.encode()),
        (b" completed (loss: ", _RECIPES_BAR.encode()),
        (b"GPU_mem ", _YOLO_BAR.encode()),  # its heading
        (b"gpu_mem ", _YOLO_BAR.encode()),
    )

    def __init__(self) -> None:
        self._elapsed = Elapsed(SECOND_NS)
        self._length = ""  # of all epochs so far; `?` where they differ
        self._before: dict[int, int] = {}  # steps before each epoch
        self._epoch: int | None = None  # of the latest bar
        self._first = 1  # epoch of Ultralytics

    def read(self, text: str) -> list[StepValues]:
        """Return loss and time of the batches that a bar ends."""
        if "|Loss: " in text and (found := _TUNE_LINE.search(text)):
            return self._tune(*found.groups())
        if "completed (loss: " in text and (found := _RECIPES_LINE.search(text)):
            return self._recipes(*found.groups())
        if ("G  " in text or "M  " in text) and (found := _YOLO_LINE.search(text)):
            return self._yolo(*found.groups())
        if ", v_num=" not in text or ", global_step=" in text:
            return []
        found = _LINE.fullmatch(text)
        if found is None:
            return []
        self.done = self._steps_before(int(found[1]), found[3] or "?") + int(found[2])
        time = self._time(found[1], found[2], found[3], clock_ns(*found.groups()[3:]))
        loss = _LOSS.search(text) if time else None
        return [(self.done, None, {"loss": number(loss[1])}), *time] if loss else time

    def _steps_before(self, epoch: int, length: str) -> int:
        """Return the steps before an epoch; of other lengths, as many as bars have counted."""
        if epoch not in self._before:
            self._length = length if self._length in ("", length) else "?"
            alike = self._length != "?"
            self._before[epoch] = epoch * int(length) if alike else self.done or 0
        return self._before[epoch]

    def _time(self, epoch: str, count: str, of: str | None, at_ns: int) -> list[StepValues]:
        """Return the time of the steps that a bar ends; its clock begins anew in each epoch.

        Where a terminal or a collector keeps the last bar of an epoch alone, that has the time of
        all its steps.
        """
        done = self.done or 0
        if int(epoch) != self._epoch:
            whole = count == of and self._epoch == int(epoch) - 1
            self._elapsed.begin(*((done - int(count), 0) if whole else (done, at_ns)))
            self._epoch = int(epoch)
        return self._elapsed.take(done, at_ns)

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
        return [record, *self._time(epoch, count, of, clock_ns(*clock))]

    def _recipes(self, *printed: Any) -> list[StepValues]:
        """Return loss and time of a step of llama-recipes, whose bar first has an older loss."""
        epoch, epochs, batch, batches, loss, count, of, *clock = printed
        done, steps = int(count), max(int(of), 1)
        if not done:
            return []
        self.total, self.done = int(epochs) * steps, (int(epoch) - 1) * steps + done
        time = self._time(epoch, count, of, clock_ns(*clock))
        own = int(batch) + 1 == done * (int(batches) // steps)
        return [(self.done, None, {"loss": number(loss)}), *time] if own else time

    def _yolo(self, epoch: str, count: str, of: str, *clock: str | None) -> list[StepValues]:
        """Return the time of the batches that a bar of Ultralytics ends; it has several losses."""
        self._first = min(self._first, int(epoch))  # 0 in YOLOv5
        self.done = (int(epoch) - self._first) * int(of) + int(count)
        hours, minutes, seconds = (
            old or new for old, new in zip(clock[:3], clock[3:], strict=True)
        )
        at_ns = clock_ns(hours, minutes, "0") + rounded_ns(seconds or "0", 9)
        return self._time(epoch, count, of, at_ns)
